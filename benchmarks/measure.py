"""CPU time, wall time and memory of whole processes and of calls."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = int(os.environ.get("S2SIM_BENCHMARK_REPEATS", "5"))
# Medians of one are no figures; they show that a benchmark runs, for which the smallest cases do.
SMALL = REPEATS == 1


def measure(*arguments: str, repeats: int = 3) -> tuple[float, float, float, str]:
    """Return medians of CPU seconds, wall seconds and peak MB of ``s2sim`` with these arguments, and its output."""
    command = [sys.executable, "-m", "s2sim", *arguments]
    cpu, wall, peak = [], [], []
    output = ""
    for _ in range(min(repeats, REPEATS)):
        with tempfile.TemporaryFile("w+") as stdout:
            start = time.monotonic()
            process = subprocess.Popen(command, stdout=stdout)
            _, status, usage = os.wait4(process.pid, 0)
            wall.append(time.monotonic() - start)
            if status:
                sys.exit(f"{' '.join(command)} failed with status {status}")
            cpu.append(usage.ru_utime + usage.ru_stime)
            peak.append(usage.ru_maxrss / 1024)
            stdout.seek(0)
            output = stdout.read()
    return statistics.median(cpu), statistics.median(wall), statistics.median(peak), output


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return the median CPU time of this thread over `REPEATS` calls, after one to warm up."""
    function()
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def cpu_seconds_and_ratio(function: Callable[[], object], unit: Callable[[], object]) -> tuple[float, float]:
    """Return the median CPU seconds of a call, and of how many calls of ``unit`` just before it that is.

    The two take turns, so that whatever slows the machine down for a while slows both down.
    """
    unit()
    function()
    times, ratios = [], []
    for _ in range(REPEATS):
        start = time.thread_time()
        unit()
        between = time.thread_time()
        function()
        times.append(time.thread_time() - between)
        ratios.append(times[-1] / (between - start))
    return statistics.median(times), statistics.median(ratios)


def peak_bytes(function: Callable[[], Any]) -> int:
    """Return the most memory that was allocated at once during a call, its results included."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
