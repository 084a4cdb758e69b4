"""Which GPU each rank runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.dimensions import Dimensions

PLACEMENTS = ("linear", "round-robin")


def place(dims: Dimensions, placement: str) -> NDArray[np.int64]:
    """Return the GPU of each rank, shape (workers,).

    ``linear``: rank r on GPU r, so nodes fill in order. ``round-robin``: the same GPUs, dealt to the leaves in turn,
    inside a leaf to its nodes in turn, inside a node in order; whatever is full drops out.
    """
    gpus = np.arange(dims.workers, dtype=np.int64)
    if placement == "linear":
        return gpus
    if placement != "round-robin":
        raise unknown_name("placement", placement, PLACEMENTS)
    node, local = np.divmod(gpus, dims.gpus_per_node)
    leaf = node // dims.hosts_per_leaf
    # Each leaf's GPUs in the order in which it deals them, and which of its turns each one gets.
    dealt = np.lexsort((node, local, leaf))
    first_of_leaf = np.searchsorted(leaf, np.arange(dims.leaves))
    turn = np.empty_like(gpus)
    turn[dealt] = gpus - first_of_leaf[leaf[dealt]]
    return np.lexsort((leaf, turn)).astype(np.int64)
