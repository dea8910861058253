"""Have a teacher model keep or drop questions by a rubric, each with a reason."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from sql_agent.errors import JudgeCutOffError, JudgeError, JudgeRefusedError
from sql_agent.questions.progress_log import Entry, ProgressLog
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.prompt_template import render
from sql_agent.reward.judges.reply import read_reply
from sql_agent.schemas import Question, Record, Usage

_REPAIR = 'That is not a JSON object of the form {"reason": "…", "keep": true}. Reply with it and nothing else.'
_SHOWN = ("question", "answer", "sql", "evidence", "task_type")  # of a question, to the model


class Choice(Record):
    """Holds the model's reply."""

    reason: str
    keep: bool


class Decision(Entry):
    """One line of the progress file: the question's text, whether it is kept, and why."""

    question: str
    keep: bool
    reason: str


@dataclass
class QuestionFilter:
    """Decides on questions by a `rubric`, a text; `log` keeps the decisions.

    `failed` are the questions that the model refused to decide on, with the errors; `usage` is what was spent.
    """

    client: JudgeClient
    rubric: str
    log: ProgressLog[Decision]
    failed: dict[str, JudgeError] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    async def decide(self, questions: Sequence[Question], at_once: int, on_done: Callable[[], None]) -> None:
        """Decide on the questions that the log does not have yet, `at_once` at a time.

        Raises the first JudgeError that is not of one question alone, after the requests under way have ended.
        """
        waiting = iter([question for question in questions if self.decision_on(question) is None])
        stopped: list[JudgeError] = []

        async def work() -> None:
            while not stopped and (question := next(waiting, None)) is not None:
                try:
                    await self._ask(question)
                except (JudgeRefusedError, JudgeCutOffError) as error:
                    self.usage += error.usage or Usage()
                    self.failed[question.id] = error
                except JudgeError as error:
                    self.usage += error.usage or Usage()
                    stopped.append(error)
                on_done()

        await asyncio.gather(*(work() for _ in range(at_once)))
        if stopped:
            raise stopped[0]

    def decision_on(self, question: Question) -> Decision | None:
        """Return what was decided; None when it was not. Raises ConfigError when the log holds other questions."""
        return self.log.find(question, self._digest(question))

    async def _ask(self, question: Question) -> None:
        choice, usage = await self.client.ask(
            self._prompt(question),
            Choice.model_json_schema(),
            lambda text: read_reply(text, Choice),
            repair=_REPAIR,
        )
        self.usage += usage
        made = {"digest": self._digest(question), "question": question.question}
        self.log.add(Decision(id=question.id, **made, keep=choice.keep, reason=choice.reason))

    def _prompt(self, question: Question) -> str:
        shown = {name: value for name, value in question.model_dump(mode="json").items() if name in _SHOWN and value}
        values = {"rubric": self.rubric.strip(), "entry": json.dumps(shown, ensure_ascii=False)}
        return render(_prompt_file("filter.txt"), values)

    def _digest(self, question: Question) -> str:
        parts = (self.client.model, question.model_dump_json(), self._prompt(question))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def default_rubric() -> str:
    """Return the rubric that is used where none is given."""
    return _prompt_file("filter_rubric.txt")


def _prompt_file(name: str) -> str:
    return files("sql_agent.questions").joinpath("prompts", name).read_text(encoding="utf-8")
