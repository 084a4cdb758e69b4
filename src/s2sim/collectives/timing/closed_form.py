"""The closed form of a collective on a cluster, or a refusal where messages share a link direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.hops import Hop, Hops
from s2sim.collectives.schedules.overheads import inside_node
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.errors import ContendedError
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule
    from s2sim.topology.cluster import Cluster

_Ways: TypeAlias = frozenset[tuple[bool, int, float]]  # inside a node, latency in picoseconds, bytes per second

# What multiplying and dividing by a factor may change.
_ROUNDING = 1e-12


def closed_form_s(schedule: Schedule, cluster: Cluster, times: RoundTimes | None = None) -> float:
    """Return the closed form of a schedule's algorithm for the ways that its messages take.

    With ``times`` what these know of routes serves.

    Raises
    ------
    ContendedError
        Where two messages of a round share a link direction, hosts' own ports included, or where ways differ in
        latency or rate from round to round, or in a round whose messages differ in size: no closed form holds there.
    """
    launch_s = schedule.launch_ps / PS_PER_S
    if schedule.rounds == 0:
        return launch_s
    times = times or RoundTimes(cluster, schedule.release)
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
        uneven |= len(taken) > 1 and _differ(sent)
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
    algorithm = make_algorithm(schedule.algorithm, schedule.demand.kind)
    return launch_s + algorithm.closed_form_s(schedule.demand, hops)


def _differ(sent: Round) -> bool:
    """Return whether the messages of a round differ in size, whatever a library makes of their bytes."""
    if sent.pattern.overheads is None:
        return bool(np.ptp(sent.bytes) > 0)
    sizes_bytes = sent.bytes / sent.pattern.overheads.factor
    return bool(np.ptp(sizes_bytes) > _ROUNDING * sizes_bytes.max())


def _ways(pattern: Pattern, cluster: Cluster, times: RoundTimes) -> _Ways:
    routes, limits_Bps = times.routes(pattern).with_limits_as_links(len(cluster.fabric))
    rates = routes.narrowest(np.concatenate([cluster.fabric.rate_Bps, limits_Bps]))
    if pattern.overheads is not None:
        # The closed form knows the bytes of the collective, not what the library makes of them.
        rates = rates / pattern.overheads.factor
    inside = inside_node(cluster, pattern)
    return frozenset(zip(inside.tolist(), routes.latency_ps.tolist(), rates.tolist(), strict=True))
