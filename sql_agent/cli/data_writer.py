"""Have the teacher model rewrite generated questions: sql-agent data questions --db FILE --writer llm"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sql_agent.config.settings import TeacherSettings, load_settings
from sql_agent.database import open_database
from sql_agent.errors import ConfigError, JudgeCutOffError, JudgeError, JudgeRefusedError
from sql_agent.questions.progress_log import ProgressLog
from sql_agent.questions.question_writer import QuestionWriter, Rewriting
from sql_agent.questions.rewrite_checks import Half, TaskChecks, UsedTexts, kept_texts
from sql_agent.reward.factory import teacher_client
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question, Usage
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.verify import PATIENT

LOG_NAME = "rewritten.jsonl"
# Train and val share wordings, test has its own: it is rewritten after them, and no wording of theirs is taken again.
_PASSES: Mapping[Half, tuple[str, ...]] = {"train": ("train", "val"), "test": ("test",)}
_SHOWN = 5

Made = dict[str, list[Question]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of rewriting to `sql-agent data questions`."""
    parser.add_argument("--writer", choices=("llm",), help="llm: TEACHER_MODEL rewrites the questions, each is "
                        "checked (default: no rewriting)")  # fmt: skip
    parser.add_argument("--writer-share", type=_share, metavar="SHARE", help="how many of them, above 0 up to 1 "
                        "(default: 1)")  # fmt: skip


def rewriting(arguments: argparse.Namespace, folder: Path, ui: Ui) -> Callable[[Made, TaskChecks], Made] | None:
    """Return what rewrites questions as the options say; None without `--writer`.

    Raises ConfigError when the options contradict each other or no teacher is set. What is returned raises JudgeError
    when the teacher cannot be asked; the questions done by then are kept in `folder`, where the next call finds them.
    """
    if arguments.writer is None:
        if arguments.writer_share is not None:
            raise ConfigError("--writer-share says how much is rewritten, by nobody", hint="add --writer llm")
        return None
    settings = load_settings()
    client = teacher_client(settings.judge, TeacherSettings())
    share = 1.0 if arguments.writer_share is None else arguments.writer_share

    def rewrite(made: Made, checks: TaskChecks) -> Made:
        with open_database(arguments.db, TASK.schema, PATIENT) as database:
            writer = QuestionWriter(client, database, TASK.schema.names, TASK.words, checks)
            session = _Session(
                writer, ProgressLog(folder / LOG_NAME, Rewriting), UsedTexts(q.question for q in _all(made))
            )
            chosen = {split: _chosen(questions, share, arguments.seed) for split, questions in made.items()}
            session.read_log(chosen, ui)
            try:
                with ui.progress("Rewriting questions", len(session.left)) as on_done:
                    asyncio.run(session.rewrite_all(settings.judge.concurrency, on_done))
            finally:
                session.report(ui)
        return {split: [session.rewritten(question) for question in questions] for split, questions in made.items()}

    return rewrite


@dataclass
class _Session:
    """Rewrites the questions of one command and counts what became of them."""

    writer: QuestionWriter
    log: ProgressLog[Rewriting]
    used: UsedTexts
    entries: dict[str, Rewriting] = field(default_factory=dict)
    left: list[tuple[Question, Half]] = field(default_factory=list)
    failed: dict[str, JudgeError] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    def read_log(self, chosen: Mapping[str, Sequence[Question]], ui: Ui) -> None:
        """Take what the log has of the `chosen` questions, by split; the rest is left to be asked."""
        for half, splits in _PASSES.items():
            for question in (question for split in splits for question in chosen[split]):
                entry = self.log.find(question, self.writer.digest(question, half))
                if entry is None:
                    self.left.append((question, half))
                    continue
                self.entries[question.id] = entry
                if entry.problem is None:
                    self.used.add(entry.text, kept_texts(question), half)
        if self.entries:
            ui.say(f"{len(self.entries)} questions are in {self.log.path} already")

    async def rewrite_all(self, at_once: int, on_done: Callable[[int], None]) -> None:
        """Rewrite what is left, pass by pass. Raises the first JudgeError after those under way have ended."""
        before = len(self.entries)
        for half in _PASSES:
            waiting = iter([question for question, of in self.left if of == half])
            stopped: list[JudgeError] = []

            async def work(waiting: Iterator[Question], stopped: list[JudgeError], half: Half) -> None:
                while not stopped and (question := next(waiting, None)) is not None:
                    try:
                        await self._rewrite(question, half)
                    except JudgeError as error:
                        self.usage += error.usage or Usage()
                        stopped.append(error)
                    on_done(len(self.entries) - before + len(self.failed))

            await asyncio.gather(*(work(waiting, stopped, half) for _ in range(at_once)))
            if stopped:
                raise stopped[0]

    async def _rewrite(self, question: Question, half: Half) -> None:
        try:
            written = await self.writer.rewrite(question, half, self.used)
        except (JudgeRefusedError, JudgeCutOffError) as error:  # of this question alone, so the others go on
            self.usage += error.usage or Usage()
            self.failed[question.id] = error
            return
        self.usage += written.usage
        entry = Rewriting(
            id=question.id,
            digest=self.writer.digest(question, half),
            original=question.question,
            text=written.text,
            problem=written.problem,
        )
        self.log.add(entry)
        self.entries[question.id] = entry

    def rewritten(self, question: Question) -> Question:
        """Return `question` with its new text, or as it was where there is none that can be used."""
        entry = self.entries.get(question.id)
        if entry is None or entry.problem is not None:
            return question
        return question.model_copy(update={"question": entry.text})

    def report(self, ui: Ui) -> None:
        """Print how many questions were rewritten, why others keep their wording, and the cost."""
        problems = [entry.problem.reason for entry in self.entries.values() if entry.problem]
        done = len(self.entries)
        ui.say(f"{done - len(problems)} of {done} rewritten questions are used; {self.log.path} has them all")
        if problems:
            reasons = ", ".join(f"{reason} {count}" for reason, count in Counter(problems).most_common())
            ui.say(f"  {len(problems)} keep their wording, because of: {reasons}")
        if self.failed:
            ui.say(f"  {len(self.failed)} keep their wording, because the teacher failed; the same command asks again")
        for question_id, error in list(self.failed.items())[:_SHOWN]:
            ui.say(f"    {question_id}: {error}")
        ui.say(f"Cost: {self.usage.described}")


def _all(made: Made) -> Iterator[Question]:
    return (question for questions in made.values() for question in questions)


def _chosen(questions: Sequence[Question], share: float, seed: int) -> list[Question]:
    """Return `share` of the questions at random; a larger share holds those of a smaller one."""
    order = list(questions)
    random.Random(f"{seed} writer").shuffle(order)
    return order[: round(share * len(order))]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1")
    return share
