"""Build the database and the judge that the settings ask for."""

from __future__ import annotations

from sql_agent.config import Settings, TeacherSettings
from sql_agent.database import SqliteDatabase, open_database
from sql_agent.locations import database_path
from sql_agent.reward import GroupJudge, Judge
from sql_agent.reward.factory import make_judge


def configured_database(settings: Settings) -> SqliteDatabase:
    """Open the database of `settings`. Raises DatabaseFileError when it is missing, empty or of another schema."""
    return open_database(database_path(settings), settings.database_limits())


def configured_judge(settings: Settings, *, alone: bool = False) -> Judge:
    """The judge of `settings`, its endpoint from the environment. Raises ConfigError if that is incomplete.

    The limits of its endpoint are for a whole run, of which each runner, and with the judge `relative` the algorithm
    too, gets its part; `alone` gives all of them to this one.
    """
    processes = 1 if alone else settings.runner.n_runners + (settings.judge.name == "relative")
    return make_judge(settings.judge, TeacherSettings(), processes=processes)


def group_judge(settings: Settings) -> GroupJudge | None:
    """The judge of `settings` if it compares the rollouts of a group, which the algorithm then has to do."""
    judge = configured_judge(settings)
    return judge if isinstance(judge, GroupJudge) else None
