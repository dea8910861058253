"""Define what a database of the task must have: any table at all, all of which may be read."""

from __future__ import annotations

from sql_agent.database import RequiredSchema
from sql_agent.tasks.spider.folder import LAYOUT

SCHEMA = RequiredSchema(None, hint=f"give --data-dir DIR: {LAYOUT}")
