"""What faults make of a cluster before anything runs: links that are slow or dead from the start on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.replay.faults.fault import Damage
from s2sim.topology.damage import damage, slow_down

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.replay.faults.fault import Effect, Fault
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


def damaged_cluster(cluster: Cluster, faults: Sequence[Fault]) -> Cluster:
    """Return the cluster with those of the faults that last from the start on; the others are left out.

    `TopologyError` for links and `OptionError` for ranks that do not exist.
    """
    links = len(cluster.fabric)
    done = Damage(np.ones(links), np.zeros(links, np.bool_), [])
    for fault in faults:
        fault.check(cluster)
        fault.damage(cluster, done)
    if (done.factors < 1).any():
        cluster = slow_down(cluster, done.factors)
    return damage(cluster, done.dead, " and ".join(done.why)) if done.why else cluster


def permanent_effects(
    faults: Sequence[Fault], cluster: Cluster, sent: Iterable[tuple[Routes, Routes, int]]
) -> list[Effect]:
    """Return what those of the faults did that last from the start on.

    ``sent`` tells the routes of messages on the healthy cluster, their routes on the damaged one, and how often they
    went.
    """
    found = [meetings for fault in faults if (meetings := fault.meetings(cluster)) is not None]
    if not found:
        return []
    for healthy, damaged, times in sent:
        for meetings in found:
            meetings.add(healthy, damaged, times)
    effects = [meetings.effect() for meetings in found]
    # Traffic of its own may meet any link.
    others = any(fault.sends for fault in faults)
    return [replace(effect, nothing=effect.nothing and not others) for effect in effects]
