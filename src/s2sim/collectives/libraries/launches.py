"""What is asked of a communication library, and what it executes for it: launches, and work between them."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.blocks import blocks_of, exchange
from s2sim.collectives.schedules.demand import Demand

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = "sizes"
"""What the launch of an exchange of sizes carries."""


@dataclass(frozen=True, slots=True)
class Request:
    """A collective that a reducer calls.

    ``op`` is ``sum``, ``max`` or ``or`` of what reduces, ``gather`` of an all-gather, ``exchange`` of an all-to-all or
    ``peers`` where blocks go to some ranks alone, ``copy`` of a broadcast, ``pass`` of sends to the next rank. With
    ``size_from_data`` ranks know only from data how much they contribute.
    """

    demand: Demand
    op: str
    dtype: str
    size_from_data: bool

    @property
    def row(self) -> str:
        """The operation under which tables have it: with a ``v`` where sizes differ or only data tells them.

        All ranks hold as much of what is reduced, so that none has to be told; both peers know what passes between
        them unless only data tells.

        >>> Request(Demand("all_gather", (3, 4), 1), "gather", "uint8", False).row
        'gatherv'
        """
        kind, sizes = self.demand.kind, set(self.demand.elements)
        if kind in ("all_reduce", "reduce"):
            return self.op
        if self.op == "exchange" and self.demand.blocks:
            sizes = {size for row in self.demand.blocks for size in row}
        differ = len(sizes) > 1 and self.op != "peers"
        return f"{self.op}v" if differ or (self.size_from_data and kind != "reduce_scatter") else self.op

    @property
    def text(self) -> str:
        """For people.

        >>> Request(Demand("all_reduce", (8, 8), 1), "or", "uint8", False).text
        'all_reduce or uint8'
        """
        kind, root = self.demand.kind, self.demand.root
        unequal = " of unequal sizes" if self.row != self.op else ""
        if kind == "reduce":
            return f"reduce {self.op} {self.dtype} to rank {root}"
        if kind == "broadcast":
            return f"broadcast {self.dtype} from rank {root}"
        if self.op == "peers":
            return f"exchange {self.dtype} between peers"
        if kind in ("all_reduce", "reduce_scatter"):
            return f"{kind} {self.op} {self.dtype}{unequal}"
        return f"{kind} {self.dtype}{unequal}"


@dataclass(frozen=True, slots=True)
class Local:
    """What the busiest rank does by itself between launches.

    ``gpu_bytes`` are read from and written to the GPU's memory (packing, merging, copying padding out), by so many
    ``kernels``; ``host_syncs`` counts how often the host waits for the GPU.
    """

    gpu_bytes: int = 0
    kernels: int = 0
    host_syncs: int = 0
    to_host_bytes: int = 0
    to_gpu_bytes: int = 0

    def __add__(self, other: Local) -> Local:
        return Local(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Step:
    """Demands of one kind that are launched at once, and what has to be done before, once the step before has ended.

    ``what`` says what goes, where it is not the payload itself.
    """

    demands: tuple[Demand, ...]
    before: Local = Local()
    what: str = ""


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a library executes for one call: steps one after another, and the work after the last of them.

    ``options`` of the library decided it; ``ranks`` take part, on a communicator of their own, all if empty.
    """

    steps: tuple[Step, ...]
    after: Local
    asked: str
    executes: str
    why: str
    options: frozenset[str] = frozenset()
    ranks: tuple[int, ...] = ()

    @property
    def demands(self) -> tuple[Demand, ...]:
        """All that goes over the network."""
        return tuple(demand for step in self.steps for demand in step.demands)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each launch."""
        return tuple(step.demands[0].kind for step in self.steps)

    @property
    def holds_host(self) -> bool:
        """Whether the host needs the sizes before it can launch the payload; its program goes on only then."""
        return self.steps[0].what == SIZES


def one_launch(demands: Sequence[Demand]) -> Demand:
    """Return what one launch of collectives of a kind asks of the network: one keeps its elements, several count bytes.

    Broadcasts of several roots follow each other through the ranks; they are timed as one of all bytes from the first
    root: every rank but the root passes as many bytes on as it would, and no link carries more than its share and one
    contribution. So are reduces to several roots.
    """
    first, ranks = demands[0], demands[0].ranks
    if len(demands) == 1:
        return first
    if any(demand.blocks for demand in demands):
        return exchange(np.sum([blocks_of(demand).sizes() for demand in demands], axis=0), 1)
    if first.shared:
        return Demand(first.kind, (sum(demand.buffer_bytes for demand in demands),) * ranks, 1, first.root)
    sizes = zip(*([count * demand.itemsize for count in demand.elements] for demand in demands), strict=True)
    return Demand(first.kind, tuple(map(sum, sizes)), 1)
