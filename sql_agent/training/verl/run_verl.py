"""Start verl's process (`verl_main.py`), run the rollouts that it requests over HTTP, and follow it to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from sql_agent.config.settings import Settings
from sql_agent.errors import GpuMemoryError, TrainingError
from sql_agent.rollouts.llm_proxy import ServedModel
from sql_agent.rollouts.processes import RunProcesses
from sql_agent.rollouts.scheduler import RetryingScheduler
from sql_agent.runs.console import TextTable, Ui, print_table
from sql_agent.runs.run_folder import SFT, UNTRAINED
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.system.files import GrowingFile
from sql_agent.system.process import die_with_parent, process_start
from sql_agent.system.resources import how_killed, memory_kills
from sql_agent.system.servers import bind, http_url, new_token, served, uvicorn_server
from sql_agent.training.algorithm import TrainingAlgorithm
from sql_agent.training.verl.config import own_options, verl_environment, verl_options
from sql_agent.training.verl.interprocess import (
    SFT_RESULT,
    START_VARIABLE,
    UNTRAINED_RECORDS,
    end_of_start_part,
    token_environment,
    typed,
    write_dataset,
)
from sql_agent.training.verl.logs import EngineMonitor, last_error, last_line, ran_out_in_update, step_metrics
from sql_agent.training.verl.memory import card_of, smaller_micro_batches
from sql_agent.training.verl.rollout_server import RolloutApp
from sql_agent.training.verl.warm_python import PYTHON_VARIABLE

_POLL_S = 0.2
_OPTIONS, _START = "verl.json", "start.jsonl"  # in the run's folder
_LAST_WORD_S = 1.0  # time limit for verl to end after its rollouts were lost
_GRACE_S = 20.0  # time limit for a process to end after SIGINT
TRAINER_MODULE = "sql_agent.training.verl.verl_main"
_SFT_MODULE = "sql_agent.training.verl.sft"
_UNTRAINED_MODULE = "sql_agent.training.verl.untrained"


class VerlGrpo(TrainingAlgorithm):
    """The algorithm of the backend `verl`: runs verl's trainer in another process, which requests rollouts."""

    stopping = "Stopping; the last checkpoint stays. Interrupt again to stop at once."

    def __init__(self, settings: Settings, log: RunLog, ui: Ui, processes: RunProcesses, *, resume: bool) -> None:
        super().__init__(settings, log, ui, processes, resume=resume)
        self._verl_log = log.folder / "verl.log"
        self._token = new_token()  # bearer token of the rollout server and of the policy's endpoints
        self._starting = contextlib.ExitStack()  # a status line, shown until rollouts can be scheduled

    async def _run(self, train: Sequence[Question], val: Sequence[Question]) -> None:
        parts = (self._log.folder / _START).resolve()
        parts.unlink(missing_ok=True)
        os.environ[START_VARIABLE] = str(parts)
        end_of_start_part("questions, checks, store, runners")
        write_dataset(train, self._log.folder / "data" / "train.parquet", "train")
        write_dataset(val, self._log.folder / "data" / "val.parquet", "val")
        app = RolloutApp(self._open_scheduler, split_turns=own_options(self._settings).level == "transition")
        sock = bind(self._settings.verl.host)
        async with served(uvicorn_server(app, self._token), sock):
            await self._train(http_url(sock))

    async def _open_scheduler(self, addresses: list[str]) -> RetryingScheduler:
        """Start the LLM proxies, connect them to the policy's endpoints at the URLs `addresses`, and start rollouts."""
        models = [
            ServedModel(f"policy-{index}", address, api_key=self._token) for index, address in enumerate(addresses)
        ]
        log_files = [self._log.folder / f"proxy-{index}.log" for index in range(self._settings.runner.n_proxies)]
        try:
            proxies = await self._processes.start_proxies(self.store_address, models, log_files)
            end_of_start_part("proxies")
            routes = [
                self._route(proxies[index % len(proxies)], f"policy-{index % len(addresses)}")
                for index in range(max(len(addresses), len(proxies)))
            ]
            scheduler = await self._start_rollouts(routes)
        except TrainingError as error:
            self._fail(error)  # set before verl gets the error reply and ends; otherwise verl's end would be reported
            raise
        self._starting.close()
        end_of_start_part("preflight")
        print_table(_start_table(self._log.folder / _START), self._ui.console)
        return scheduler

    async def _fine_tune(self, verl: asyncio.subprocess.Process) -> None:
        """Run supervised fine-tuning in another process while `verl` starts, unless a resumed run has its result.

        With `train.validate_untrained`, another process asks the untrained model the validation questions first. Raises
        TrainingError if a process fails.
        """
        run = self._log.folder
        if self._settings.sft.steps == 0 or (run / SFT_RESULT).exists():
            return
        for earlier in (run / SFT, run / UNTRAINED_RECORDS):
            earlier.unlink(missing_ok=True)
        if self._settings.train.validate_untrained:
            self._ui.say("Validating the untrained model")
            records = GrowingFile(run / UNTRAINED_RECORDS)

            def count() -> None:
                for line in records.new():
                    self._monitor.answered(RolloutRecord.model_validate_json(line))

            what, off = "the validation of the untrained model", "train.validate_untrained=false"
            if not await self._finished(_UNTRAINED_MODULE, verl, count, what=what, off=off):
                return
            self._monitor.close_validation(UNTRAINED)
        losses = GrowingFile(run / SFT)

        def show() -> None:
            for line in losses.new():
                self._ui.sft(**json.loads(line))

        if await self._finished(_SFT_MODULE, verl, show, what="supervised fine-tuning", off="sft.steps=0"):
            self._log.track_sft()

    async def _finished(
        self, module: str, verl: asyncio.subprocess.Process, poll: Callable[[], None], *, what: str, off: str
    ) -> bool:
        """Run `python -m module` with this run's folder, call `poll` meanwhile, and return True when it has ended.

        When verl ends, a signal comes or the run fails, end the process early and return False; `_follow` reports the
        reason. Raises TrainingError when the process fails; `what` is its name in the error, and `off` the setting
        without which it does not run.
        """
        log = self._log.folder / f"{module.rpartition('.')[2]}.log"
        with log.open("ab") as output:
            process = await self._start_module(module, self._log.folder, stdout=output, stderr=output)
        try:
            code = None
            while code is None and verl.returncode is None and not self._stop.is_set() and not self._monitor.failure:
                code = process.returncode  # read before `poll`, so that the last lines are not missed
                poll()
                await asyncio.sleep(_POLL_S)
        finally:
            await _end(process)
        if code:
            raise TrainingError(
                f"{what} ended with exit code {code}: {last_error(log)}",
                hint=f"see {log} and repair the cause, or set {off} to train without {what}",
            )
        return code == 0

    async def _start_module(self, module: str, *arguments: Path | str, **streams: Any) -> asyncio.subprocess.Process:
        """Start `python -m module` in a new session; on Linux the process also ends when this process dies."""
        return await asyncio.create_subprocess_exec(
            os.environ.get(PYTHON_VARIABLE, sys.executable), "-m", module, *map(str, arguments),
            env=os.environ | verl_environment() | token_environment(self._token),
            start_new_session=True, preexec_fn=die_with_parent, **streams,
        )  # fmt: skip

    async def _train(self, rollout_server: str) -> None:
        """Run verl's process, which starts Ray during supervised fine-tuning, then waits for the fine-tuned model."""
        run = self._log.folder
        metrics = run / f"verl-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
        options = {
            "options": verl_options(
                self._settings, run=run.resolve(), rollout_server=rollout_server, resume=self._resume
            ),
            "sft_result": str((run / SFT_RESULT).resolve()) if self._settings.sft.steps else None,
            "overrides": typed(self._settings.verl.config),
            "environment": verl_environment()
            | {"VERL_FILE_LOGGER_PATH": str(metrics.resolve()), START_VARIABLE: os.environ[START_VARIABLE]},
        }
        self._card = card_of(self._settings)  # measured before verl fills the GPU's free memory
        path = run / _OPTIONS
        path.write_text(json.dumps(options, indent=2), "utf-8")
        self._ui.say(f"Starting verl; its output goes to {self._verl_log}")
        engine = EngineMonitor(self._verl_log)
        with self._verl_log.open("ab") as output:
            process = await self._start_module(TRAINER_MODULE, path, stdout=output, stderr=output)
        try:
            await self._fine_tune(process)
            if self._stop.is_set():
                return
            with self._starting:
                self._starting.enter_context(self._ui.status("Starting verl: Ray, the trainer, vLLM, the proxies"))
                await self._follow(process, metrics, engine)
        finally:
            await _end(process)

    async def _follow(self, process: asyncio.subprocess.Process, metrics: Path, engine: EngineMonitor) -> None:
        """Write the metrics of each step that verl reports, until verl ends or a signal comes.

        Raises TrainingError when verl or vLLM fails, or when the monitor has set `failure`.
        """
        reported, kills = GrowingFile(metrics), memory_kills()
        while True:
            code = process.returncode  # read before the metrics, so that the last metrics of verl are not missed
            self._close_reported(reported)
            if self._monitor.failure is not None:
                # If verl dies, its model servers die too, so the lost rollouts may be noticed before verl's end.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _LAST_WORD_S)
                if (process.returncode or 0) < 0:
                    raise self._killed(process.returncode or 0, kills)
                raise self._monitor.failure
            if self._stop.is_set():
                return
            if code is not None:
                break
            if cause := engine.failure():
                raise TrainingError(f"vLLM failed, and verl waits for vLLM: {cause}", hint=self._advice(cause))
            await self._show_stall()
            await asyncio.sleep(_POLL_S)
        if code < 0:
            raise self._killed(code, kills)
        if code:
            raise self._error(code)

    def _error(self, code: int) -> TrainingError:
        cause = last_error(self._verl_log)
        said, hint = f"verl ended with exit code {code}: {cause}", self._advice(cause)
        if not ran_out_in_update(self._verl_log):
            return TrainingError(said, hint=hint)
        options = json.loads((self._log.folder / _OPTIONS).read_text("utf-8"))["options"]
        return GpuMemoryError(said, hint=hint, smaller=smaller_micro_batches(self._settings, options, self._card))

    def _advice(self, cause: str) -> str:
        if "out of memory" in cause:
            return (
                f"see {self._verl_log}; end other programs on the GPU, or start again with a smaller verl.gpu_memory_gb"
            )
        return f"see {self._verl_log}, repair the cause, then start the run again"

    def _killed(self, code: int, kills: int) -> TrainingError:
        """Return the error for a killed verl; it replaces the monitor's failure, which the kill has caused."""
        hint = f"see its log {self._verl_log}, then start the run again"
        self._monitor.failure = TrainingError(f"verl {how_killed(code, kills)}", hint=hint)
        return self._monitor.failure

    async def _stall(self) -> str | None:
        last = f"The last line of {self._verl_log}: {last_line(self._verl_log)}"
        if self._scheduler is None:
            return f"verl is still starting, which takes minutes on a new host. {last}"
        quiet_s = time.monotonic() - self._monitor.last_event
        return await super()._stall() or (
            f"No rollout has started or ended for {quiet_s:.0f} s: verl updates the policy or saves it. {last}"
        )

    def _close_reported(self, metrics: GrowingFile) -> None:
        for line in metrics.new():
            entry = json.loads(line)
            self._monitor.close_validation(entry["step"])
            if entry["step"] > 0:  # 0 is the validation before training
                self._monitor.close_step(entry["step"], step_metrics(entry["data"]))


def _start_table(path: Path) -> TextTable:
    """Return the table of the seconds that each part of the start took; `path` is the file of `end_of_start_part`."""
    ends = [
        ("", process_start()),
        *((line["part"], line["time"]) for line in map(json.loads, path.read_bytes().splitlines())),
    ]
    rows = [(part, [f"{end - before:.0f}"]) for (_, before), (part, end) in pairwise(ends)]
    return TextTable("Start", ["seconds"], [rows, [("in all", [f"{ends[-1][1] - ends[0][1]:.0f}"])]])


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupt the process group of `process`, wait up to 20 s for `process` to end, then kill the group."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)  # a suspended process does not receive an interrupt
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), timeout=_GRACE_S)
