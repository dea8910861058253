"""Ask a model many questions at once, with the agent, the tool and the reward of training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sql_agent.agent.agent import shared_client
from sql_agent.agent.rollout import run_rollout
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.errors import TrainingError
from sql_agent.reward import Judge
from sql_agent.schemas import DropCause, Question, RolloutRecord
from sql_agent.tasks.task import Task

Asked = tuple[str, Question]  # the name of its set, and the question
OnRecord = Callable[[str, RolloutRecord], None]

_PAUSES_S = (1.0, 2.0, None)  # after each attempt at one question; after the last it is recorded as dropped
# Seconds between the starts of two workers. Started together, workers whose model always takes equally long use the
# processor at the same moments and wait for each other: 500 questions at 32 at once took 12 to 21 % longer.
_STAGGER_S = 0.02
_DEAD_AFTER = 8  # questions in a row that the model's server lost


async def ask_all(  # noqa: PLR0917  what a rollout needs, in the order of `run_rollout`
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
    """Ask `questions`, `concurrency` at once, and pass each record to `on_record` when it is complete.

    A rollout that the judge or the model's server lost is retried; after three attempts its record has `dropped` set.
    Raises TrainingError when the model's server lost several questions in a row, because it will lose the others too.
    """
    waiting = iter(questions)
    server = _Server(endpoint)
    async with shared_client() as client:

        async def work(number: int) -> None:
            await asyncio.sleep(number * _STAGGER_S)
            for name, question in waiting:
                with databases.of(question.database) as database:
                    for pause in _PAUSES_S:
                        record = await run_rollout(
                            question, task, endpoint, database, judge, settings, http_client=client
                        )
                        if record.dropped is None or pause is None or server.gone:
                            break
                        await asyncio.sleep(pause)
                on_record(name, record)
                server.count(record)
                if server.gone:
                    return

        # Workers end by themselves and are not cancelled, so that the record of what they are asking is kept.
        await asyncio.gather(*(work(number) for number in range(min(concurrency, len(questions)))))
    if server.gone:
        raise server.gone


class _Server:
    """Counts the questions in a row that the model's server lost; `gone` is the error once they are too many."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._lost = 0
        self.gone: TrainingError | None = None

    def count(self, record: RolloutRecord) -> None:
        drop = record.dropped
        if drop is None or drop.cause is not DropCause.MODEL_SERVER:
            self._lost = 0
            return
        self._lost += 1
        if self._lost == _DEAD_AFTER:
            self.gone = TrainingError(
                f"the model {self._endpoint.model} at {self._endpoint.base_url} failed on {self._lost} questions in a "
                f"row: {drop.detail}",
                hint="correct the address, the model's name or the key, then continue with --resume",
            )
