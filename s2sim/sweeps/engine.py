"""Where the jobs of a sweep run: in this process, in processes of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from types import ModuleType
from typing import Any, TypeAlias

from s2sim.errors import S2SimError
from s2sim.experiment.recording_store import VARIABLE
from s2sim.sweeps.compute import Job, compute_jobs
from s2sim.sweeps.store import Outcome

Chunk = tuple[Job, ...]


class InProcess:
    """Runs chunks in this process, one after the other."""

    workers = 1

    def __init__(self, cache: str) -> None:
        self._cache_before = os.environ.get(VARIABLE, "")
        os.environ[VARIABLE] = cache
        self._waiting: list[Chunk] = []

    def submit(self, chunk: Chunk) -> None:
        """Begin a chunk."""
        self._waiting.append(chunk)

    def finished(self, timeout_s: float) -> list[list[Outcome]]:
        """Return the answers of the chunk that was submitted first."""
        return [compute_jobs(self._waiting.pop(0))]

    def close(self) -> None:
        """Forget what was submitted."""
        os.environ[VARIABLE] = self._cache_before
        self._waiting.clear()


def _prepare_worker(parent: int, cache: str) -> None:
    """Leave Ctrl-C to the parent, and end with it even if it is killed."""
    os.environ[VARIABLE] = cache
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep processes that are spawned from running the script of the user, which may have no guard, once more."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class Processes:
    """Runs chunks in processes of this machine.

    After one was killed, what ran begins again job by job, so that it is known which one the next takes with it.
    """

    def __init__(self, workers: int, cache: str) -> None:
        self.workers = workers
        self._cache = cache
        self._waiting: deque[Chunk] = deque()
        self._running: dict[Future[list[Outcome]], Chunk] = {}
        self._one_by_one = 0  # How many of those that wait run alone
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        context, prepared = get_context("spawn"), (os.getpid(), self._cache)
        return ProcessPoolExecutor(self.workers, context, initializer=_prepare_worker, initargs=prepared)

    def submit(self, chunk: Chunk) -> None:
        """Begin a chunk, at once or when a process is free."""
        self._waiting.append(chunk)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < (1 if self._one_by_one else self.workers + 1):
            chunk = self._waiting.popleft()
            with _hidden_main():
                self._running[self._pool.submit(compute_jobs, chunk)] = chunk

    def finished(self, timeout_s: float) -> list[list[Outcome]]:
        """Return the answers of the chunks that finish first."""
        done, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
        found = []
        for future in done:
            try:
                found.append(future.result())
            except BrokenProcessPool:
                continue
            del self._running[future]
            self._one_by_one = max(0, self._one_by_one - 1)
        if len(found) < len(done):
            found += self._restart()
        self._fill()
        return found

    def _restart(self) -> list[list[Outcome]]:
        """Begin again after a process was killed; return the outcomes of a job that ran alone then."""
        lost = [(job,) for chunk in self._running.values() for job in chunk]
        self.close()
        self._pool = self._start()
        if self._one_by_one and len(lost) == 1:
            self._one_by_one -= 1
            return [[killed(key) for key, _ in lost[0][0].cells]]
        self._waiting.extendleft(reversed(lost))
        self._one_by_one += len(lost)
        return []

    def close(self) -> None:
        """Kill the processes."""
        processes = list((self._pool._processes or {}).values())  # noqa: SLF001 # there is no other way to stop work
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with suppress(OSError, ValueError):
                process.kill()
        for process in processes:
            process.join()
        self._running.clear()


def killed(key: str) -> Outcome:
    """Return the outcome of a cell whose process died."""
    why = "the process was killed, as happens where memory ends: take fewer --jobs, workers or parameters"
    return Outcome.without_answer(key, "failed", why)


class Dask:
    """Runs chunks on the workers of a dask.distributed cluster, which have s2sim installed."""

    def __init__(self, address: str, jobs: int | None) -> None:
        try:
            import distributed
        except ImportError:
            raise S2SimError("--dask needs dask.distributed: pip install 's2sim[cluster]'") from None
        try:
            library: Any = distributed
            cluster: Any = library.LocalCluster(n_workers=jobs, threads_per_worker=1) if address == "local" else address
            file = address.endswith(".json")
            self._client = library.Client(
                **({"scheduler_file": address} if file else {"address": cluster}), timeout="20s"
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise S2SimError(f"--dask {address}: there is no scheduler: {error}") from None
        self._cluster: Any = cluster if address == "local" else None
        self.workers = max(1, len(self._client.scheduler_info()["workers"]))
        self._executor = self._client.get_executor(pure=False, retries=2)
        self._running: dict[Future[list[Outcome]], Chunk] = {}

    def submit(self, chunk: Chunk) -> None:
        """Begin a chunk; one whose worker dies begins again on another."""
        self._running[self._executor.submit(compute_jobs, chunk)] = chunk

    def finished(self, timeout_s: float) -> list[list[Outcome]]:
        """Return the answers of the chunks that finish first."""
        from distributed import KilledWorker

        done, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
        found = []
        for future in done:
            chunk = self._running.pop(future)
            try:
                found.append(future.result())
            except KilledWorker:
                found.append([killed(key) for job in chunk for key, _ in job.cells])
        return found

    def close(self) -> None:
        """Cancel what runs, and leave the cluster."""
        with suppress(Exception):
            self._executor.shutdown(wait=False)
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


Engine: TypeAlias = InProcess | Processes | Dask
"""Runs chunks of jobs; ``finished`` waits up to a timeout in seconds, and ``close`` loses what was not returned."""
