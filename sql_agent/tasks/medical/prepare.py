"""Make question files about a database, make the missing sample for a run, and load the natural benchmark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

from sql_agent.config.paths import VAR
from sql_agent.config.settings import Settings
from sql_agent.database import Source
from sql_agent.errors import DataError
from sql_agent.questions.question_files import load_questions, write_jsonl, write_parquet
from sql_agent.questions.rewrite_checks import TaskChecks
from sql_agent.schemas import Lang, Question, Style
from sql_agent.tasks.medical.questions.catalog import Catalog, read_catalog
from sql_agent.tasks.medical.questions.generate import make_questions
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.verify import problems, text_problem, verify
from sql_agent.tasks.task import given_source

Made = dict[str, list[Question]]  # by split


def sample_path(lang: Lang) -> Path:
    """Return the path of the sample database of `lang`."""
    return VAR / f"sample_{lang}.db"


def questions_folder(database: Source, style: Style = "mixed") -> Path:
    """Return the default folder of the questions of `style` about `database`."""
    return VAR / (f"questions_{database.stem}" + ("" if style == "mixed" else f"_{style}"))


def default_database(settings: Settings) -> Path:
    """Return the sample database of `settings.lang`."""
    return sample_path(settings.lang)


def default_questions(settings: Settings, split: str) -> Path:
    """Return the default question file of `split` about the database of `settings`; it may not exist."""
    database = given_source(settings) or sample_path(settings.lang)
    return questions_folder(database, settings.data.style) / f"{split}.parquet"


def ensure_sample_database(settings: Settings, say: Callable[[str], None]) -> None:
    """Make the sample database if `settings` use it and it is missing; `say` prints a message.

    The natural questions always query the sample. A database that the user named is never made. Raises DataError when
    a file cannot be written.
    """
    path = sample_path(settings.lang)
    asked = given_source(settings) is None or settings.data.natural_questions > 0
    if asked and not path.exists():
        counts = build_database(load_facts(), settings.lang, path)
        say(f"Made the sample database {path}: {counts['drugs_info']} drugs, {counts['disease']} diseases")


def ensure_sample(settings: Settings, say: Callable[[str], None]) -> None:
    """Make the sample database and its questions if `settings` use them and they are missing; `say` prints a message.

    Raises DataError when a file cannot be written.
    """
    ensure_sample_database(settings, say)
    if given_source(settings) is not None:
        return
    path = sample_path(settings.lang)
    files = {"train": settings.data.train_file, "val": settings.data.val_file}
    if any(file is None and not default_questions(settings, split).exists() for split, file in files.items()):
        folder = questions_folder(path, settings.data.style)
        made = make_question_files(path, folder, settings.lang, style=settings.data.style)
        say(f"Made {sum(map(len, made.values()))} questions about it in {folder}")


def make_question_files(
    database: Source,
    folder: Path,
    lang: Lang | None,
    *,
    seed: int = 0,
    per_type: int | None = None,
    style: Style = "mixed",
    rewrite: Callable[[Made, TaskChecks], Made] | None = None,
) -> Made:
    """Write train, val and test questions about `database` to `folder`; return them by split.

    All gold SQL is run first. With `lang` None the language is that of the names. `rewrite` returns the questions in
    other words, given the checks that they must pass. Raises DataError when no question can be made about the database
    or a file cannot be written.
    """
    catalog = read_catalog(database, lang)
    made = make_questions(catalog, seed=seed, per_type=per_type, style=style)
    everything = (question for questions in made.values() for question in questions)
    if isinstance(database, Path):
        verify(everything, catalog, database)
    else:  # whose collation may equate two names that the generator distinguishes
        wrong = {question.id for question, _ in problems(everything, catalog, database)}
        made = {split: [q for q in questions if q.id not in wrong] for split, questions in made.items()}
    if rewrite is not None:
        made = rewrite(made, _checks(catalog))
    _write(made, folder)
    return made


def _checks(catalog: Catalog) -> TaskChecks:
    def names_in(text: str) -> set[str]:
        return {entity.name for table in catalog.rows for entity, _ in catalog.names_in(table, text)}

    return TaskChecks(names_in, text_problem)


def _write(made: Made, folder: Path) -> None:
    if not any(made.values()):
        raise DataError("no question can be made about the database", hint="check that its fields are filled")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split, questions in made.items():
            write_parquet(folder / f"{split}.parquet", questions)
        write_jsonl(
            folder / "qa_dataset.jsonl",
            ((question, {"split": split}) for split, questions in made.items() for question in questions),
        )
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error}", hint="choose another folder with --out") from error


def natural_questions(lang: Lang) -> list[Question]:
    """Return the benchmark in `lang`. Its questions query the sample of that language, whatever a run trains on."""
    name = sample_path(lang).stem
    path = Path(__file__).with_name("natural") / f"{lang}.jsonl"
    return [question.model_copy(update={"database": name}) for question in load_questions(path)]


def named_database(_settings: Settings, name: str) -> Path:
    """Return the sample database that a question names. Raises DataError for an unknown name."""
    samples = {path.stem: path for path in map(sample_path, get_args(Lang))}
    if name not in samples:
        raise DataError(
            f"a question names the database {name!r}; there are only {' and '.join(samples)}",
            hint="leave its `database` empty and set database.path=FILE",
        )
    return samples[name]
