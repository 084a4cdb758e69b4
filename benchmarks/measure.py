"""CPU time, wall time and memory of whole processes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time


def measure(*arguments: str, repeats: int = 3) -> tuple[float, float, float, str]:
    """Return medians of CPU seconds, wall seconds and peak MB of ``s2sim`` with these arguments, and its output."""
    command = [sys.executable, "-m", "s2sim", *arguments]
    cpu, wall, peak = [], [], []
    output = ""
    for _ in range(repeats):
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
