"""How fast bytes can leave and enter groups of ranks: what bandwidth lower bounds are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.topology.capacity import below_switches, find_capacity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Ints
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Layout


@dataclass(frozen=True, slots=True, eq=False)
class CutFamily:
    """One partition of the ranks: by GPU, by node, and as the kind of fabric has it.

    Attributes
    ----------
    name : str
        ``"gpu"``, ``"PCIe switch"``, ``"node"``, ``"NVLink domain"``; ``"leaf"`` and ``"pod"`` of a tree,
        ``"rail group"``, ``"router"`` and ``"group"`` of a dragonfly, ``"dimension-0 plane"`` and ``"dimension-0
        slab"`` of a torus.
    group_of_rank : int64 array, shape (workers,)
        Which group each rank belongs to; every group has at least one.
    egress_Bps, ingress_Bps : float64 array, shape (groups,)
        The most that all links out of, or into, a group carry together: never too low, so that a bound made of it
        is never too high.
    """

    name: str
    group_of_rank: Ints
    egress_Bps: Floats
    ingress_Bps: Floats

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.egress_Bps)


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """The families of a cluster, those with at least two groups, inner ones first.

    Its ranks are ``beside`` as many as there are of one collective, one after the other, that do the same at once.
    """

    families: tuple[CutFamily, ...]
    beside: int = 1

    def __getitem__(self, name: str) -> CutFamily:
        """Return the family called ``name``; `KeyError` where the cluster has none."""
        for family in self.families:
            if family.name == name:
                return family
        raise KeyError(name)

    def within(self, ranks: Sequence[int]) -> Cuts:
        """Return the same partitions of a group of some ranks, in this order; of those beside each other in each."""
        members = np.asarray(ranks, np.int64)

        def of(group_of_rank: Ints) -> Ints:
            taken: Ints = group_of_rank.reshape(self.beside, -1)[:, members].reshape(-1)
            return taken

        families = (replace(family, group_of_rank=of(family.group_of_rank)) for family in self.families)
        return Cuts(tuple(families), self.beside)


def find_cuts(layout: Layout, fabric: Fabric, gpu_of_rank: Ints) -> Cuts:
    """Return every family of the cluster, with the capacities of all links out of its groups and into them."""
    nodes = layout.dims.node_set
    out, into = (find_capacity(layout, fabric, way) for way in ("out", "in"))
    node_of_rank = nodes.node_of_gpu[gpu_of_rank]
    families = [CutFamily("gpu", gpu_of_rank, out.gpu_Bps, into.gpu_Bps)]
    if nodes.pcie_switches:
        below = below_switches(nodes)[gpu_of_rank]
        families.append(CutFamily("PCIe switch", below, out.switch_Bps, into.switch_Bps))
    families.append(CutFamily("node", node_of_rank, out.node_Bps, into.node_Bps))
    if nodes.domains < nodes.count:
        domain = nodes.domain_of_gpu[gpu_of_rank]
        families.append(CutFamily("NVLink domain", domain, out.domain_Bps, into.domain_Bps))
    for partition, out_Bps, in_Bps in zip(layout.partitions(), out.families, into.families, strict=True):
        families.append(CutFamily(partition.name, partition.group_of_node[node_of_rank], out_Bps, in_Bps))
    return Cuts(tuple(family for family in families if family.groups > 1))
