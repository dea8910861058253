"""Imported by every process of verl (VERL_USE_EXTERNAL_MODULES): makes our parts known to it."""

from __future__ import annotations

import logging

from sql_agent.backends.verl import attention

# The modules that need verl itself import it only when it is complete: this one is imported by verl's __init__.
attention.register()
logging.getLogger("openai.agents").setLevel(logging.WARNING)
