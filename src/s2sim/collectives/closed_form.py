"""The closed form of a collective on a cluster, or a refusal where messages share a link direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.registry import make_algorithm
from s2sim.collectives.rounds import RoundTimes
from s2sim.errors import ContendedError
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.schedule import Schedule
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


def closed_form_s(schedule: Schedule, cluster: Cluster, routes: Routes) -> float:
    """Return the closed form of a schedule's algorithm, for the hop that takes longest.

    Raises
    ------
    ContendedError
        Where two messages of a round share a link direction, hosts' own ports included, or where hops differ and
        rounds do too: no closed form holds there.
    """
    demand = schedule.demand
    if schedule.rounds == 0:
        return 0.0
    times = RoundTimes(cluster.fabric, routes)
    rounds = range(1 if schedule.uniform else schedule.rounds)
    if not all(times.alone(schedule.round_at(k).pair).all() for k in rounds):
        raise ContendedError(
            f"{schedule.algorithm} on {cluster.shape.name} has no closed form: messages share link directions; "
            "simulate it instead"
        )
    rates = routes.narrowest(cluster.fabric.rate_Bps)
    hops = {(int(latency), float(rate)) for latency, rate in zip(routes.latency_ps, rates, strict=True)}
    if len(hops) > 1 and not schedule.uniform:
        raise ContendedError(
            f"{schedule.algorithm} on {cluster.shape.name} has no closed form: hops differ in latency or rate, and "
            "rounds in size; simulate it instead"
        )
    algorithm = make_algorithm(schedule.algorithm, demand.kind)
    nodes = len(np.unique(cluster.node_of_rank))
    return max(
        algorithm.closed_form_s(demand, nodes=nodes, latency_s=latency / PS_PER_S, rate_Bps=rate)
        for latency, rate in hops
    )
