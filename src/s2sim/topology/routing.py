"""Which way a transfer takes: out of its node, through the fabric as its kind has it, into the other node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.topology.node import port_of_gpu
from s2sim.topology.stages import single

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Layout
    from s2sim.topology.routes import Stage

    Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Router:
    """Everything that decides a way: the kind of fabric, the graph and the seed of the hash."""

    layout: Layout
    fabric: Fabric
    seed: int

    def stages(self, source: Indices, target: Indices) -> list[Stage]:
        """Return what transfers between GPUs cross, in order.

        Parameters
        ----------
        source, target : int64 array, shape (m,)
            GPU numbers, different in each pair.
        """
        dims, fabric, shape = self.layout.dims, self.fabric, self.layout.shape
        inside = source // dims.gpus_per_node == target // dims.gpus_per_node
        outside = ~inside
        source_port, target_port = port_of_gpu(dims, source), port_of_gpu(dims, target)
        stages_out, stages_in = [], []
        over_pcie = np.zeros(len(source), np.bool_)
        if "nvlink.out" in fabric.blocks:
            stages_out.append(single(fabric, "nvlink.out", source, inside))
            stages_in.append(single(fabric, "nvlink.in", target, inside))
        if shape.pcie is not None:
            over_pcie = outside if stages_out else ~over_pcie
            stages_out.append(single(fabric, "pcie.out", source, over_pcie))
            stages_in.append(single(fabric, "pcie.in", target, over_pcie))
        return [
            *stages_out,
            single(fabric, "nic.out", source_port, outside),
            *self.layout.stages(fabric, source_port, target_port, outside, self.seed),
            single(fabric, "nic.in", target_port, outside),
            *stages_in,
        ]
