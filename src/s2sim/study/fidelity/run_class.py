"""What a collective on real hardware has in common with measured ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.profile import PLAIN
from s2sim.collectives.libraries.software import Software

if TYPE_CHECKING:
    from s2sim.collectives.libraries.profile import Profile
    from s2sim.topology.cluster import Cluster

_NONE = "none"


@dataclass(frozen=True, slots=True)
class RunClass:
    """The class of a collective: GPU and network by the names of the catalogue (``none`` for hosts, and for one node).

    ``launch`` is ``gpu`` for a process each, ``node`` for one that launches on all GPUs of its node.
    """

    gpu: str
    network: str
    collective: str
    launch: str

    @property
    def alike(self) -> tuple[str, str, str, str]:
        """All of it."""
        return self.gpu, self.network, self.collective, self.launch


def run_class(cluster: Cluster, profile: Profile, kind: str) -> RunClass | None:
    """Return the class of a collective that runs by a library's shipped constants; None for all others."""
    if profile == PLAIN or (isinstance(profile, Software) and profile.own):
        return None
    several = len(np.unique(cluster.node_of_rank)) > 1
    transport = cluster.dims.node_set.specs[0].transport
    launch = "node" if isinstance(profile, Software) and profile.one_process else "gpu"
    return RunClass(cluster.shape.gpu or _NONE, transport or _NONE if several else _NONE, kind, launch)
