"""Pass requests to the sampler as they arrive, in the one thread that uses the model."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future

from sql_agent.training.local.sampler import Request, Sampler
from sql_agent.training.serving.engine import Generation

_Job = tuple[Request, "Future[Generation]"]


class Batcher:
    """Samples up to `max_batch` rows together and adds new requests between two tokens (continuous batching).

    It starts a batch when it is full or no further request has arrived for `window_s` seconds. Hold `lock` while the
    weights change: the batcher holds it as long as a row is being sampled.
    """

    def __init__(self, sampler: Sampler, *, max_batch: int, window_s: float) -> None:
        self.lock = threading.Lock()
        self._sampler = sampler
        self._max_batch = max_batch
        self._window_s = window_s
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._futures: dict[int, Future[Generation]] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="policy-batcher")
        self._thread.start()

    def submit(self, request: Request) -> Future[Generation]:
        """Queue one request and return a future of its sampled turn, or of the exception that sampling raised."""
        future: Future[Generation] = Future()
        self._jobs.put((request, future))
        return future

    def close(self) -> None:
        """End the thread after the rows that are being sampled; wait up to 60 s for that."""
        self._jobs.put(None)
        self._thread.join(timeout=60)

    def _work(self) -> None:
        while not self._closing:
            first = self._jobs.get()
            if first is None:
                return
            if _is_wanted(first):
                with self.lock:
                    self._sample_until_idle(first)

    def _sample_until_idle(self, first: _Job) -> None:
        fresh = [first, *self._take_jobs(self._max_batch - 1, self._window_s)]
        while fresh or self._sampler.active:
            try:
                if fresh:
                    self._futures |= {id(request): future for request, future in fresh}
                    self._sampler.admit([request for request, _ in fresh])
                for request, sampled in self._sampler.step():
                    self._futures.pop(id(request)).set_result(sampled)
            except Exception as error:  # any error is raised in the clients that wait
                self._fail(error)
            fresh = self._take_jobs(self._max_batch - self._sampler.active, 0.0)

    def _take_jobs(self, limit: int, window_s: float) -> list[_Job]:
        """Take at most `limit` jobs that are queued already or arrive within `window_s` seconds of each other."""
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
    """Return whether the client of `job` still waits, and keep its future from being cancelled from now on.

    Setting the result of a cancelled future raises an error, which would fail the other rows of the batch.
    """
    return job[1].set_running_or_notify_cancel()
