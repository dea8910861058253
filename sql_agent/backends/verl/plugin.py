"""Register our attention in every process of verl, which imports this module (VERL_USE_EXTERNAL_MODULES)."""

from __future__ import annotations

import logging

from sql_agent.backends.verl import attention

# Nothing that needs verl may be imported here, because verl's __init__ imports this module before it is complete.
attention.register()
logging.getLogger("openai.agents").setLevel(logging.WARNING)
