"""Ask a model a few questions end to end and show every query, its rows, the answer and the reward."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sql_agent.agent.agent import ModelEndpoint
from sql_agent.agent.rollout import run_rollout
from sql_agent.config.default_paths import question_file
from sql_agent.config.settings import EndpointSettings, Settings, load_settings
from sql_agent.data.medical.prepare import ensure_sample
from sql_agent.data.question_files import load_questions
from sql_agent.database import SqliteDatabase
from sql_agent.database.factory import database_from_settings
from sql_agent.errors import ConfigError, TrainingError
from sql_agent.reward.factory import judge_from_settings
from sql_agent.rl.batching import evenly_spaced
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.system.imports import without_gc
from sql_agent.tracking.console import Ui

_ROWS_SHOWN = 5


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line of sqlagent_test.py."""
    parser = argparse.ArgumentParser(
        description="Ask a few questions end to end. The model is the one behind OPENAI_API_BASE when that is set "
        "(with OPENAI_MODEL and OPENAI_API_KEY), otherwise --model, otherwise the embedded one after supervised "
        "fine-tuning. For research on retrieval, not medical advice."
    )
    parser.add_argument("--model", help="a Hugging Face folder, such as runs/NAME/checkpoints/step-000020/model")
    parser.add_argument("--lang", choices=("en", "zh"))
    parser.add_argument("--file", type=Path, help="questions to ask, parquet or JSONL; default: the sample's val split")
    parser.add_argument("-n", "--questions", type=int, default=4, help="how many to ask (default 4)")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    return parser.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Ask, print, and return 0; 2 when a question could not be asked or graded."""
    arguments = parse_arguments(argv)
    flags = {key: value for key in ("model", "lang") if (value := getattr(arguments, key))}
    settings = load_settings(arguments.overrides, flags=flags)
    console = Console(highlight=False)
    ensure_sample(settings, Ui(console).say)
    database = database_from_settings(settings)
    questions = evenly_spaced(load_questions(arguments.file or question_file(settings, "val")), arguments.questions)
    with _endpoint(settings, database, console) as endpoint:
        records = asyncio.run(_ask(questions, endpoint, database, settings, console))
    rewards = [r.reward.total for r in records if r.reward]
    if len(rewards) < len(records):
        raise TrainingError(f"{len(records) - len(rewards)} of {len(records)} questions were dropped, see above")
    console.print(f"Mean reward {sum(rewards) / len(rewards):.3f} on {len(rewards)} questions (0–1.1).")
    console.print("For research on retrieval, not medical advice.")
    return 0


async def _ask(
    questions: Sequence[Question],
    endpoint: ModelEndpoint,
    database: SqliteDatabase,
    settings: Settings,
    console: Console,
) -> list[RolloutRecord]:
    judge = judge_from_settings(settings, alone=True)
    records = []
    for question in questions:
        records.append(await run_rollout(question, endpoint, database, judge, settings))
        show(records[-1], console)
    return records


@contextmanager
def _endpoint(settings: Settings, database: SqliteDatabase, console: Console) -> Iterator[ModelEndpoint]:
    """The configured endpoint, or a local policy that is served while inside."""
    given = EndpointSettings()
    agent = settings.agent
    if given.base_url and not settings.model:
        if not given.model:
            raise ConfigError("OPENAI_API_BASE is set but no model is named", hint="set OPENAI_MODEL")
        console.print(f"Asking {given.model} at {given.base_url}")
        key = given.api_key.get_secret_value() if given.api_key else "unused"
        yield ModelEndpoint(given.base_url, given.model, key, agent.val_temperature, agent.val_top_p)
        return
    # Only here, because asking another endpoint needs no torch.
    with without_gc():
        from sql_agent.backends.local.policy_trainer import serve_for_questions  # noqa: PLC0415
        from sql_agent.backends.serving.server import MODEL_NAME  # noqa: PLC0415

    service = serve_for_questions(settings, database, Ui(console))
    try:
        yield ModelEndpoint(service.base_url, MODEL_NAME, "unused", agent.val_temperature, agent.val_top_p)
    finally:
        service.close()


def show(record: RolloutRecord, console: Console) -> None:
    """Print one rollout: question, every query with its rows or error, answer, reference and reward parts."""
    console.rule(escape(record.question.question))
    for call in record.calls:
        console.print(f"SQL     {escape(call.sql)}", soft_wrap=True)
        console.print(_rows(call.answer.columns, call.answer.records) if call.answer.error is None else "", end="")
        if call.answer.error is not None:
            console.print(
                f"error   {escape(call.answer.error.kind)}: {escape(call.answer.error.message)}", soft_wrap=True
            )
    console.print(
        f"Answer  {escape(record.answer) or '(none)'}  ({record.outcome}, {record.turns} turns)", soft_wrap=True
    )
    console.print(f"Wanted  {escape(record.question.answer)}", soft_wrap=True)
    if record.reward is None:
        console.print(f"Dropped {escape(str(record.dropped))}", soft_wrap=True)
        return
    parts = record.reward
    criteria = ", ".join(f"{name} {value:.2f}" for name, value in parts.criteria.items())
    console.print(
        f"Reward  {parts.total:.3f} = rule {parts.rule:.1f} + judge {parts.judge:.3f} ({parts.judge_name}: {criteria})",
        soft_wrap=True,
    )


def _rows(columns: Sequence[str], records: Sequence[Sequence[object]]) -> Table:
    table = Table(*map(escape, columns), caption=f"{len(records)} rows" if len(records) > _ROWS_SHOWN else None)
    for record in records[:_ROWS_SHOWN]:
        table.add_row(*("NULL" if cell is None else escape(str(cell)) for cell in record))
    return table
