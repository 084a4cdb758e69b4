"""How training iterations run on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """How iterations run.

    Attributes
    ----------
    waits_for_all : bool
        Whether the next forward waits for all gradients, or a layer only for those of its own parameters.
    streams : int
        Of each GPU: 1 where codec work stands between kernels of compute, 2 where it runs beside them.
    host_loop_ps : int
        What a loop of the host over tensors takes for each, before a bucket is encoded and before it is decoded.
    accumulate : int
        Mini-batches before gradients are exchanged.
    slower : float64 array, shape (iterations, ranks)
        How many times as long each rank's compute takes in each iteration; its length says how many run.
    idle_ps : int
        What ranks wait in each iteration for stages of a pipeline, before the last mini-batch.
    """

    slower: Floats
    waits_for_all: bool = True
    streams: int = 1
    host_loop_ps: int = 0
    accumulate: int = 1
    idle_ps: int = 0
