"""Ask a model questions about the database, and see every query, its rows, the
answer and, where there is a reference answer, the reward.

Without --model, the model is OPENAI_MODEL at the endpoint OPENAI_API_BASE, if
that is set, else the bundled SmolLM2-135M-Instruct after supervised
fine-tuning. The first time, fine-tuning takes minutes; it prints how many are
left."""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from sql_agent.cli.command import add_setting_flags, add_task_flags, add_words, new_parser, parse_words, positive
from sql_agent.cli.model_choice import NO_BENCHMARK, ChosenModel, check_model, describe_local, find_model, served
from sql_agent.cli.question_sets import evenly_spaced
from sql_agent.config.settings import Settings, read_sources, sources_shown
from sql_agent.errors import TrainingError
from sql_agent.questions.derived_evidence import with_derived_evidence
from sql_agent.questions.question_columns import ColumnMapping, language
from sql_agent.reward.rule_reward import FULL_REWARD
from sql_agent.runs.checkpoints import last_checkpoint
from sql_agent.runs.console import Ui
from sql_agent.runs.rollout_view import show_rollout
from sql_agent.runs.run_folder import UNTRAINED, LargestGain, largest_gain, settings_of_run
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.system.process import slow_imports
from sql_agent.tasks.task import load_task

_QUESTIONS = 4

_EXAMPLES = """
  sql-agent ask "How is hypothyroidism treated?"
  sql-agent ask -n 2                     two questions of the validation file
  sql-agent ask --run runs/quickstart    one question before and after training
  sql-agent ask --model runs/quickstart/checkpoints/step-000001/model
  OPENAI_API_BASE=http://localhost:8000/v1 sql-agent ask --model qwen "..."
"""


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser("ask", __doc__, _EXAMPLES)
    add = parser.add_argument
    add_words(parser, "QUESTION", "questions to ask, which are not graded, and any settings")
    add("--model", help="a run, a checkpoint, a Hugging Face folder or id; or, while OPENAI_API_BASE is set, the name "
        "of a model at that endpoint")  # fmt: skip
    add_setting_flags(parser, {"--lang": "lang"}, "language of prompts and sample; default: that of the question")
    one_of = parser.add_mutually_exclusive_group().add_argument
    one_of("--file", type=Path, help="questions to ask, parquet or JSONL; default: the validation file")
    add("--mapping", type=Path, metavar="TOML", help="file that names the columns of --file; default: data.mapping")
    one_of("--run", type=Path, metavar="FOLDER", help="ask a run's model before and after training, with the run's "
           "settings; default question: the validation question whose reward rose most")  # fmt: skip
    add("-n", "--questions", dest="count", type=positive, metavar="N", help="number of questions from the file, evenly "
        f"spaced (default: {_QUESTIONS})")  # fmt: skip
    add_task_flags(parser)
    arguments = parse_words(parser, argv)
    if not all(question.strip() for question in arguments.words):
        parser.error("a question is empty")
    if arguments.count and (arguments.words or arguments.run):
        parser.error("-n chooses questions from a file and cannot be combined with a QUESTION or --run")
    if arguments.file and arguments.words:
        parser.error("--file cannot be combined with a QUESTION")
    if arguments.mapping and not arguments.file:
        parser.error("--mapping needs --file")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse_arguments(argv)
    ui = Ui(wraps=True)
    settings = (_ask_before_and_after if arguments.run else _ask_one_model)(arguments, ui)
    ui.say(load_task(settings.task).disclaimer)
    return 0


def _ask_one_model(arguments: argparse.Namespace, ui: Ui) -> Settings:
    names = [word.removeprefix("model=") for word in arguments.overrides if word.startswith("model=")]
    named = [arguments.model, *names][-1]  # `model=NAME` takes precedence over `--model NAME`
    model = find_model(named or None, None, arguments.overrides, arguments.flags | NO_BENCHMARK, ui)
    settings = model.settings
    if arguments.words and "lang" not in settings.model_fields_set:
        settings = settings.model_copy(update={"lang": language(" ".join(arguments.words))})
        model = replace(model, settings=settings)
    where = f" at {model.remote.base_url}" if model.remote else ", served on this machine"
    task = load_task(settings.task)
    ui.say(f"Asking {model.name}{where}, database {task.database_shown(settings)}")
    for line in sources_shown(read_sources(arguments.overrides)):
        ui.say(line)
    task.prepare(settings, ui.say)
    if arguments.file:
        path = arguments.mapping or settings.data.mapping
        questions = task.read_questions(arguments.file, ColumnMapping.load(path) if path else None)
    else:
        questions = _own_questions(arguments.words, settings) or task.questions(settings, "val")
    if not arguments.words:
        questions = evenly_spaced(questions, arguments.count or _QUESTIONS)
    titles = [f"Question {number} of {len(questions)}" for number in range(1, len(questions) + 1)]
    rewards = _ask(questions, titles, model, ui)
    if rewards:
        ui.say(f"Mean reward {statistics.fmean(rewards):.3f} of {FULL_REWARD} on {_questions(len(rewards))}.")
    return settings


