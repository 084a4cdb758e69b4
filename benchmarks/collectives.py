"""Collectives at scale: CPU time beyond ``s2sim --version``, memory, and the distance from closed forms.

The scenarios are those that other simulators were measured on, 100 MiB over links of 50 GiB/s:

- S1: ring of direct links, 500 ns a hop; S2: one switch, 500 ns a link. Ring in rank order: 2(N-1)(L + D/(N·B)).
- S4: 2:1 oversubscribed fat tree of sqrt(N) leaves, ranks dealt round robin, so that every hop crosses the core at
  half rate: 2(N-1)(1 us + 2·D/(N·B)).
- S5: recursive halving and doubling on the switch of S2: 2·log2(N)·1 us + 2(N-1)/N·D/B.
- 131,072 GPUs on a fat tree of three levels, 8 GPUs and 8 interfaces a node: 1 GiB, hierarchical and ring.

Run with ``python benchmarks/collectives.py`` where s2sim is installed.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import numpy as np
from measure import SMALL, measure

SIZE_BYTES = 100 * 2**20
RATE_BPS = 50 * 2**30
SCENARIOS = Path(__file__).parents[1] / "tests" / "scenarios"
FIELDS = ("fabric.levels=3", "node.gpus=8", "nic.count=8", "fabric.hosts_per_leaf=32", "fabric.leaves_per_pod=32")
LARGE = ["--topology", "fat-tree", "--workers", "131072", "--size", "1GiB", *(f"--set={field}" for field in FIELDS)]


def ring_s(ranks: int, latency_s: float, share: float = 1.0) -> float:
    """Return 2(N-1)(L + share·D/(N·B))."""
    return 2 * (ranks - 1) * (latency_s + share * SIZE_BYTES / ranks / RATE_BPS)


def halving_doubling_s(ranks: int) -> float:
    """Return 2·log2(N)·1 us + 2(N-1)/N·D/B."""
    return 2 * math.log2(ranks) * 1e-6 + 2 * (ranks - 1) / ranks * SIZE_BYTES / RATE_BPS


def scenario(name: str, ranks: int, algorithm: str, *more: str) -> list[str]:
    """Return the arguments of an all-reduce on one of the scenarios."""
    path = str(SCENARIOS / f"{name}.toml")
    return ["--topology", path, "--workers", str(ranks), "--size", "100MiB", "--algorithm", algorithm, *more]


def tree(ranks: int, *more: str) -> list[str]:
    """Return the options that make a 2:1 tree with as many leaves as hosts a leaf."""
    side = math.isqrt(ranks)
    return ["--set", f"fabric.hosts_per_leaf={side}", "--set", f"fabric.uplinks_per_leaf={side // 2}", *more]


def show(base: float, name: str, kind: str, arguments: list[str], expected_s: float | None, repeats: int = 3) -> None:
    """Print one line."""
    cpu, _, peak, output = measure("collective", kind, *arguments, "--json", "-", repeats=repeats)
    found = json.loads(output)
    # Large clusters have a closed form of their own, which refuses where messages share links.
    expected_s = found["closed_form_s"] if expected_s is None else expected_s
    off = f"{found['time_s'] / expected_s - 1:+.1e}" if expected_s else "contended"
    print(f"{name:44}  {found['time_s'] * 1e3:14.6f}  {off:>10}  {cpu - base:8.2f}  {peak:7.0f}", flush=True)


def main() -> None:
    """Print the table."""
    base, _, _, _ = measure("--version")
    print(f"{'scenario':44}  {'predicted ms':>14}  {'off by':>10}  {'CPU s':>8}  {'peak MB':>7}")
    counts = (16,) if SMALL else (16, 64, 256, 1024)
    most = counts[-1]
    for ranks in counts if SMALL else (*counts, 4096, 16384):
        expected = ring_s(ranks, 500e-9)
        show(base, f"S1 ring, {ranks} ranks", "all_reduce", scenario("s1-ring", ranks, "ring"), expected)
    for ranks in counts:
        expected = ring_s(ranks, 1e-6)
        show(base, f"S2 switch, {ranks} ranks", "all_reduce", scenario("s2-switch", ranks, "ring"), expected)
    for ranks in counts:
        options = tree(ranks, "--placement", "round-robin")
        asked = scenario("s3-fat-tree", ranks, "ring", *options)
        show(base, f"S4 2:1 tree, round robin, {ranks} ranks", "all_reduce", asked, ring_s(ranks, 1e-6, 2))
    for ranks in counts:
        asked = scenario("s2-switch", ranks, "halving-doubling")
        show(base, f"S5 halving-doubling, {ranks} ranks", "all_reduce", asked, halving_doubling_s(ranks))
    asked = scenario("s3-fat-tree", most, "halving-doubling", *tree(most))
    show(base, f"halving-doubling on the 2:1 tree, {most}", "all_reduce", asked, None)
    with tempfile.TemporaryDirectory() as folder:
        sizes = Path(folder) / "sizes.txt"
        sizes.write_text("".join(f"{size}B\n" for size in np.random.default_rng(1).integers(0, 200_001, most)))
        for placement in ("linear", "round-robin"):
            asked = scenario("s3-fat-tree", most, "ring", *tree(most, "--placement", placement))
            asked[asked.index("--size") : asked.index("--size") + 2] = ["--sizes", str(sizes)]
            show(base, f"ring all-gather, unequal, 2:1, {placement}, {most}", "all_gather", asked, None)
    for algorithm in () if SMALL else ("hierarchical", "ring", "ring:channels=1"):
        asked = [*LARGE, "--algorithm", algorithm]
        show(base, f"{algorithm}, 131,072 GPUs", "all_reduce", asked, None, repeats=1)


if __name__ == "__main__":
    main()
