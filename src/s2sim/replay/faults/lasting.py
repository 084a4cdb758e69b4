"""Links that are slow or dead from the start on: what faults make of a cluster before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError
from s2sim.replay.faults.kinds import Background, FailLink, SlowLink, SlowRank, fault_text
from s2sim.topology.damage import damage, slow_down
from s2sim.topology.find_links import find_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.replay.faults.kinds import Fault
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault did.

    Attributes
    ----------
    fault : str
        Its option string.
    did : str
        In words.
    nothing : bool
        Whether that was nothing.
    """

    fault: str
    did: str
    nothing: bool


def is_lasting(fault: Fault) -> bool:
    """Return whether a fault is a property of the cluster: links that are slow or dead from the start on."""
    return isinstance(fault, (SlowLink, FailLink)) and fault.lasting


def damaged_cluster(cluster: Cluster, faults: Sequence[Fault]) -> Cluster:
    """Return the cluster with those of the faults that last from the start on; the others are left out.

    Raises
    ------
    TopologyError
        For links that do not exist.
    OptionError
        For ranks that do not exist.
    """
    factors, dead = np.ones(len(cluster.fabric)), np.zeros(len(cluster.fabric), np.bool_)
    failed = []
    for fault in faults:
        if isinstance(fault, SlowRank) and fault.rank >= cluster.workers:
            raise OptionError(f"{fault_text(fault)}: there are {cluster.workers} ranks, from 0 on")
        if isinstance(fault, (SlowLink, FailLink)):
            links = find_links(cluster.fabric, fault.link, cluster.shape.name)
            if fault.lasting and isinstance(fault, SlowLink):
                factors[links] *= fault.factor
            elif fault.lasting and isinstance(fault, FailLink):
                dead[links] = True
                failed.append(fault.words)
    if (factors < 1).any():
        cluster = slow_down(cluster, factors)
    return damage(cluster, dead, " and ".join(failed)) if failed else cluster


def lasting_effects(
    faults: Sequence[Fault], cluster: Cluster, sent: Iterable[tuple[Routes, Routes, int]]
) -> list[Effect]:
    """Return what those of the faults did that last from the start on.

    Parameters
    ----------
    faults : sequence of Fault
        All of them.
    cluster : Cluster
        Names the links.
    sent : iterable of (Routes, Routes, int)
        What was sent: the routes of messages on the healthy cluster, their routes on the damaged one, and how often.
    """
    lasting = [fault for fault in faults if isinstance(fault, (SlowLink, FailLink)) and fault.lasting]
    if not lasting:
        return []
    marked = np.zeros((len(lasting), len(cluster.fabric)), np.bool_)
    for row, fault in zip(marked, lasting, strict=True):
        row[find_links(cluster.fabric, fault.link, cluster.shape.name)] = True
    messages = [0] * len(lasting)
    for healthy, damaged, times in sent:
        for index, fault in enumerate(lasting):
            routes = healthy if isinstance(fault, FailLink) else damaged
            if len(routes.latency_ps):
                crossing = np.logical_or.reduceat(marked[index][routes.links], routes.offsets[:-1])
                messages[index] += times * int(np.count_nonzero(crossing))
    effects = [link_effect(fault, count) for fault, count in zip(lasting, messages, strict=True)]
    # Background traffic may meet any link.
    others = any(isinstance(fault, Background) for fault in faults)
    return [replace(effect, nothing=effect.nothing and not others) for effect in effects]


def link_effect(fault: SlowLink | FailLink, messages: int) -> Effect:
    """Return what a fault of links did, by the number of messages that met it."""
    if isinstance(fault, FailLink):
        did = f"{messages:,} messages took another way" if messages else "no message would have crossed it"
    else:
        met = f"{messages:,} messages crossed" if messages else "no message crossed"
        did = f"{met} it at {fault.factor:g} of its rate"
    return Effect(fault_text(fault), did, messages == 0)
