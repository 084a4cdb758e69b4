"""Conformance kit for collective algorithms: what every one must do, whichever way its data takes.

A plug-in's test is one line, once its entry point is installed: ``check_algorithm(MyAlgorithm())``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.bounds import lower_bound
from s2sim.collectives.checker import check_schedule
from s2sim.collectives.registry import make_algorithm
from s2sim.collectives.rounds import RoundTimes, schedule_ps
from s2sim.collectives.running import Running
from s2sim.collectives.schedule import KINDS, Demand
from s2sim.network.fluid import FluidNetwork
from s2sim.testing.require import require, require_options
from s2sim.topology.catalogue import load_shape
from s2sim.topology.cluster import build_cluster
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s2sim.collectives.registry import Algorithm
    from s2sim.collectives.schedule import Kind, Schedule
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.cuts import Cuts
    from s2sim.topology.routes import Routes

RANK_COUNTS = (*range(1, 18), 33, 65)
"""One rank, all small counts up to one more than a power of two, and two more of those."""

TOPOLOGIES = {"fat-tree": ("node.gpus=4",), "single-switch": ()}
"""Shipped clusters, with overrides: nodes of four GPUs that share an interface, and of one."""

ITEM_BYTES = 4

_UNEVEN = 101
_LARGE = 1_000_000  # elements: here bandwidth counts, below it latency


def check_algorithm(algorithm: Algorithm) -> None:
    """Check that an algorithm does what every algorithm must, for all its kinds.

    Parameters
    ----------
    algorithm : Algorithm
        With any options.

    Raises
    ------
    AssertionError or S2SimError
        Naming the first thing that it does wrong.
    """
    require_options(algorithm)
    require(algorithm.kinds, f"{algorithm.name} runs no kind of collective")
    for kind in algorithm.kinds:
        require(kind in KINDS, f"{algorithm.name} runs {kind!r}, which is none of {', '.join(KINDS)}")
    for kind in (known for known in KINDS if known in algorithm.kinds):
        for ranks in RANK_COUNTS:
            for demand in _demands(kind, ranks):
                _check_closed_form(algorithm, demand)
                for topology in TOPOLOGIES:
                    _check_demand(algorithm, demand, topology)


def _demands(kind: Kind, ranks: int) -> Iterator[Demand]:
    """Yield an uneven number of elements, fewer than ranks, as many, none, many; for an all-gather unequal ones."""
    generator = np.random.default_rng(ranks)
    for size in (_UNEVEN, 1, ranks, 0, _LARGE):
        equal = (size,) * ranks
        unequal = tuple(generator.integers(0, size + 1, ranks).tolist())
        yield Demand(kind, equal if kind == "all_reduce" else unequal, ITEM_BYTES)


@cache
def _cluster(topology: str, ranks: int) -> tuple[Cluster, Cuts]:
    cluster = build_cluster(load_shape(topology, TOPOLOGIES[topology]), ranks)
    return cluster, cluster.cuts()


def _check_closed_form(algorithm: Algorithm, demand: Demand) -> None:
    seconds = algorithm.closed_form_s(demand, nodes=demand.ranks, latency_s=1e-6, rate_Bps=1e9)
    require(seconds >= 0, f"the closed form of {demand.kind} over {demand.ranks} ranks is {seconds} s")
    require(demand.ranks > 1 or seconds == 0, f"the closed form of {demand.kind} on one rank is {seconds} s, not 0")


def _check_demand(algorithm: Algorithm, demand: Demand, topology: str) -> None:
    cluster, cuts = _cluster(topology, demand.ranks)
    where = f"in {demand.kind} of {demand.buffer_elements} elements over {demand.ranks} ranks on {topology}"
    schedule = algorithm.schedule(demand, cluster)
    require(schedule.demand == demand, f"the schedule is for another demand {where}")
    _check_rounds(schedule, where)
    most = max(demand.elements)
    if most <= _UNEVEN:
        check_schedule(schedule)
    _check_read_back(schedule, cluster, where)
    _check_time(schedule, cluster, cuts, where)


def _check_rounds(schedule: Schedule, where: str) -> None:
    """Check that pairs are of two ranks, used once a round, and that bytes are those of what is sent."""
    ends = np.concatenate([schedule.src, schedule.dst])
    inside = (ends >= 0) & (ends < schedule.demand.ranks)
    require(inside.all(), f"a pair leads to or from a rank that does not exist {where}")
    require((schedule.src != schedule.dst).all(), f"a pair leads from a rank to itself {where}")
    for k in range(schedule.rounds):
        transfers = schedule.round_at(k)
        known = (transfers.pair >= 0) & (transfers.pair < len(schedule.src))
        require(known.all(), f"round {k} uses a pair that the schedule does not have {where}")
        once = len(np.unique(transfers.pair)) == len(transfers.pair)
        require(once, f"round {k} uses a pair twice {where}")
        # A nominal share may differ from whole elements by the rounding at both ends.
        off = np.abs(transfers.bytes - (transfers.stop - transfers.start) * schedule.demand.itemsize)
        require((off < 2 * schedule.demand.itemsize).all(), f"round {k} counts other bytes than it sends {where}")


def _check_read_back(schedule: Schedule, cluster: Cluster, where: str) -> None:
    """Check that the schedule's option string makes the same schedule again."""
    again = make_algorithm(schedule.algorithm, schedule.demand.kind).schedule(schedule.demand, cluster)
    same = schedule.rounds == again.rounds and schedule.algorithm == again.algorithm
    for own, other in ((schedule.src, again.src), (schedule.dst, again.dst)):
        same = same and np.array_equal(own, other)
    for k in range(schedule.rounds if same else 0):
        left, right = schedule.round_at(k), again.round_at(k)
        for field in ("pair", "start", "stop", "bytes"):
            same = same and np.array_equal(getattr(left, field), getattr(right, field))
    require(same, f"{schedule.algorithm!r} reads back to an algorithm with another schedule {where}")


def _check_time(schedule: Schedule, cluster: Cluster, cuts: Cuts, where: str) -> None:
    """Check that repetition claimed is repetition found, and that no schedule beats bandwidth."""
    routes = cluster.routes(schedule.src, schedule.dst)
    duration_ps = schedule_ps(schedule, RoundTimes(cluster.fabric, routes).time_ps)
    simulated_ps = _simulate_ps(schedule, cluster, routes)
    require(duration_ps == simulated_ps, f"rounds take {duration_ps} ps, but {simulated_ps} in the network {where}")
    bound = lower_bound([schedule.demand], cuts)
    enough = duration_ps / PS_PER_S >= bound.seconds
    require(enough, f"{duration_ps} ps are under the lower bound by {bound.derivation} {where}")


def _simulate_ps(schedule: Schedule, cluster: Cluster, routes: Routes) -> int:
    """Return the duration by the fluid network as it would run beside others: the plain path, no round reused."""
    import simpy

    env = simpy.Environment(initial_time=0)
    Running(FluidNetwork(env, cluster.fabric), schedule, routes, lambda: None).start()
    env.run()
    return int(env.now)
