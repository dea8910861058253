"""Measure models on question files, with the agent, the tool and the reward of
training: accurate answers, judge score, refusals, queries, tokens, latency and
cost, with 95 % bootstrap intervals. Without --questions, the questions are the
test split and the natural benchmark.

A MODEL is a run (folder or name), a checkpoint, a Hugging Face folder or id,
or, while OPENAI_API_BASE is set, the name of a model at that endpoint; default:
OPENAI_MODEL if OPENAI_API_BASE is set, else the bundled model. Folders are
served with vLLM where there is a GPU, else on the CPU."""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sql_agent.cli.command import add_setting_flags, add_task_flags, add_words, new_parser, parse_words, positive, share
from sql_agent.cli.model_choice import ChosenModel, find_model, served
from sql_agent.cli.question_sets import Sets, question_sets, without_overlap
from sql_agent.config.endpoints import EndpointSettings
from sql_agent.config.settings import CODE_SETTINGS, load_settings, public_dump, read_sources, sources_shown
from sql_agent.errors import DataError, ResumeError, TrainingError
from sql_agent.evaluation.folder import About, EvaluationFolder
from sql_agent.evaluation.measures import in_samples, price_of
from sql_agent.evaluation.results import (
    Evaluation,
    Rollouts,
    Votes,
    check_predictions,
    final_answers,
    measure,
    print_report,
    report_on,
    votes_of,
    write_predictions,
    write_results,
)
from sql_agent.evaluation.statistics import check_comparable
from sql_agent.questions.derived_evidence import with_derived_evidence
from sql_agent.runs.console import Ui
from sql_agent.runs.run_folder import installed_versions
from sql_agent.schemas import RolloutRecord
from sql_agent.system.files import check_writable, timestamped_folder
from sql_agent.system.process import INTERRUPTED, slow_imports
from sql_agent.tasks.task import load_task

_FEW = 10  # without a terminal: minimum number of answers between two progress lines
# A finished evaluation or a model to evaluate, with the questions and the description of the evaluation.
_Planned = tuple[EvaluationFolder | ChosenModel, Sets, About]

