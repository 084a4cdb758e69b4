"""A script: what one rank did in a reduction, without clock or topology; a cluster replays it in simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["encode", "decode"]
Kind: TypeAlias = Literal["all_reduce", "all_gather", "all_to_all", "reduce_scatter", "broadcast", "reduce"]


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one rank between collectives: of its GPU, and of the CPU of its host.

    Attributes
    ----------
    phase : {"encode", "decode"}
        Which time it counts to.
    bytes_moved, launches : int
        Bytes read from and written to the GPU's memory, and kernels started.
    dense_encode_bytes, dense_decode_bytes : int
        Bytes of a dense table that is converted to or from element coordinates, in as many passes as the GPU's
        catalogue entry says; 0 for codecs that work on rows + values.
    flops : int
        Float32 operations of its kernels, multiplications and additions counted apart, outside of tensor cores; they
        run beside the bytes, and the longer of the two counts.
    host_steps : int
        Values or bits that one core of the CPU codes one after the other.
    copied_bytes : int
        Bytes that cross the PCIe between GPU and host, either way.
    """

    phase: Phase
    bytes_moved: int
    launches: int = 1
    dense_encode_bytes: int = 0
    dense_decode_bytes: int = 0
    flops: int = 0
    host_steps: int = 0
    copied_bytes: int = 0

    @property
    def sizes(self) -> dict[str, int]:
        """What grows with a gradient, by field: all but the number of kernels."""
        return {
            "bytes_moved": self.bytes_moved,
            "dense_encode_bytes": self.dense_encode_bytes,
            "dense_decode_bytes": self.dense_decode_bytes,
            "flops": self.flops,
            "host_steps": self.host_steps,
            "copied_bytes": self.copied_bytes,
        }


@dataclass(frozen=True, slots=True)
class Call:
    """One collective, of all ranks or some of them.

    Attributes
    ----------
    op : {"sum", "max", "or", "gather", "exchange", "peers", "copy"}
        How contributions combine; ``peers`` where blocks go to some ranks alone, in sends and receives of each pair.
    dtype, itemsize : str, int
        NumPy name of an element's type, and its bytes; an all-reduce is cut into chunks of whole elements.
    elements : tuple of int
        Elements that each rank contributes, in rank order, all equal for an all-reduce, a reduce and a broadcast; of a
        reduce-scatter those of the part that each ends with.
    size_from_data : bool
        Whether the size was known only from data, so that the host waits for the GPU before it can post.
    label : str
        What is sent, for people.
    blocks : tuple of tuple of int
        Elements that each rank has for each rank, itself included, in an all-to-all; empty in others.
    root : int
        Place among the ranks that a broadcast comes from or a reduce goes to.
    ranks : tuple of int
        Who takes part, in rank order; empty for all.
    """

    kind: Kind
    op: str
    dtype: str
    itemsize: int
    elements: tuple[int, ...]
    size_from_data: bool
    label: str
    blocks: tuple[tuple[int, ...], ...] = ()
    root: int = 0
    ranks: tuple[int, ...] = ()

    @property
    def bytes_by_rank(self) -> tuple[int, ...]:
        """Bytes that each rank that takes part contributes."""
        if self.kind == "reduce_scatter":
            return (sum(self.elements) * self.itemsize,) * len(self.elements)
        if self.kind == "broadcast":
            return tuple(count * self.itemsize * (at == self.root) for at, count in enumerate(self.elements))
        return tuple(count * self.itemsize for count in self.elements)


@dataclass(frozen=True, slots=True)
class Post:
    """The rank hands its contribution to the collective ``call`` and goes on."""

    call: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The rank waits until all of ``calls`` are complete for it."""

    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AwaitGradient:
    """What comes next needs the gradient; all before it needs the batch alone, and runs beside forward and backward."""


@dataclass(frozen=True, slots=True)
class HostSync:
    """The host waits for the GPU, because what comes next depends on the data."""


Step: TypeAlias = "Work | Post | Wait | AwaitGradient | HostSync"
Script: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """The scripts of all ranks, and their collectives in the order in which they were first posted.

    They are those of one training step or, of a reducer that does not exchange every one, of ``steps`` together.
    """

    calls: tuple[Call, ...]
    scripts: tuple[Script, ...]
    steps: int = 1

    @property
    def workers(self) -> int:
        """Number of ranks."""
        return len(self.scripts)
