"""Train a small language model to answer questions by searching a database with SQL."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise the import of litellm fetches a price list