_EXAMPLES = """
  sql-agent evaluate --run quickstart -n 50
  OPENAI_API_BASE=http://localhost:8000/v1 sql-agent evaluate qwen
  sql-agent evaluate trained --questions my.jsonl --mapping my.toml
  sql-agent evaluate --resume runs/eval-20261122-101500
  sql-agent evaluate --compare runs/eval-20261122-101500 runs/quickstart
  sql-agent evaluate --task spider --data-dir spider MODEL --predictions out.sql
"""


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser("evaluate", __doc__, _EXAMPLES)
    add = parser.add_argument
    add_words(parser, "MODEL", "models to evaluate in turn, and any settings")
    add("--model", action="append", default=[], metavar="MODEL", help="a further MODEL")
    add("--run", type=Path, metavar="RUN", help="evaluate the last checkpoint of this run; with a MODEL: the run that "
        "trained it, whose settings are used")  # fmt: skip
    add("--compare", action="store_true", help="test each MODEL against the first; a MODEL may be the folder of an "
        "earlier evaluation")  # fmt: skip
    add("--questions", type=Path, action="append", default=[], metavar="FILE", help="questions to ask, parquet or "
        "JSONL; may be repeated: one set for each file")  # fmt: skip
    add("--mapping", type=Path, metavar="TOML", help="file that names the columns of --questions")
    add("-n", dest="count", type=positive, metavar="N", help="ask N questions of each set, evenly spaced over its "
        "types; default: all")  # fmt: skip
    add("--samples", type=positive, default=1, metavar="K", help="ask each question K times, at agent.val_temperature, "
        "or 1 if nothing sets it; adds pass@1, pass@k, pass^k, and the vote")  # fmt: skip
    add("--refuse-below", type=share, metavar="SHARE", help="the vote is a refusal if a smaller share of the "
        "samples agrees; default: the share with the best reliability score RS(10) on these questions")  # fmt: skip
    add("--concurrency", type=positive, metavar="N", help="concurrent questions; default: runner.concurrency")
    add_setting_flags(parser, {"--lang": "lang"}, "language of the sample and its questions")
    add("--predictions", type=Path, metavar="FILE", help="write the answers as the public evaluators of text-to-SQL "
        "read them: on each line a statement, a tab and its database")  # fmt: skip
    add_task_flags(parser)
    overlap = partial(parser.add_mutually_exclusive_group().add_argument, dest="overlap", action="store_const")
    overlap("--drop-overlap", const="drop", default="refuse", help="leave out the run's training questions, and those "
            "about the same rows; by default they end the evaluation")  # fmt: skip
    overlap("--allow-overlap", const="allow", help="ask these questions, too")
    add("--resume", type=Path, metavar="FOLDER", help="continue an interrupted evaluation, and ask its failed "
        "questions again")  # fmt: skip
    arguments = parse_words(parser, argv)
    arguments.models = arguments.model + arguments.words
    if arguments.mapping and not arguments.questions:
        parser.error("--mapping needs --questions")
    if arguments.compare and len(arguments.models) < 2:
        parser.error("--compare needs two MODELs or more")
    trusted = [item for item in arguments.overrides if item.partition("=")[0] in CODE_SETTINGS]
    asked = (arguments.models, arguments.overrides != trusted, arguments.run, arguments.compare, arguments.questions,
             arguments.count, arguments.overlap != "refuse", arguments.samples > 1, arguments.flags)  # fmt: skip
    if arguments.resume and (any(asked) or arguments.refuse_below is not None):
        parser.error("--resume reads all options from its folder, except --concurrency and --predictions")
    if arguments.refuse_below is not None and arguments.samples == 1:
        parser.error("--refuse-below needs --samples")
    if arguments.predictions and (len(arguments.models) > 1 or len(arguments.questions) > 1):
        parser.error("--predictions needs one model and one set of questions")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse_arguments(argv)
    ui = Ui(wraps=True)
    folders = [_opened(arguments.resume, arguments)] if arguments.resume else _prepare(arguments, ui)
    if arguments.resume and arguments.predictions:
        check_predictions(arguments.predictions, folders[0].about().settings["task"])
    evaluations: list[Evaluation] = []
    rollouts: list[Rollouts] = []
    votes: list[Votes] = []
    for folder in folders:
        if folder.path not in map(Path, arguments.models):  # a MODEL can be the folder of a finished evaluation
            try:
                with folder.lock():  # the lock keeps other processes from resuming the evaluation
                    _ask(folder, arguments.concurrency, ui)
            except KeyboardInterrupt:
                ui.say(f"Interrupted. To continue: sql-agent evaluate --resume {folder.path}")
                return INTERRUPTED
        about = folder.about()
        price = price_of(about.remote_model) if about.remote_model else None
        votes.append(votes_of(folder))
        evaluations.append(measure(folder, votes[-1], price=price, seed=about.settings["seed"]))
        rollouts.append(folder.records())
        _write_one(folder, evaluations[-1], rollouts[-1], ui, shown=len(folders) == 1)
    seed = evaluations[0].about.settings["seed"]
    if len(folders) > 1:
        report = report_on(evaluations, rollouts, compared=arguments.compare, seed=seed)
        print_report(report, ui.console)
        if arguments.compare:
            runs_dir = Path(evaluations[0].about.settings["runs_dir"])
            paths = write_results(timestamped_folder(runs_dir, "compare-"), report, rollouts)
            ui.say(f"Comparison: {paths['html']}   Table to paste: {paths['md']}")
    if arguments.predictions:
        write_predictions(arguments.predictions, final_answers(folders[0], evaluations[0], votes[0]))
        ui.say(f"Predictions: {arguments.predictions}")
    ui.say(load_task(evaluations[0].about.settings["task"]).disclaimer)
    for folder, records in zip(folders, rollouts, strict=True):
        if dropped := [record.dropped for record in records.values() if record.dropped]:
            raise TrainingError(
                f"{len(dropped)} of {len(records)} questions could not be asked or graded, such as: {dropped[0]}",
                hint=f"ask them again: sql-agent evaluate --resume {folder.path}",
            )
    return 0


