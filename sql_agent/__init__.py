"""Train a small language model to answer questions by searching a database with SQL."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise litellm's import fetches a price list
os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")  # otherwise openai-agents sends traces to OpenAI
