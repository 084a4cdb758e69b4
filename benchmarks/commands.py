"""What the commands cost: CPU time and memory of whole processes, and S1 and S2 against their closed forms.

S1 is a ring of direct links with 500 ns a hop, S2 one switch with 500 ns a link; both have 50 GiB/s links and
all-reduce 100 MiB by a ring in rank order: 2(N-1)(L + D/(N·B)). CPU time is quoted beyond that of ``s2sim --version``
in the same run. Run with ``python benchmarks/commands.py`` where s2sim is installed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 3
SIZE_BYTES = 100 * 2**20
RATE_BPS = 50 * 2**30
FABRICS = {
    "S1": ('kind = "ring"\n[fabric.link]\nlatency = "500ns"', 500e-9),
    "S2": ('kind = "single-switch"\n[fabric.link]\nlatency = "500ns"', 1000e-9),
}


def measure(*arguments: str) -> tuple[float, float, float, str]:
    """Return medians of CPU seconds, wall seconds and peak MB of ``s2sim`` with these arguments, and its output."""
    command = [sys.executable, "-m", "s2sim", *arguments]
    cpu, wall, peak = [], [], []
    output = ""
    for _ in range(REPEATS):
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


def main() -> None:
    """Print the table."""
    base, wall, _, _ = measure("--version")
    print(f"s2sim --version: {base:.2f} s CPU, {wall:.2f} s wall")
    _, wall, _, _ = measure("--help")
    print(f"s2sim --help: {wall:.2f} s wall")
    cpu, wall, peak, _ = measure("run", "--topology", "fat-tree", "--workers", "64", "--quiet")
    print(f"s2sim run --topology fat-tree --workers 64: {wall:.2f} s wall, {cpu:.2f} s CPU, {peak:.0f} MB")
    print("collective  ranks  predicted ms  from closed form  CPU beyond --version s  peak MB")
    with tempfile.TemporaryDirectory() as folder:
        for name, (fabric, latency_s) in FABRICS.items():
            path = Path(folder) / f"{name}.toml"
            path.write_text(f'[node]\ngpus = 1\n[nic]\nrate = "50GiB/s"\n[fabric]\n{fabric}\n')
            for ranks in (16, 64, 256, 1024):
                arguments = ["collective", "all_reduce", "--topology", str(path), "--workers", str(ranks)]
                arguments += ["--size", "100MiB", "--algorithm", "ring", "--json", "-"]
                cpu, _, peak, output = measure(*arguments)
                found = json.loads(output)["time_s"]
                expected = 2 * (ranks - 1) * (latency_s + SIZE_BYTES / ranks / RATE_BPS)
                print(
                    f"{name:10}  {ranks:5}  {found * 1e3:12.6f}  {found / expected - 1:+16.1e}"
                    f"  {cpu - base:22.2f}  {peak:7.0f}"
                )


if __name__ == "__main__":
    main()
