"""Starts a process for every rank, receives their messages, and ends all of them."""

import ctypes
import importlib
import json
import os
import queue
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from s2sim.errors import S2SimError

# In struct tcp_info (include/uapi/linux/tcp.h, Linux 4.19 and later): bytes sent, sent again, repeats; and its end.
_BYTES_SENT, _INFO_BYTES = 200, 220
_INTERFACES = Path("/proc/self/net/dev")


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """Counters of the kernel since its start."""

    sent_bytes: int  # By this process's TCP connections, without headers and retransmissions
    again_bytes: int  # Retransmitted
    repeats: int  # Retransmission events
    connections: int
    interface_bytes: int  # By all processes over the loopback interface of this network namespace, with headers
    packets: int


def read_counters() -> KernelCounters:
    """Return the counters of the kernel; `S2SimError` if it has none."""
    connections = [struct.unpack_from("<QQI", info, _BYTES_SENT) for info in tcp_infos()]
    sent, again, repeats = (sum(each[at] for each in connections) for at in range(3))
    with _INTERFACES.open(encoding="ascii") as lines:
        for line in lines:
            name, _, numbers = line.partition(":")
            if name.strip() == "lo":
                sent_lo = map(int, numbers.split()[8:10])
                return KernelCounters(sent - again, again, repeats, len(connections), *sent_lo)
    raise S2SimError(f"{_INTERFACES} has no interface lo: start the processes where there is one")


def tcp_infos() -> Iterator[bytes]:
    """Yield the kernel's struct tcp_info of each TCP connection of this process; `S2SimError` if it is too old."""
    for path in Path("/proc/self/fd").iterdir():
        try:
            if not str(path.readlink()).startswith("socket:"):
                continue
            # Only a duplicate of the library's descriptor is closed.
            with socket.socket(fileno=os.dup(int(path.name))) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                connection.getpeername()
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            continue  # It listens, is no TCP, or has just been closed.
        if len(info) < _INFO_BYTES:
            raise S2SimError("this kernel does not count what a connection sends: Linux 4.19 or later does")
        yield info


_LISTEN_S = 0.5


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """Where a process runs."""

    prefix: tuple[str, ...] = ()  # Words before its command, such as ``ip netns exec NAME``
    interface: str = "lo"  # Network interface of the library


def run_job(
    job: str,
    arguments: Mapping[str, Any],
    places: Sequence[ProcessPlace],
    *,
    timeout_s: float,
    hear: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Run ``module:function`` in one process a place, all in one Gloo process group, and return all results.

    It is called as ``function(rank, ranks, arguments, tell)``; results and values passed to ``tell`` must be JSON.
    ``hear`` receives (rank, value) of each ``tell``. If a process fails or all are silent for ``timeout_s`` seconds,
    all are killed and `S2SimError` is raised.
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
    def __init__(
        self, rank: int, place: ProcessPlace, task: Mapping[str, Any], folder: Path, heard: queue.Queue[tuple[int, Any]]
    ) -> None:
        self.rank = rank
        self.errors = folder / f"errors-{rank}"
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": place.interface, "OMP_NUM_THREADS": "1"}
        with self.errors.open("wb") as errors:
            self.popen = subprocess.Popen(  # noqa: S603  (our own interpreter, in a place of our own making)
                [*place.prefix, sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                # Ctrl-C reaches the parent, which ends them.
                start_new_session=True,
            )
        assert self.popen.stdin is not None
        self.listener = threading.Thread(target=self._listen, args=(heard,), daemon=True)
        self.listener.start()
        # A process that has ended already says why by its exit status.
        with suppress(BrokenPipeError), self.popen.stdin as pipe:
            pipe.write(json.dumps(task).encode())

    def _listen(self, heard: queue.Queue[tuple[int, Any]]) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as pipe:
            for line in pipe:
                if line.endswith(b"\n"):  # One that was killed may leave half a line.
                    heard.put((self.rank, json.loads(line)))

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self.listener.join()

    def failure(self) -> str | None:
        if not (status := self.popen.poll()):
            return None
        if status < 0:
            return f"the process of rank {self.rank} was ended by {signal.Signals(-status).name}"
        lines = self.errors.read_text("utf-8", errors="replace").strip().splitlines()
        return f"the process of rank {self.rank} failed: {lines[-1] if lines else f'exit status {status}'}"


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
            if failures := [failure for failure in (process.failure() for process in running) if failure]:
                # A process that was ended from outside is the cause of other failures.
                raise S2SimError(min(failures, key=lambda text: "was ended by" not in text)) from None
            if time.monotonic() - last_s > timeout_s:
                raise S2SimError(
                    f"{len(running)} processes have told nothing for {timeout_s:g} s: they hang, and are ended"
                ) from None
            continue
        last_s = time.monotonic()
        if "error" in told:
            raise S2SimError(told["error"])
        if "result" in told:
            results[rank] = told["result"]
        elif hear is not None:
            hear(rank, told["told"])
    return [results[rank] for rank in range(len(running))]


_WAITS = "ip link set lo up && echo up && exec cat"


@contextmanager
def private_loopback() -> Iterator[ProcessPlace | None]:
    """Yield a place in a new network namespace, which ends with its processes; None without permission."""
    tools = [shutil.which(tool) for tool in ("unshare", "nsenter", "ip")]
    if not all(tools):
        yield None
        return
    unshare, nsenter, _ = tools
    with subprocess.Popen(  # noqa: S603  (tools of the system, found on the user's own path)
        [str(unshare), "--net", "sh", "-c", _WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as first:
        assert first.stdout is not None
        try:
            if first.stdout.readline() != b"up\n":
                yield None
                return
            yield ProcessPlace((str(nsenter), f"--net=/proc/{first.pid}/ns/net"))
        finally:
            first.kill()


_TIMEOUT = timedelta(minutes=2)
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Read a task from standard input, run it, and report its result."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    # Output of libraries must not be between lines of JSON.
    tells = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    task = json.load(sys.stdin)

    def say(what: str, value: Any) -> None:
        tells.write(json.dumps({what: value}) + "\n")

    import torch.distributed as dist

    # A file needs no port, and works across network namespaces.
    dist.init_process_group(
        "gloo", init_method=f"file://{task['store']}", rank=task["rank"], world_size=task["ranks"], timeout=_TIMEOUT
    )
    module, _, name = task["job"].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        say("result", function(task["rank"], task["ranks"], task["arguments"], lambda value: say("told", value)))
        # No process leaves while others still need its data.
        dist.barrier()
    except S2SimError as error:
        say("error", str(error))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
