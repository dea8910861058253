"""Collect requests that arrive together and sample them as one batch, in one thread that owns the model."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass

from sql_agent.backends.local.sampler import Request, Sampled, Sampler


@dataclass
class _Job:
    request: Request
    result: Future[Sampled]


class Batcher:
    """Turns single requests into batches of at most `max_batch`.

    A batch starts when `window_s` seconds have passed without a new request: runners answer a finished batch one
    after the other, and a batch that starts with the first of them makes all others wait for its end. Hold `lock` to
    keep the policy still, for example while its weights change.
    """

    def __init__(self, sampler: Sampler, *, max_batch: int, window_s: float) -> None:
        self.lock = threading.Lock()
        self._sampler = sampler
        self._max_batch = max_batch
        self._window_s = window_s
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True, name="policy-batcher")
        self._thread.start()

    def submit(self, request: Request) -> Future[Sampled]:
        """Queue one request; the future holds its sampled turn, or the exception that sampling raised."""
        job = _Job(request, Future())
        self._jobs.put(job)
        return job.result

    def close(self) -> None:
        """End the thread once the batch in hand is done."""
        self._jobs.put(None)
        self._thread.join(timeout=60)

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch, ended = self._gather(first)
            wanted = [job for job in batch if not job.request.cancelled.is_set()]
            for job in batch:
                if job not in wanted:
                    job.result.cancel()
            if wanted:
                self._run(wanted)
            if ended:
                return

    def _gather(self, first: _Job) -> tuple[list[_Job], bool]:
        """The first job and those that follow it closely; True when the end marker came too."""
        batch = [first]
        while len(batch) < self._max_batch:
            try:
                job = self._jobs.get(timeout=self._window_s)
            except queue.Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False

    def _run(self, jobs: list[_Job]) -> None:
        try:
            with self.lock:
                sampled = self._sampler.sample([job.request for job in jobs])
        except Exception as error:
            for job in jobs:
                job.result.set_exception(error)
            return
        for job, result in zip(jobs, sampled, strict=True):
            job.result.set_result(result)