def _prepare(arguments: argparse.Namespace, ui: Ui) -> list[EvaluationFolder]:
    """Find and check all models and questions, and return the folder of each evaluation."""
    sources = read_sources(arguments.overrides)
    for line in sources_shown(sources):
        ui.say(line)
    given = any("agent.val_temperature" in source.values for source in sources)
    planned: list[_Planned] = []
    for named in arguments.models or [None]:
        if arguments.compare and EvaluationFolder.is_one(Path(named)):
            folder = _opened(Path(named), arguments)
            asked, answered = sum(map(len, folder.sets().values())), len(folder.records())
            if answered < asked:
                raise DataError(
                    f"{folder.path} has answers to {answered} of {asked} questions",
                    hint=f"finish it first: sql-agent evaluate --resume {folder.path}",
                )
            planned.append((folder, folder.sets(), folder.about()))
        else:
            model = find_model(named, arguments.run, arguments.overrides, arguments.flags, ui)
            if arguments.samples > 1 and not given and model.settings.agent.val_temperature == 0:
                agent = model.settings.agent.model_copy(update={"val_temperature": 1.0})
                remote = replace(model.remote, temperature=1.0) if model.remote else None
                model = replace(model, settings=model.settings.model_copy(update={"agent": agent}), remote=remote)
            if arguments.predictions:
                check_predictions(arguments.predictions, model.settings.task)
            planned.append((model, *_what_to_ask(model, arguments, ui)))
    if arguments.compare:
        _check_comparable(planned)
    return [
        each
        if isinstance(each, EvaluationFolder)
        else EvaluationFolder.create(timestamped_folder(each.settings.runs_dir, "eval-"), about, sets)
        for each, sets, about in planned
    ]


def _check_comparable(planned: Sequence[_Planned]) -> None:
    """Raise a SqlAgentError unless one judge grades all models, and each model shares questions with the first."""
    check_comparable([about for _, _, about in planned])
    asked = [{(name, q.id, q.question, q.answer) for name, of in sets.items() for q in of} for _, sets, _ in planned]
    for (_, _, about), questions in zip(planned, asked, strict=True):
        if questions.isdisjoint(asked[0]):
            raise DataError(
                f"{planned[0][2].model} and {about.model} have no question in common",
                hint="evaluate both models on the same question files",
            )


def _what_to_ask(model: ChosenModel, arguments: argparse.Namespace, ui: Ui) -> tuple[Sets, About]:
    settings, task = model.settings, load_task(model.settings.task)
    check_writable(settings.runs_dir, "runs_dir")
    task.prepare(settings, ui.say)
    judge = task.judge(settings, alone=True)
    sets = question_sets(arguments.questions, arguments.mapping, arguments.count, task, settings)
    with task.databases(settings) as databases:
        databases.check(question.database for questions in sets.values() for question in questions)
        if judge.name == "facts":
            sets = {name: with_derived_evidence(of, databases, task.words) for name, of in sets.items()}
    if model.run:
        sets = without_overlap(sets, task, settings, run=model.run, overlap=arguments.overlap, ui=ui)
    sets = {name: in_samples(questions, arguments.samples) for name, questions in sets.items()}
    about = About(
        model=model.name,
        base_url=model.remote.base_url if model.remote else None,
        remote_model=model.remote.model if model.remote else None,
        run=str(model.run) if model.run else None,
        judge=judge.identity,
        version=installed_versions().get("sql-agent-trainer", "not installed"),
        started=f"{datetime.now(tz=UTC):%Y-%m-%d %H:%M:%S} UTC",
        settings=public_dump(settings),
        samples=arguments.samples,
        refuse_below=arguments.refuse_below,
    )
    return sets, about


