"""Have the teacher model filter or reword questions, or turn references into facts: sql-agent data filter | facts."""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from sql_agent.cli.parser import DATABASE, add_task_flag, database, flag_settings, help_text
from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import open_database
from sql_agent.errors import ConfigError, DataError
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions, write_jsonl, write_parquet
from sql_agent.questions.question_writer import QuestionWriter, Rewriting
from sql_agent.questions.rewrite_checks import Half, TaskChecks, UsedTexts, kept_texts
from sql_agent.questions.teacher import (
    DEFAULT_RUBRIC,
    Decision,
    ProgressLog,
    TeacherRun,
    decide,
    decision_digest,
    facts_of_prose,
    prompt_file,
)
from sql_agent.reward.factory import teacher_client
from sql_agent.reward.judges.items import is_prose
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question, Usage
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.prepare import Made
from sql_agent.tasks.medical.verify import PATIENT
from sql_agent.tasks.task import load_task

FILTER_DESCRIPTION = """\
Have the model TEACHER_MODEL keep or drop each question of a file by a rubric.
KEPT gets the questions that are kept, KEPT.decisions.jsonl every decision with
its reason. After an interrupt the same command continues."""

FILTER_EXAMPLES = """\
  sql-agent data filter mine.jsonl --out kept.jsonl
  sql-agent data filter mine.parquet --out kept.parquet --rubric rubric.txt
"""

FACTS_DESCRIPTION = """\
Turn prose references into facts, which the judge `facts` can grade. The model
TEACHER_MODEL proposes them; each must be a verbatim quote from the evidence or
from a cell that the gold SQL returns, else the prose stays. Each question is
written to --out at once; after an interrupt the same command continues."""

FACTS_EXAMPLES = """\
  sql-agent data facts my.jsonl --out my_facts.jsonl --db my.db
"""

LOG_NAME = "rewritten.jsonl"
# Train and val share wordings; test is rewritten after them and never reuses their wordings.
_PASSES: Mapping[Half, tuple[str, ...]] = {"train": ("train", "val"), "test": ("test",)}
_SHOWN = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run `utils/filter_questions.py`, which is `sql-agent data filter`, and return 0."""
    examples = FILTER_EXAMPLES.replace("sql-agent data filter", "python utils/filter_questions.py")
    parser = argparse.ArgumentParser(prog="filter_questions.py", **help_text(FILTER_DESCRIPTION, examples))
    add_filter_arguments(parser)
    return run_filter(parser.parse_args(argv))


def add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sql-agent data filter`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="questions, parquet or JSONL")
    parser.add_argument("--out", type=Path, required=True, metavar="KEPT", help="file to write, .parquet or .jsonl")
    parser.add_argument(
        "--rubric", type=Path, metavar="FILE", help="text file, one criterion a line (default: the built-in rubric)"
    )
    add_question_arguments(parser)


def add_facts_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sql-agent data facts`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="questions, parquet or JSONL")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSONL file to write, or to continue")
    parser.add_argument(
        "--db",
        type=database,
        metavar="DB",
        help=f"{DATABASE}; facts may then also quote cells of the gold SQL's result",
    )
    add_question_arguments(parser)


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --mapping and --task, for every command that reads question files."""
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="TOML file that names the columns")
    add_task_flag(parser)


