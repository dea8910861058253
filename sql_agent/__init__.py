"""Train a small language model to answer questions by searching a database with SQL."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise the import of litellm fetches a price list
os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")  # the tracing of openai-agents sends data to OpenAI