def _ask_before_and_after(arguments: argparse.Namespace, ui: Ui) -> Settings:
    run: Path = arguments.run
    settings = settings_of_run(run, arguments.overrides, arguments.flags)
    trained = arguments.model or last_checkpoint(run)
    before = settings.model_copy(update={"sft": settings.sft.model_copy(update={"steps": 0})})
    after = settings.model_copy(update={"model": str(trained)})
    for model in (before.model, after.model):
        check_model(model)
    ui.say(f"Asking {describe_local(before)}, then {trained}, both served on this machine")
    questions = _own_questions(arguments.words, settings)
    if not questions:
        gain = largest_gain(run)
        questions = [gain.question]
        ui.say(_why_this_question(gain))
    rewards = {
        title: _ask(questions, [title] * len(questions), ChosenModel(title, of_model), ui)
        for title, of_model in (("Before training", before), ("After training", after))
    }
    if all(rewards.values()):
        first, last = (f"{statistics.fmean(of_model):.3f}" for of_model in rewards.values())
        training = "supervised fine-tuning and GRPO" if settings.sft.steps else "GRPO"
        ui.say(f"Reward {first} before and {last} after {training}, of {FULL_REWARD}.")
    return settings


def _why_this_question(gain: LargestGain) -> str:
    chosen = f"The question is not a random one: of the {gain.questions} validation questions "
    if gain.last > gain.first:
        before = "before training" if gain.first_step == UNTRAINED else f"at step {gain.first_step}"
        first, last = f"{gain.first:.3f} {before}", f"{gain.last:.3f} at step {gain.last_step}"
        return f"{chosen}its reward rose most, from {first} to {last}."
    return (
        f"{chosen}no reward rose from step {gain.first_step} to step {gain.last_step} of GRPO; "
        f"the reward of this question fell least and is the highest, {gain.last:.3f}."
    )


def _own_questions(texts: Sequence[str], settings: Settings) -> list[Question]:
    return [Question(id=f"own-{n}", question=text, answer="", lang=settings.lang) for n, text in enumerate(texts, 1)]


def _ask(questions: Sequence[Question], titles: Sequence[str], model: ChosenModel, ui: Ui) -> list[float]:
    """Ask each question, print its rollout, and return the rewards of the questions with a reference answer."""
    with slow_imports():
        from sql_agent.agent.rollout import ask_all  # noqa: PLC0415

    settings, task = model.settings, load_task(model.settings.task)
    records: list[RolloutRecord] = []

    def show(title: str, record: RolloutRecord) -> None:
        records.append(record)
        ui.console.rule(Text(title))
        show_rollout(record, ui.console)

    with task.databases(settings) as databases:
        databases.check(q.database for q in questions)
        # Without a reference answer nothing is graded, and no judge is made, because it might need an API key.
        judge = task.judge(settings, alone=True) if any(q.answer for q in questions) else None
        if judge is not None and judge.name == "facts":
            questions = with_derived_evidence(questions, databases, task.words)
        asked = list(zip(titles, questions, strict=True))
        with served(model, databases, ui) as endpoint, ui.status("Asking"):
            asyncio.run(ask_all(asked, task, endpoint, databases, judge, settings, concurrency=1, on_record=show))
    ui.console.rule()
    if failed := sum(record.dropped is not None for record in records):
        raise TrainingError(
            f"{failed} of {_questions(len(records))} could not be asked or graded",
            hint="the lines `Failed` above say why; correct the causes and ask again",
        )
    return [record.reward.total for record in records if record.reward]


def _questions(count: int) -> str:
    return f"{count} question{'' if count == 1 else 's'}"