def add_writer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of rewriting to `sql-agent data questions`."""
    parser.add_argument("--writer", choices=("llm",), help="llm: TEACHER_MODEL rewrites the questions, each is "
                        "checked (default: no rewriting)")  # fmt: skip
    parser.add_argument("--writer-share", type=_share, metavar="SHARE", help="share to rewrite, above 0 up to 1 "
                        "(default: 1)")  # fmt: skip


def mapping_of(arguments: argparse.Namespace) -> ColumnMapping | None:
    """Return the mapping of `--mapping`, None where it is not given."""
    return ColumnMapping.load(arguments.mapping) if arguments.mapping else None


def run_filter(arguments: argparse.Namespace) -> int:
    """Decide on the questions, write those that are kept, and print what was dropped and why. Return 0.

    Raises JudgeError when the teacher cannot be asked; the decisions made by then are kept for the next call.
    """
    ui, settings, out = Ui(wraps=True), load_settings(flags=flag_settings(arguments)), arguments.out
    questions = load_questions(arguments.file, mapping_of(arguments))
    _check_out(out, arguments.file, ".parquet", ".jsonl")
    client = teacher_client(settings.judge, TeacherSettings())
    rubric = _rubric(arguments.rubric) if arguments.rubric else prompt_file(DEFAULT_RUBRIC)
    log = ProgressLog(out.with_name(f"{out.name}.decisions.jsonl"), Decision)
    left = [q for q in questions if log.find(q, decision_digest(q, client, rubric)) is None]
    _say_done(len(questions) - len(left), len(questions), log.path, ui)

    async def ask(question: Question) -> Usage:
        decision, usage = await decide(question, client, rubric)
        log.add(decision)
        return usage

    with _asking("Deciding on questions", len(left), settings, ui) as run:
        asyncio.run(run.ask_each(left, ask))
    decisions = [log.entries[q.id] for q in questions if q.id in log.entries]
    kept_ids = {decision.id for decision in decisions if decision.keep}
    kept = [question for question in questions if question.id in kept_ids]
    if out.suffix == ".parquet":
        write_parquet(out, kept)
    else:
        write_jsonl(out, [(question, {}) for question in kept])
    ui.say(f"{len(kept)} of {len(questions)} questions are kept: {out}; {log.path} has every reason")
    _list((f"dropped {d.id}: {d.reason}" for d in decisions if not d.keep), ui)
    if run.failed:
        ui.say(f"{len(run.failed)} could not be decided on and are left out; the same command asks again")
        _list((f"{number}: {error}" for number, error in run.failed.items()), ui)
    ui.say(load_task(settings.task).disclaimer)
    return 0


def run_facts(arguments: argparse.Namespace) -> int:
    """Turn prose references into facts and return 0. Raises JudgeError when the teacher cannot be asked."""
    ui, settings, out = Ui(wraps=True), load_settings(flags=flag_settings(arguments)), arguments.out
    _check_out(out, arguments.file, ".jsonl")
    task = load_task(settings.task)
    client = teacher_client(settings.judge, TeacherSettings())
    questions = load_questions(arguments.file, mapping_of(arguments))
    log = ProgressLog(out, Question)
    left = [question for question in questions if question.id not in log.entries]
    _say_done(len(questions) - len(left), len(questions), out, ui)
    prose = {question.id for question in left if is_prose(question.answer, question.lang)}
    problems: dict[str, str] = {}
    with ExitStack() as stack:
        databases = stack.enter_context(task.databases(settings, arguments.db)) if arguments.db else None

        async def ask(question: Question) -> Usage:
            if question.id not in prose:
                log.add(question)
                return Usage()
            with databases.of(question.database) if databases else nullcontext() as opened:
                result = await facts_of_prose(question, client, opened)
            log.add(result.question)
            if result.problem:
                problems[question.id] = result.problem
            return result.usage

        run = stack.enter_context(_asking("Asking for facts", len(left), settings, ui))
        try:
            asyncio.run(run.ask_each(left, ask))
        finally:
            made = len(prose & log.entries.keys()) - len(problems)
            ui.say(f"{made} of {len(prose)} references of prose are facts now, in {out}")
            _list((f"still prose: {number}: {problem}" for number, problem in problems.items()), ui)
    ui.say(task.disclaimer)
    return 0


def rewriting(arguments: argparse.Namespace, folder: Path, ui: Ui) -> Callable[[Made, TaskChecks], Made] | None:
    """Return the function that rewrites questions as the options say; None without `--writer`.

    Raises ConfigError when the options contradict each other or no teacher is set. The function raises JudgeError when
    the teacher cannot be asked; the questions done by then are kept in `folder` for the next call.
    """
    if arguments.writer is None:
        if arguments.writer_share is not None:
            raise ConfigError("--writer-share needs a writer", hint="add --writer llm")
        return None
    settings = load_settings()
    client = teacher_client(settings.judge, TeacherSettings())
    share = 1.0 if arguments.writer_share is None else arguments.writer_share

    def rewrite(made: Made, checks: TaskChecks) -> Made:
        chosen = {split: _chosen(questions, share, arguments.seed) for split, questions in made.items()}
        log = ProgressLog(folder / LOG_NAME, Rewriting)
        used = UsedTexts(question.question for questions in made.values() for question in questions)
        with open_database(arguments.db, TASK.schema, PATIENT) as opened:
            writer = QuestionWriter(client, opened, TASK.schema.names, TASK.words, checks, used)
            return _rewrite(made, chosen, writer, log, settings=settings, ui=ui)

    return rewrite


def _rewrite(
    made: Made, chosen: Made, writer: QuestionWriter, log: ProgressLog[Rewriting], *, settings: Settings, ui: Ui
) -> Made:
    """Rewrite the `chosen` ones of the `made` questions, pass by pass, and report on them."""
    left: dict[Half, list[Question]] = {half: [] for half in _PASSES}
    for half, splits in _PASSES.items():
        for question in (question for split in splits for question in chosen[split]):
            entry = log.find(question, writer.digest(question, half))
            if entry is None:
                left[half].append(question)
            elif entry.problem is None:
                writer.used.add(entry.text, kept_texts(question), half)
    ids = {question.id for questions in chosen.values() for question in questions}
    _say_done(len(ids & log.entries.keys()), len(ids), log.path, ui)

    async def ask(half: Half, question: Question) -> Usage:
        entry, usage = await writer.rewrite(question, half)
        log.add(entry)
        return usage

    async def ask_all(run: TeacherRun) -> None:
        for half, questions in left.items():
            await run.ask_each(questions, partial(ask, half))

    with _asking("Rewriting questions", sum(map(len, left.values())), settings, ui) as run:
        try:
            asyncio.run(ask_all(run))
        finally:
            entries = {number: entry for number, entry in log.entries.items() if number in ids}
            _report_rewriting(list(entries.values()), run, log.path, ui)
    texts = {number: entry.text for number, entry in entries.items() if entry.problem is None}
    return {
        split: [q.model_copy(update={"question": texts[q.id]}) if q.id in texts else q for q in questions]
        for split, questions in made.items()
    }


def _report_rewriting(entries: Sequence[Rewriting], run: TeacherRun, path: Path, ui: Ui) -> None:
    """Print how many questions were rewritten, and why others keep their wording."""
    problems = [entry.problem.reason for entry in entries if entry.problem]
    ui.say(f"{len(entries) - len(problems)} of {len(entries)} rewritten questions are used; {path} has them all")
    if problems:
        reasons = ", ".join(f"{reason} {count}" for reason, count in Counter(problems).most_common())
        ui.say(f"  {len(problems)} keep their wording, because of: {reasons}")
    if run.failed:
        ui.say(f"  {len(run.failed)} keep their wording, because the teacher failed; the same command asks again")
        _list((f"  {number}: {error}" for number, error in run.failed.items()), ui)


@contextmanager
def _asking(title: str, total: int, settings: Settings, ui: Ui) -> Iterator[TeacherRun]:
    """Yield a run that shows its progress; at the end, also after an error or an interrupt, print the cost."""
    with ui.progress(title, total) as on_done:
        run = TeacherRun(settings.judge.concurrency, on_done)
        try:
            yield run
        finally:
            ui.say(f"Cost: {run.usage.described}")


def _say_done(done: int, total: int, path: Path, ui: Ui) -> None:
    if done:
        ui.say(f"{done} of {total} questions are in {path} already")


def _list(lines: Iterator[str], ui: Ui) -> None:
    shown = list(lines)
    for line in shown[:_SHOWN]:
        ui.say(f"  {line}")
    if len(shown) > _SHOWN:
        ui.say(f"  and {len(shown) - _SHOWN} more")


def _check_out(out: Path, source: Path, *endings: str) -> None:
    """Raise ConfigError when `out` has none of `endings`, or is the file that is read."""
    known = " or ".join(endings)
    if out.suffix not in endings:
        raise ConfigError(f"--out {out} is not a {known} file", hint=f"let it end in {known}")
    if out.resolve() == source.resolve():
        raise ConfigError(f"--out {out} is the file that is read", hint="name another")


def _rubric(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read the rubric {path}: {error}", hint="give a text file with one criterion a line"
        ) from None
    if not text.strip():
        raise DataError(f"the rubric {path} is empty", hint="write one criterion a line")
    return text


def _chosen(questions: Sequence[Question], share: float, seed: int) -> list[Question]:
    """Return a random `share` of the questions; a larger share contains a smaller one."""
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
