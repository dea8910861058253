"""Read schema, keys and values of a database, and write NAME.toml: its tables,
which column names a row, the kind of each column, the links between tables, and
ways to ask for each column. Each guess that matters is printed with its reason.
Where TEACHER_MODEL is set, this model proposes labels, units and wordings; it
sees up to five short values of each column. After an interrupt the same command
continues. Correct the file, then train with --task NAME.toml."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from sql_agent.cli.command import DATABASE, database, new_parser
from sql_agent.cli.data_teacher import ask_teacher, check_out, say_some
from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import load_settings
from sql_agent.errors import DataError
from sql_agent.questions.teacher import ProgressLog
from sql_agent.reward.factory import teacher_client
from sql_agent.runs.console import Ui
from sql_agent.schemas import Lang
from sql_agent.system.files import write_text
from sql_agent.tasks.described.description import Description, as_toml, read_description
from sql_agent.tasks.described.guess_description import guess_description
from sql_agent.tasks.described.proposal import LEAST_TOKENS, Proposed, parts_of, propose, with_proposals
from sql_agent.tasks.described.table_rows import DatabaseRows, read_database

_EXAMPLES = """
  sql-agent init shop.db
  sql-agent init shop.db --out described/shop.toml --lang en
  sql-agent init mysql+pymysql://reader@127.0.0.1/shop
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("init", __doc__, _EXAMPLES)
    add = parser.add_argument
    add("database", type=database, metavar="DB", help=DATABASE)
    add("--out", type=Path, metavar="NAME.toml", help="file to write (default: the database's name)")
    add("--lang", choices=get_args(Lang), help="language of the questions (default: by the texts)")
    arguments = parser.parse_args(argv)
    source, ui = arguments.database, Ui(wraps=True)
    out: Path = arguments.out or Path(f"{source.stem}.toml")
    check_out(out, source, ".toml")
    if out.exists():
        raise DataError(f"{out} exists already", hint="remove it, or name another file with --out")
    path = None
    if isinstance(source, Path):
        absolute, folder = source.resolve(), out.resolve().parent
        path = absolute.relative_to(folder).as_posix() if absolute.is_relative_to(folder) else str(absolute)
    rows = read_database(source)
    description = guess_description(rows, path, arguments.lang, ui.say)
    if TeacherSettings().model:
        description = _proposed(description, rows, out.with_suffix(".proposals.jsonl"), ui)
    else:
        ui.say("No TEACHER_MODEL is set: labels and wordings are guesses")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, as_toml(description))
    read_description(out)
    columns = sum(len(table.columns) for table in description.tables.values())
    ui.say(f"{out}: {len(description.tables)} tables, {columns} columns, {len(description.links)} links")
    if path is None:
        ui.say("The database is on a server: set DATABASE_URL, because the file contains no address")
    ui.say(f"Correct it, then: sql-agent train --task {out} --ci-fast")
    return 0


def _proposed(description: Description, rows: DatabaseRows, log_path: Path, ui: Ui) -> Description:
    """Return the description with the teacher's proposals, and print how many are used.

    The teacher is not asked again for replies that the log `log_path` has.
    """
    settings, parts = load_settings(), list(parts_of(description, rows))
    limits = settings.judge.model_copy(update={"max_tokens": max(settings.judge.max_tokens, LEAST_TOKENS)})
    client = teacher_client(limits, TeacherSettings())
    ui.say(f"{client.model} proposes labels and wordings; it sees up to five short values of each column")
    log = ProgressLog(log_path, Proposed)
    run = ask_teacher(
        "Asking for labels and wordings",
        [parts],
        log,
        partial(propose, client=client),
        settings,
        ui,
        digest=lambda part: part.digest(client),
        what="requests",
    )
    replies = [(part, log.entries[part.id].proposal) for part in parts if part.id in log.entries]
    description, used, dropped = with_proposals(description, replies)
    ui.say(f"Used: {used['labels']} labels, plurals and units, {used['wordings']} wordings; {log_path} lists them all")
    if dropped:
        reasons = ", ".join(f"{reason} {count}" for reason, count in dropped.most_common())
        ui.say(f"  {dropped.total()} proposals are not used: {reasons}")
    if run.failed:
        ui.say(f"  {len(run.failed)} requests failed; their columns keep the guesses:")
        say_some((f"  {name}: {error}" for name, error in run.failed.items()), ui)
    return description
