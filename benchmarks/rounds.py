"""What schedules of many rounds cost: CPU seconds, rounds solved for rates, and searches for routes.

Most rounds are told by their busiest link, routes are searched once for all rates, and rounds are known by content;
what is left is solved. Break-even is `s2sim.run` less the same without it. Run with ``python benchmarks/rounds.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from measure import SMALL

import s2sim
from s2sim.collectives.schedules.demand import all_to_all_demand
from s2sim.collectives.timing import rounds
from s2sim.collectives.timing import routes as ways
from s2sim.collectives.timing.timer import Timer
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

if TYPE_CHECKING:
    from collections.abc import Callable

TREE = ("node.gpus=1", "fabric.hosts_per_leaf=64", "fabric.uplinks_per_leaf=32")
LARGE = ("fabric.levels=3", "node.gpus=8", "nic.count=8", "fabric.hosts_per_leaf=32", "fabric.leaves_per_pod=32")


def show(name: str, function: Callable[[], object], less_s: float = 0.0) -> float:
    """Call it, print one line, and return the CPU seconds that it took."""
    solve, search = rounds.RoundTimes._solve, ways.find_routes  # noqa: SLF001  (calls of it are what is counted)
    with (
        patch.object(rounds.RoundTimes, "_solve", autospec=True, side_effect=solve) as solved,
        patch.object(ways, "find_routes", side_effect=search) as searched,
    ):
        start = time.process_time()
        function()
        seconds = time.process_time() - start
    print(f"{name:52}  {seconds - less_s:8.2f}  {solved.call_count:8}  {searched.call_count:8}", flush=True)
    return seconds


def collective(kind: str, workers: int, size: int | list[int], **options: object) -> Callable[[], object]:
    """Return a call of `s2sim.run_collective` on a fat tree."""
    return lambda: s2sim.run_collective(kind, "fat-tree", workers=workers, size_bytes=size, **options)


def main() -> None:
    """Print the table."""
    print(f"{'work':52}  {'CPU s':>8}  {'solved':>8}  {'searches':>8}")
    generator = np.random.default_rng(1)
    few, many, more, most = (4, 64, 64, 64) if SMALL else (64, 1024, 4096, 131072)
    run = {"topology": "fat-tree", "workers": few}
    without_s = show(f"run, {few} workers, without break-even", lambda: s2sim.run(**run, break_even=False))
    show("break-even alone", lambda: s2sim.run(**run), without_s)
    blocks = all_to_all_demand(generator.integers(0, 200_001, (few, few)), 4)
    timer = Timer(build_cluster(load_shape("leaf-spine"), few), "spread:partners=64")
    show(f"unequal all-to-all, all at once, {few} ranks", lambda: timer.time(blocks))
    on_tree = {"placement": "random", "overrides": TREE}
    sizes = generator.integers(0, 200_001, many).tolist()
    show(f"unequal ring all-gather, random, {many:,} ranks", collective("all_gather", many, sizes, **on_tree))
    flying = {"algorithm": "ring:chunks=4,release=sent", **on_tree}
    show(f"ring:chunks=4,release=sent, random, {many:,} ranks", collective("all_reduce", many, 2**26, **flying))
    options = {"algorithm": "pairwise", "overrides": TREE}
    show(f"pairwise all-to-all, 2:1, {more:,} ranks", collective("all_to_all", more, 2**30, **options))
    show(f"auto all-reduce, three levels, {most:,} ranks", collective("all_reduce", most, 2**30, overrides=LARGE))


if __name__ == "__main__":
    main()
