"""Starts a process for every rank, hears what each tells, and leaves none behind."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WORKER = "s2sim.bridge.processes.worker"
_LISTEN_S = 0.5


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs."""

    prefix: tuple[str, ...] = ()  # Words before its command, such as ``ip netns exec NAME``
    interface: str = "lo"  # Network interface whose address the library takes


def run_job(
    job: str,
    arguments: Mapping[str, Any],
    places: Sequence[Place],
    *,
    timeout_s: float,
    hear: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Run a function in one process a place, all in one Gloo process group, and return what each returned.

    Parameters
    ----------
    job : str
        ``module:function``, called as ``function(rank, ranks, arguments, tell)``; what it returns, and what it gives to
        ``tell``, must be JSON.
    hear : callable or None
        Called with (rank, what it told) while processes run.

    Raises
    ------
    S2SimError
        If a process fails, is killed or tells nothing for ``timeout_s`` seconds; the others are killed then.
    """
    with tempfile.TemporaryDirectory(prefix="s2sim-") as folder:
        running: list[_Process] = []
        heard: queue.Queue[tuple[int, Any]] = queue.Queue()
        try:
            for rank, place in enumerate(places):
                task = {"job": job, "rank": rank, "ranks": len(places), "store": f"{folder}/store"}
                running.append(_Process(rank, place, {**task, "arguments": dict(arguments)}, Path(folder), heard))
            return _results(running, heard, timeout_s, hear)
        finally:
            for process in running:
                process.kill()


class _Process:
    """One process, and what it tells, a line of JSON each."""

    def __init__(
        self, rank: int, place: Place, task: Mapping[str, Any], folder: Path, heard: queue.Queue[tuple[int, Any]]
    ) -> None:
        self.rank = rank
        self.errors = folder / f"errors-{rank}"
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": place.interface, "OMP_NUM_THREADS": "1"}
        with self.errors.open("wb") as errors:
            self.popen = subprocess.Popen(  # noqa: S603  (our own interpreter, in a place of our own making)
                [*place.prefix, sys.executable, "-m", WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                # Ctrl-C comes to the one who started them, who ends them.
                start_new_session=True,
            )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.listener = threading.Thread(target=_listen, args=(rank, self.popen.stdout, heard), daemon=True)
        self.listener.start()
        try:
            with self.popen.stdin as pipe:
                pipe.write(json.dumps(task).encode())
        except BrokenPipeError:
            pass  # It has ended already, and its exit status tells why.

    def kill(self) -> None:
        """End it, if it has not ended."""
        self.popen.kill()
        self.popen.wait()
        self.listener.join()

    def failure(self) -> str | None:
        """Return how it ended where that was a failure."""
        status = self.popen.poll()
        if status is None or status == 0:
            return None
        if status < 0:
            return f"the process of rank {self.rank} was ended by {signal.Signals(-status).name}"
        lines = self.errors.read_text("utf-8", errors="replace").strip().splitlines()
        return f"the process of rank {self.rank} failed: {lines[-1] if lines else f'exit status {status}'}"


def _listen(rank: int, pipe: IO[bytes], heard: queue.Queue[tuple[int, Any]]) -> None:
    with pipe:
        for line in pipe:
            if line.endswith(b"\n"):  # One that was killed may leave half a line.
                heard.put((rank, json.loads(line)))


def _results(
    running: Sequence[_Process],
    heard: queue.Queue[tuple[int, Any]],
    timeout_s: float,
    hear: Callable[[int, Any], None] | None,
) -> list[Any]:
    results: dict[int, Any] = {}
    last_s = time.monotonic()
    while len(results) < len(running):
        try:
            rank, told = heard.get(timeout=_LISTEN_S)
        except queue.Empty:
            _check(running, time.monotonic() - last_s, timeout_s)
            continue
        last_s = time.monotonic()
        if "error" in told:
            raise S2SimError(told["error"])
        if "result" in told:
            results[rank] = told["result"]
        elif hear is not None:
            hear(rank, told["told"])
    return [results[rank] for rank in range(len(running))]


def _check(running: Sequence[_Process], silent_s: float, timeout_s: float) -> None:
    """Raise if a process has failed, or all have been silent for too long."""
    failures = [failure for failure in (process.failure() for process in running) if failure]
    if failures:
        # One that was ended from outside is why the others fail.
        raise S2SimError(min(failures, key=lambda text: "was ended by" not in text))
    if silent_s > timeout_s:
        raise S2SimError(f"{len(running)} processes have told nothing for {timeout_s:g} s: they hang, and are ended")
