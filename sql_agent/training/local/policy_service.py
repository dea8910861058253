"""Serve a policy from this process on a CPU, with continuous batching."""

from __future__ import annotations

import asyncio
import copy
import ctypes
import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch.nn import functional

from sql_agent.config.settings import Settings
from sql_agent.system.resources import usable_cores
from sql_agent.training.local.sampler import Request, Sampler
from sql_agent.training.policy.model import Policy
from sql_agent.training.serving.chat import ChatEncoder
from sql_agent.training.serving.server import Generation, Sampling, ServerThread, build_app

_MAX_BATCH = 96  # maximum number of turns that are sampled together
_WINDOW_S = 0.15  # an idle service starts a batch after this time without a new request
_JOIN_S = 60.0  # time limit for the turns that are being sampled when the service is closed

_Job = tuple[Request, "Future[Generation]"]


class PolicyService:
    """The engine of `server`, which serves `policy` from construction until `close`.

    One thread samples up to 96 turns together, and new requests join the batch between two tokens (continuous
    batching). An idle service starts when it has 96 requests or no further request has arrived for 0.15 s.

    With `bf16`, turns are sampled from a bf16 copy of the policy, which is nearly twice as fast. The copy's
    log-probabilities differ by up to 0.3 nats from those of the fp32 weights, so the service does not return them, and
    the policy update computes log-probabilities itself. `tool_format` is the format of the policy's tool calls.
    """

    def __init__(self, policy: Policy, settings: Settings, server: ServerThread, *, bf16: bool) -> None:
        self.base_url, self.api_key = server.base_url, server.api_key
        self.max_context = settings.local.max_context
        self._policy = policy
        self._serving = _bf16_copy(policy) if bf16 else policy
        self._sampler = Sampler(self._serving, seed=settings.seed)
        self._lock = threading.Lock()  # held while turns are sampled
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._futures: dict[Request, Future[Generation]] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="policy-sampler")
        self._thread.start()
        encoder = ChatEncoder(policy.tokenizer, policy.end_id, settings.agent.tool_format)
        self.tool_format = encoder.tool_format
        self._server = server
        self._server.start(build_app(encoder, self, thought_tokens=settings.agent.thought_tokens))

    @contextmanager
    def weights_locked(self) -> Iterator[None]:
        """Pause sampling inside the context, in which the weights may be changed.

        The cached keys and values are removed. At the end of the context the bf16 copy gets the new weights.
        """
        with self._lock:
            self._sampler.weights_changed()
            release_freed_memory()
            yield
            release_freed_memory()
            if self._serving is not self._policy:
                self._serving.model.load_state_dict(self._policy.model.state_dict())

    @contextmanager
    def serving(self, other: Policy) -> Iterator[None]:
        """Sample inside the context from the policy `other`, which must have the same tokenizer."""
        serving = other if self._serving is self._policy else _bf16_copy(other)
        with self._lock:
            self._sampler.use(serving)
        try:
            yield
        finally:
            with self._lock:
                self._sampler.use(self._serving)

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        request = Request(prompt_ids, sampling.max_tokens, sampling.temperature)
        future: Future[Generation] = Future()
        self._jobs.put((request, future))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            request.cancelled = True
            raise

    def close(self) -> None:
        """Stop serving, free the port, and wait up to 60 s for the turns that are being sampled."""
        self._server.stop()
        self._jobs.put(None)
        self._thread.join(timeout=_JOIN_S)

    def _work(self) -> None:
        while not self._closing and (first := self._jobs.get()) is not None:
            if _is_wanted(first):
                with self._lock:
                    self._sample_until_idle(first)

    def _sample_until_idle(self, first: _Job) -> None:
        fresh = [first, *self._take_jobs(_MAX_BATCH - 1, _WINDOW_S)]
        while fresh or self._sampler.active:
            try:
                if fresh:
                    self._futures |= dict(fresh)
                    self._sampler.admit([request for request, _ in fresh])
                for request, sampled in self._sampler.step():
                    self._futures.pop(request).set_result(sampled)
            except Exception as error:  # every error is passed to the waiting clients
                self._fail(error)
            fresh = self._take_jobs(_MAX_BATCH - self._sampler.active, 0.0)

    def _take_jobs(self, limit: int, window_s: float) -> list[_Job]:
        """Return at most `limit` queued jobs, and wait for more until none has arrived for `window_s` seconds."""
        jobs: list[_Job] = []
        while len(jobs) < limit and not self._closing:
            try:
                job = self._jobs.get(timeout=window_s) if window_s else self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._closing = True
            elif _is_wanted(job):
                jobs.append(job)
        return jobs

    def _fail(self, error: Exception) -> None:
        self._sampler.abandon()
        for future in self._futures.values():
            future.set_exception(error)
        self._futures.clear()


def _is_wanted(job: _Job) -> bool:
    """Return whether the client of `job` still waits, and prevent a later cancellation of the job's future.

    Setting the result of a cancelled future would raise an error and fail all turns of the batch.
    """
    return job[1].set_running_or_notify_cancel()


def _bf16_copy(policy: Policy) -> Policy:
    model = copy.deepcopy(policy.model).to(torch.bfloat16).requires_grad_(False).eval()
    return replace(policy, model=model, adapters=None)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # options of mallopt in <malloc.h>
_BF16_SHARE = 0.8  # bf16 must need less than this share of fp32's time, because casting the weights takes time too


def prepare_torch() -> bool:
    """Configure torch's threads and memory, and return whether bf16 is faster than fp32 on this CPU.

    torch uses all available cores, unless OMP_NUM_THREADS is set, and keeps freed memory for later tensors.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(usable_cores())
    _keep_freed_memory()
    return _bf16_is_faster()


def _bf16_is_faster() -> bool:
    """Measure whether this CPU multiplies bf16 matrices clearly faster than fp32 ones, in about 0.1 s.

    No CPU flag decides this: with AMX bf16 is several times as fast as fp32, but with avx512_bf16 alone an Intel Xeon
    did 84 GFLOP/s a core in bf16 and 160 in fp32.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with several threads the time would depend on the load of the machine
    try:
        times = [(_matmul_s(torch.bfloat16), _matmul_s(torch.float32)) for _ in range(20)]
    finally:
        torch.set_num_threads(threads)
    return min(bf16 for bf16, _ in times) < _BF16_SHARE * min(fp32 for _, fp32 in times)


def _matmul_s(dtype: torch.dtype) -> float:
    """Return the seconds of one product of matrices with the dimensions of SmolLM2's layers."""
    rows, weight = torch.ones(128, 576, dtype=dtype), torch.ones(1536, 576, dtype=dtype)
    started = time.perf_counter()
    functional.linear(rows, weight)
    return time.perf_counter() - started


def release_freed_memory() -> None:
    """Free unreachable objects, and return the memory that glibc keeps to the system.

    Without this call, the models and optimizers of one phase, sampling or training, stay in memory during the next.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory for later: otherwise, a forward pass in a thread takes three times as long."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has neither mallopt nor this problem
    if mallopt is not None:
        for option, value in ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, 2**31 - 1)):
            mallopt(option, value)
