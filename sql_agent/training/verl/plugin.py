"""Register our attention and name sockets in every process of verl, which imports this (VERL_USE_EXTERNAL_MODULES)."""

from __future__ import annotations

import logging

from sql_agent.training.verl import attention, sockets

# Nothing that needs verl may be imported here, because verl's __init__ imports this module before it is complete.
attention.register()
sockets.name_by_cluster()
logging.getLogger("openai.agents").setLevel(logging.WARNING)
