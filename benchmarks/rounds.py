"""What schedules of many rounds cost: CPU seconds, rounds solved for rates, and searches for routes.

Most rounds are told by their busiest link, routes are searched once for all rates, and rounds are known by content;
what is left is solved. Break-even is `s2sim.run` less the same without it. Run with ``python benchmarks/rounds.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

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
    run = {"topology": "fat-tree", "workers": 64}
    without_s = show("run, 64 workers, without break-even", lambda: s2sim.run(**run, break_even=False))
    show("break-even alone", lambda: s2sim.run(**run), without_s)
    blocks = all_to_all_demand(generator.integers(0, 200_001, (64, 64)), 4)
    timer = Timer(build_cluster(load_shape("leaf-spine"), 64), "spread:partners=64")
    show("unequal all-to-all, all at once, 64 ranks", lambda: timer.time(blocks))
    on_tree = {"placement": "random", "overrides": TREE}
    sizes = generator.integers(0, 200_001, 1024).tolist()
    show("unequal ring all-gather, random, 1,024 ranks", collective("all_gather", 1024, sizes, **on_tree))
    flying = {"algorithm": "ring:chunks=4,release=sent", **on_tree}
    show("ring:chunks=4,release=sent, random, 1,024 ranks", collective("all_reduce", 1024, 2**26, **flying))
    options = {"algorithm": "pairwise", "overrides": TREE}
    show("pairwise all-to-all, 2:1, 4,096 ranks", collective("all_to_all", 4096, 2**30, **options))
    show("auto all-reduce, three levels, 131,072 ranks", collective("all_reduce", 131072, 2**30, overrides=LARGE))


if __name__ == "__main__":
    main()
