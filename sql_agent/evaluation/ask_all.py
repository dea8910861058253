"""Ask a model many questions concurrently, with the agent, the tool and the reward of training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sql_agent.agent.rollout import run_rollout, shared_client
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.errors import TrainingError
from sql_agent.reward import Judge
from sql_agent.schemas import DropCause, Question, RolloutRecord
from sql_agent.tasks.task import Task

Asked = tuple[str, Question]  # the name of a question set, and a question of that set
OnRecord = Callable[[str, RolloutRecord], None]

_PAUSES_S = (1.0, 2.0, None)  # pause after each failed attempt at a question; None: no further attempt
# Seconds between the starts of two workers. Workers that start together need the processor at the same moments: 500
# questions with 32 workers took 12 to 21 % longer.
_STAGGER_S = 0.02
_DEAD_AFTER = 8  # consecutive questions that the model server failed


async def ask_all(  # noqa: PLR0917  the parameters of `run_rollout`, in the same order
    questions: Sequence[Asked],
    task: Task,
    endpoint: ModelEndpoint,
    databases: DatabasePool,
    judge: Judge,
    settings: Settings,
    *,
    concurrency: int,
    on_record: OnRecord,
) -> None:
    """Ask `questions`, `concurrency` at a time, and pass each finished record to `on_record`.

    A rollout that the judge or the model server lost is retried; after three attempts its record has `dropped` set.
    """
    waiting = iter(questions)
    failed_in_a_row = 0
    gone: TrainingError | None = None
    async with shared_client() as client:

        async def work(number: int) -> None:
            nonlocal failed_in_a_row, gone
            await asyncio.sleep(number * _STAGGER_S)
            for name, question in waiting:
                with databases.of(question.database) as database:
                    for pause in _PAUSES_S:
                        record = await run_rollout(
                            question, task, endpoint, database, judge, settings, http_client=client
                        )
                        if record.dropped is None or pause is None or gone:
                            break
                        await asyncio.sleep(pause)
                on_record(name, record)
                drop = record.dropped
                failed_in_a_row = failed_in_a_row + 1 if drop and drop.cause is DropCause.MODEL_SERVER else 0
                if drop and failed_in_a_row == _DEAD_AFTER:
                    gone = TrainingError(
                        f"the model {endpoint.model} at {endpoint.base_url} failed on {_DEAD_AFTER} questions in a "
                        f"row: {drop.detail}",
                        hint="correct the URL, the model's name or the key, then continue with --resume",
                    )
                if gone:
                    return

        # After a failure, the other workers finish their current question, so that its record is kept.
        await asyncio.gather(*(work(number) for number in range(min(concurrency, len(questions)))))
    if gone:
        raise gone