def _opened(path: Path, arguments: argparse.Namespace) -> EvaluationFolder:
    folder = EvaluationFolder.open(path)
    folder.check_trusted(read_sources(arguments.overrides, flags=arguments.flags))
    return folder


def _ask(folder: EvaluationFolder, concurrency: int | None, ui: Ui) -> None:
    about = folder.about()
    done = {key for key, record in folder.records().items() if record.dropped is None}
    questions = [(name, q) for name, of in folder.sets().items() for q in of]
    waiting = [(name, question) for name, question in questions if (name, question.id) not in done]
    if not waiting:
        return
    model = _model_of(about)
    settings, task = model.settings, load_task(model.settings.task)
    at_once = concurrency or settings.runner.concurrency
    samples = f"{about.samples} samples at temperature {settings.agent.val_temperature:g}, " * (about.samples > 1)
    ui.say(f"Evaluating {about.model}{f' at {about.base_url}' if about.base_url else ''}: {len(waiting)} of "
           f"{len(questions)} questions to ask, {samples}{at_once} at once, "
           f"judge {about.judge.partition(':')[0]}, database {task.database_shown(settings)}")  # fmt: skip
    ui.say(f"Records: {folder.path}")
    with slow_imports():
        from sql_agent.agent.rollout import ask_all  # noqa: PLC0415

    judge = task.judge(settings, alone=True)
    if judge.identity != about.judge:
        raise ResumeError(
            f"{folder.path} was graded by the judge {about.judge}, and the judge is {judge.identity} now",
            hint="start a new evaluation, or restore the judge's settings and the version of this program",
        )
    with (
        task.databases(settings) as databases,
        served(model, databases, ui) as endpoint,
        ui.progress(f"Asking {about.model}", len(waiting)) as on_done,
    ):
        answered, started = 0, time.monotonic()

        def keep(name: str, record: RolloutRecord) -> None:
            nonlocal answered
            answered += 1
            folder.append(name, record)
            on_done(answered, f"{answered / (time.monotonic() - started):.1f} questions/s")
            if not ui.console.is_interactive and answered % max(_FEW, len(waiting) // 10) == 0:
                ui.say(f"  {answered} of {len(waiting)} answered")

        gc.freeze()  # otherwise garbage collection of all imported modules takes a tenth of the processor time
        asyncio.run(ask_all(waiting, task, endpoint, databases, judge, settings, concurrency=at_once, on_record=keep))


def _model_of(about: About) -> ChosenModel:
    settings, run = load_settings(flags=about.settings), Path(about.run) if about.run else None
    if about.base_url is None or about.remote_model is None:
        return ChosenModel(about.model, settings, run=run)
    given = EndpointSettings()
    if given.base_url != about.base_url:
        raise ResumeError(
            f"{about.model} answered at {about.base_url}, but OPENAI_API_BASE is now {given.base_url or 'not set'}",
            hint=f"set OPENAI_API_BASE={about.base_url}",
        )
    remote = given.endpoint(about.remote_model, settings.agent.val_temperature)
    return ChosenModel(about.model, settings, remote, run)


def _write_one(folder: EvaluationFolder, evaluation: Evaluation, records: Rollouts, ui: Ui, *, shown: bool) -> None:
    report = report_on([evaluation], [records], compared=False, seed=evaluation.about.settings["seed"])
    paths = write_results(folder.path, report, [records])
    if shown:
        print_report(report, ui.console)
        ui.say("In brackets: 95 % bootstrap intervals.")
    ui.say(f"Page: {paths['html']}   Table to paste: {paths['md']}")
