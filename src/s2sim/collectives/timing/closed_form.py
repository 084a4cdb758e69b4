"""The closed form of a collective on a cluster, or a refusal where messages share a link direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.hops import Hop, Hops
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.errors import ContendedError
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.schedules.schedule import Pattern, Schedule
    from s2sim.topology.cluster import Cluster

_Ways: TypeAlias = frozenset[tuple[bool, int, float]]  # inside a node, latency in picoseconds, bytes per second


def closed_form_s(schedule: Schedule, cluster: Cluster) -> float:
    """Return the closed form of a schedule's algorithm for the ways that its messages take.

    Raises
    ------
    ContendedError
        Where two messages of a round share a link direction, hosts' own ports included, or where ways differ in
        latency or rate from round to round, or in a round whose messages differ in size: no closed form holds there.
    """
    if schedule.rounds == 0:
        return 0.0
    times = RoundTimes(cluster, schedule.release)
    ways: set[_Ways] = set()
    uneven = False
    for sent in (step.round for step in schedule.steps if step.round.pattern.messages):
        if not times.alone(sent.pattern).all():
            raise ContendedError(
                f"{schedule.algorithm} on {cluster.shape.name} has no closed form: messages share link directions; "
                "simulate it instead"
            )
        taken = _ways(sent.pattern, cluster, times)
        ways.add(taken)
        uneven |= len(taken) > 1 and bool(np.ptp(sent.bytes) > 0)
    # Rounds inside nodes and rounds between them may differ from each other, but not among themselves.
    inside = {taken for taken in ways if all(within for within, _, _ in taken)}
    if len(ways - inside) > 1 or len(inside) > 1 or uneven:
        raise ContendedError(
            f"{schedule.algorithm} on {cluster.shape.name} has no closed form: ways differ in latency or rate from "
            "round to round; simulate it instead"
        )
    found = sorted(frozenset().union(*ways))
    hops = Hops(
        inside=tuple(Hop(latency / PS_PER_S, rate) for within, latency, rate in found if within),
        across=tuple(Hop(latency / PS_PER_S, rate) for within, latency, rate in found if not within),
        nodes=len(np.unique(cluster.node_of_rank)),
    )
    return make_algorithm(schedule.algorithm, schedule.demand.kind).closed_form_s(schedule.demand, hops)


def _ways(pattern: Pattern, cluster: Cluster, times: RoundTimes) -> _Ways:
    routes = times.routes(pattern)
    rates = routes.narrowest(cluster.fabric.rate_Bps)
    if pattern.through_switch:
        inside = np.array([cluster.dims.nodes == 1])
    else:
        inside = cluster.node_of_rank[pattern.src] == cluster.node_of_rank[pattern.dst]
    return frozenset(zip(inside.tolist(), routes.latency_ps.tolist(), rates.tolist(), strict=True))
