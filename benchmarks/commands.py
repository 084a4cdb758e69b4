"""What the main commands cost: wall time, CPU time and memory of whole processes.

Run with ``python benchmarks/commands.py`` where s2sim is installed.
"""

from __future__ import annotations

from measure import SMALL, measure


def main() -> None:
    """Print the figures."""
    base, wall, _, _ = measure("--version")
    print(f"s2sim --version: {base:.2f} s CPU, {wall:.2f} s wall")
    _, wall, _, _ = measure("--help")
    print(f"s2sim --help: {wall:.2f} s wall")
    workers = "4" if SMALL else "64"
    cpu, wall, peak, _ = measure("run", "--topology", "fat-tree", "--workers", workers, "--quiet")
    print(f"s2sim run --topology fat-tree --workers {workers}: {wall:.2f} s wall, {cpu:.2f} s CPU, {peak:.0f} MB")


if __name__ == "__main__":
    main()
