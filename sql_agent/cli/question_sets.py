"""Load the question sets of a training run or an evaluation, and refuse or drop questions seen in training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

from sql_agent.config.settings import Settings
from sql_agent.database import Source
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.errors import ConfigError
from sql_agent.questions.question_check import count_quotes
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question
from sql_agent.tasks.task import Task

TEMPLATE, NATURAL, REAL, TEST = "template", "natural", "real", "test"
_ENOUGH_CELLS = 0.9  # minimum share of the benchmark's evidence that a copy of the benchmark's database must contain
_READ = 20  # number of questions of the benchmark whose evidence is looked up
Sets = dict[str, list[Question]]
OnOverlap = Literal["refuse", "drop", "allow"]
SourceOf = Callable[[str | None], Source]  # returns the database with a given name


def questions_of_run(settings: Settings, task: Task) -> tuple[list[Question], Sets]:
    """Return the training questions, and the validation sets by name, without empty sets.

    The set TEMPLATE has questions of the validation file. The set NATURAL has questions of the task's benchmark, unless
    `leaves_out_natural`. The set REAL has questions of the benchmark about a real database, if the run uses it.

    Raises ConfigError if a validation question is a training question, or two validation questions have one id.
    """
    train, template = task.questions(settings, "train"), task.questions(settings, "val")
    count = 0 if leaves_out_natural(settings, task) else settings.data.natural_questions
    natural = list(task.natural_questions(settings.lang)) if count else []
    real = questions_about_own_database(settings, task)
    shared = {q.question for q in asked_in_both((*template, *natural, *real), train)}
    if shared:
        raise ConfigError(
            f"{len(shared)} validation questions are also training questions, such as {min(shared)!r}",
            hint="remove these questions from one of the two files",
        )
    sets = {
        TEMPLATE: evenly_spaced(template, settings.data.val_questions),
        NATURAL: spread_over_types(natural, count) if natural else [],
        REAL: spread_over_types(real, settings.data.natural_questions) if real else [],
    }
    ids = Counter(q.id for questions in sets.values() for q in questions)
    if twice := [key for key, times in ids.items() if times > 1]:
        raise ConfigError(
            f"{len(twice)} ids of validation questions are also those of the natural benchmark, such as {twice[0]!r}",
            hint="change the ids in the validation file, or set data.natural_questions=0 if it is the benchmark itself",
        )
    return train, {name: questions for name, questions in sets.items() if questions}


def leaves_out_natural(settings: Settings, task: Task) -> bool:
    """Return whether validation leaves out the task's benchmark because the run's database is on a server.

    The model then learns the dialect of the server, but the benchmark's database is in SQLite.
    """
    asked = bool(settings.data.natural_questions and task.natural_questions(settings.lang))
    on_server = settings.agent.tool != "mcp" and isinstance(task.database_source(settings), ServerAddress)
    return asked and on_server


def questions_about_own_database(settings: Settings, task: Task) -> list[Question]:
    """Return the task's benchmark about a real database if the run's database has the quoted cells; else []."""
    questions = list(task.real_questions(settings.lang)) if settings.data.natural_questions else []
    asked = [question for question in questions if question.evidence][:_READ]
    if not asked:
        return []
    with task.databases(settings) as databases:
        found = count_quotes(asked, databases).found
    return questions if found >= _ENOUGH_CELLS * sum(len(question.evidence) for question in asked) else []


def question_sets(
    files: Sequence[Path], mapping: Path | None, count: int | None, task: Task, settings: Settings
) -> Sets:
    """Return the questions of `files`, or of the test split and the benchmarks; at most `count` of each set."""
    if files:
        columns = ColumnMapping.load(mapping) if mapping else None
        sets = {set_name(path, files): task.read_questions(path, columns) for path in files}
    else:
        sets = {TEST: task.questions(settings, "test")}
        if settings.data.natural_questions and (natural := list(task.natural_questions(settings.lang))):
            sets[NATURAL] = natural
        if real := questions_about_own_database(settings, task):
            sets[REAL] = real
    if count is None:
        return sets
    return {name: spread_over_types(questions, count) for name, questions in sets.items()}


def set_name(path: Path, paths: Sequence[Path]) -> str:
    """Return the shortest name that distinguishes `path` from the other `paths`: stem, file name or path."""
    if [other.stem for other in paths].count(path.stem) == 1:
        return path.stem
    return path.name if [other.name for other in paths].count(path.name) == 1 else str(path)


def without_overlap(sets: Sets, task: Task, settings: Settings, *, run: Path, overlap: OnOverlap, ui: Ui) -> Sets:
    """Return `sets`; if `overlap` is "drop", without the questions that overlap with the training of `run`.

    Raises ConfigError if there is an overlap (see `Overlap`) and `overlap` is "refuse", or if no question is left.
    """
    train = task.questions(settings, "train")
    kept: Sets = {}
    for name, questions in sets.items():
        found = find_overlap(questions, train, partial(task.source_of, settings))
        kept[name] = questions
        if not any(found):
            continue
        said = _describe(name, len(questions), found, run)
        if overlap == "refuse":
            raise ConfigError(
                said, hint="leave them out with --drop-overlap, ask them with --allow-overlap, or give --questions"
            )
        ui.say(f"Warning: {said}" if overlap == "allow" else f"Left out: {said}")
        if overlap == "drop":
            ids = {question.id for part in found for question in part}
            kept[name] = [question for question in questions if question.id not in ids]
    kept = {name: questions for name, questions in kept.items() if questions}
    if not kept:
        raise ConfigError(f"training of {run} saw every question", hint="give --questions with other questions")
    return kept


def _describe(name: str, count: int, overlap: Overlap, run: Path) -> str:
    parts = []
    if overlap.questions:
        parts.append(f"{len(overlap.questions)} are training questions, such as {overlap.questions[0].question!r}")
    if overlap.entities:
        first = overlap.entities[0]
        row = first.evidence[0]
        parts.append(
            f"{len(overlap.entities)} are about rows of training questions, such as {first.id} about "
            f"{row.table} {row.row_id}"
        )
    return f"of the {count} questions of {name!r}, {run} was trained on some: {'; '.join(parts)}"


def evenly_spaced(questions: Sequence[Question], count: int) -> list[Question]:
    """Return at most `count` questions, evenly spaced, without randomness."""
    step = max(1.0, len(questions) / count)
    return [questions[int(i * step)] for i in range(min(count, len(questions)))]


def spread_over_types(questions: Iterable[Question], count: int) -> list[Question]:
    """Return at most `count` questions, evenly spaced over the task types, without randomness."""
    return evenly_spaced(sorted(questions, key=lambda q: q.task_type or ""), count)


class Overlap(NamedTuple):
    """Questions seen in training (`questions`), and others about rows of training questions (`entities`)."""

    questions: tuple[Question, ...]
    entities: tuple[Question, ...]


def find_overlap(asked: Sequence[Question], trained: Sequence[Question], source_of: SourceOf) -> Overlap:
    """Return the questions of `asked` that are in `trained`, and others that share a row of evidence with `trained`."""
    source_of = cache(source_of)
    rows, same = _evidence_rows(trained, source_of), asked_in_both(asked, trained)
    return Overlap(same, tuple(q for q in asked if q not in same and _evidence_rows([q], source_of) & rows))


def asked_in_both(asked: Sequence[Question], trained: Iterable[Question]) -> tuple[Question, ...]:
    """Return the questions of `asked` that `trained` contains, ignoring case and white space.

    Equal texts for different databases are different questions.
    """
    named: defaultdict[str, set[str | None]] = defaultdict(set)
    for question in trained:
        named[folded_text(question)] |= {question.database}

    def is_in_both(question: Question) -> bool:
        databases = named.get(folded_text(question), set())
        return bool(databases) and (question.database is None or not databases.isdisjoint({question.database, None}))

    return tuple(question for question in asked if is_in_both(question))


def _evidence_rows(questions: Iterable[Question], source_of: SourceOf) -> set[tuple[Source, str, int]]:
    rows = set()
    for question in questions:
        for item in question.evidence:
            source = source_of(question.database)
            rows.add((source.resolve() if isinstance(source, Path) else source, item.table.casefold(), item.row_id))
    return rows


def folded_text(question: Question) -> str:
    return " ".join(question.question.split()).casefold()
