"""A script: what one rank did in a reduction, without clock or topology; a cluster replays it in simulated time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from s2sim.arrays import BlockTable, Ints, as_table

Phase: TypeAlias = Literal["encode", "decode"]
Kind: TypeAlias = Literal["all_reduce", "all_gather", "all_to_all", "reduce_scatter", "broadcast", "reduce"]


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one rank between collectives: of its GPU, and of the CPU of its host."""

    phase: Phase  # Which time it counts to
    # bytes_moved, launches: bytes read from and written to the GPU's memory, and kernels started
    bytes_moved: int
    launches: int = 1
    # dense_encode_bytes, dense_decode_bytes: bytes of a dense table that published code converts to or from element
    # coordinates, in as many measured passes as the GPU's catalogue entry says; they count instead of ``bytes_moved``
    # where published code is charged, or where that is 0
    dense_encode_bytes: int = 0
    dense_decode_bytes: int = 0
    # Float32 operations of its kernels, multiplications and additions counted apart, outside of tensor cores; they run
    # beside the bytes, and the longer of the two counts
    flops: int = 0
    host_steps: int = 0  # Values or bits that one core of the CPU codes one after the other
    copied_bytes: int = 0  # Bytes that cross the PCIe between GPU and host, either way
    fixed_ps: int = 0  # In addition, where neither memory nor arithmetic limits: a framework's host, one thread block

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of the fields that grow with a gradient: all except the phase and the number of kernels."""
        sizes: tuple[int, ...] = _sizes_of(self)
        return sizes

    def with_sizes(self, sizes: Sequence[int], launches: int) -> "Work":
        """Return the same work with other `sizes` and another number of kernels."""
        return Work(self.phase, launches=launches, **dict(zip(_SIZES, sizes, strict=True)))


_SIZES = [item.name for item in fields(Work) if item.name not in ("phase", "launches")]
_sizes_of = attrgetter(*_SIZES)
_WORK = Work("encode", 0)


@dataclass(frozen=True, slots=True)
class Call:
    """One collective, of all ranks or some of them."""

    kind: Kind
    # How contributions combine; ``peers`` where blocks go to some ranks alone, in sends and receives of each pair
    op: str
    # dtype, itemsize: numPy name of an element's type, and its bytes; an all-reduce is cut into chunks of whole
    # elements
    dtype: str
    itemsize: int
    # Elements that each rank contributes, in rank order, all equal for an all-reduce, a reduce and a broadcast; of a
    # reduce-scatter those of the part that each ends with
    elements: tuple[int, ...]
    # Whether the size was known only from data, so that the host waits for the GPU before it can post
    size_from_data: bool
    label: str  # What is sent, for people
    # Elements that each rank has for each rank, itself included, in an all-to-all; empty in others
    blocks: BlockTable | tuple[()] = ()
    root: int = 0  # Place among the ranks that a broadcast comes from or a reduce goes to
    ranks: tuple[int, ...] = ()  # Who takes part, in rank order; empty for all
    # Whether it only spreads the mean, of which each rank decodes its elements apart, so that one that keeps a shard of
    # the mean needs its own part alone
    spreads: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", as_table(self.blocks))

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


@dataclass(frozen=True)
class Recording:
    """The scripts of all ranks, and their collectives in the order in which they were first posted.

    They are those of one training step or, of a reducer that does not exchange every one, of ``steps`` together.
    ``buckets`` has the number of each call's bucket; () if there is one.
    """

    calls: tuple[Call, ...]
    scripts: tuple[Script, ...]
    steps: int = 1
    buckets: tuple[int, ...] = ()

    @property
    def workers(self) -> int:
        """Number of ranks."""
        return len(self.scripts)

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """For each rank the first one with an equal script."""
        first: dict[Script, int] = {}
        by_id: dict[int, int] = {}  # Most ranks share one object, whose steps are compared once
        for rank, script in enumerate(self.scripts):
            if id(script) not in by_id:
                by_id[id(script)] = first.setdefault(script, rank)
        return tuple(by_id[id(script)] for script in self.scripts)

    @property
    def distinct_scripts(self) -> list[Script]:
        """Unequal scripts, in the order of the ranks that have them first."""
        return [self.scripts[rank] for rank in dict.fromkeys(self.representatives)]

    @cached_property
    def order_of_calls(self) -> dict[int, Script]:
        """The scripts of representatives with nothing of their work but where it is."""
        found = dict.fromkeys(self.representatives)
        return {rank: tuple(_WORK if isinstance(step, Work) else step for step in self.scripts[rank]) for rank in found}

    @cached_property
    def before_gradient(self) -> "Recording":
        """What ranks do before they need the gradient, and the wait for its collectives."""
        found = {rank: split_at_gradient(self.scripts[rank])[0] for rank in dict.fromkeys(self.representatives)}
        for rank, part in found.items():
            found[rank] = part and (*part, Wait(tuple(step.call for step in part if isinstance(step, Post))))
        return replace(self, scripts=tuple(found[rank] for rank in self.representatives))


def split_at_gradient(script: Script) -> tuple[Script, Script]:
    """Return the parts of a script before and after it needs the gradient."""
    if AwaitGradient() not in script:
        return (), script
    place = script.index(AwaitGradient())
    return script[:place], script[place + 1 :]


def all_alike(recording: Recording) -> bool:
    """Return whether all ranks do the same, be it in groups of their own: calls differ in nothing but their ranks."""

    def done_by(script: Script) -> tuple[list[object], list[Call]]:
        numbers: dict[int, int] = {}
        steps: list[object] = []
        for step in script:
            called = (step.call,) if isinstance(step, Post) else step.calls if isinstance(step, Wait) else ()
            steps.append((type(step), [numbers.setdefault(call, len(numbers)) for call in called]) if called else step)
        return steps, [replace(recording.calls[call], ranks=()) for call in numbers]

    first, *others = map(done_by, recording.distinct_scripts)
    return all(each == first for each in others)


def join_recordings(recordings: Sequence[Recording]) -> Recording:
    """Return what happened in several steps, one after the other; a single one as it is.

    What needs the batch alone no longer runs beside compute: in the middle of several steps there are other gradients
    to wait for.
    """
    if len(recordings) == 1:
        return recordings[0]
    calls: list[Call] = []
    scripts: list[list[Step]] = [[] for _ in recordings[0].scripts]
    for recording in recordings:
        for whole, script in zip(scripts, recording.scripts, strict=True):
            for step in script:
                if isinstance(step, Post):
                    whole.append(Post(len(calls) + step.call))
                elif isinstance(step, Wait):
                    whole.append(Wait(tuple(len(calls) + call for call in step.calls)))
                elif not isinstance(step, AwaitGradient):
                    whole.append(step)
        calls += recording.calls
    return Recording(tuple(calls), tuple(map(tuple, scripts)), sum(each.steps for each in recordings))


class Rounds(NamedTuple):
    """How often a reduction waits, on the rank that does so most."""

    # before_gradient, after_gradient: times that something is posted after a wait, the first included: until the
    # gradient is there, and from then on
    before_gradient: int
    after_gradient: int
    host_syncs: int  # Times that the host waits for the GPU: to know a size before it can post, or what comes next


def count_rounds(recording: Recording) -> Rounds:
    """Return the rounds of a recording: the most of any rank, where ranks do unlike things."""
    each = (_rounds(script, recording) for script in recording.distinct_scripts)
    return max(each, key=lambda found: (sum(found[:2]), found))


def _rounds(script: Script, recording: Recording) -> Rounds:
    begun = {False: 0, True: 0}
    host_syncs = 0
    there = AwaitGradient() not in script
    waited = True
    for step in script:
        if isinstance(step, Post):
            begun[there] += waited
            waited = False
            host_syncs += recording.calls[step.call].size_from_data
        elif isinstance(step, Wait):
            waited = True
        elif isinstance(step, HostSync):
            host_syncs += 1
        elif isinstance(step, AwaitGradient):
            there = waited = True
    return Rounds(begun[False], begun[True], host_syncs)


def chunk_bounds(elements: int, ranks: int) -> Ints:
    """Return where ring chunks begin and end, int64 of shape (ranks + 1,): chunk i is [i·n//P, (i+1)·n//P)."""
    return np.arange(ranks + 1, dtype=np.int64) * elements // ranks


def ring_bytes(call: Call) -> tuple[Ints, Ints]:
    """Return (sent, received) bytes of each rank that takes part, int64 of shape (ranks,), under ring collectives.

    In a ring all-reduce rank r sends chunks r, r-1, ... in the reduce-scatter and r+1, r, ... in the all-gather: all
    chunks twice but for r+1 once and r+2 once. In a ring all-gather rank r passes on every block but that of rank r+1;
    in a ring reduce-scatter by itself it ends with part r, and has passed on all others. A broadcast goes around the
    ring from its root to the rank before it, a reduce the same way back. Blocks of an all-to-all, and what peers
    exchange, go straight to where they belong.
    """
    if (ranks := len(call.elements)) == 1:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    if call.kind in ("broadcast", "reduce"):
        inner, outer = np.full((2, ranks), call.elements[0] * call.itemsize, np.int64)
        inner[call.root] = outer[call.root - 1] = 0
        return (outer, inner) if call.kind == "broadcast" else (inner, outer)
    if call.kind == "reduce_scatter":
        parts = np.asarray(call.elements, np.int64) * call.itemsize
        return parts.sum() - parts, parts.sum() - np.roll(parts, 1)
    if call.kind == "all_to_all":
        assert call.blocks
        sent, received = call.blocks.exchanged
        return sent * call.itemsize, received * call.itemsize
    if call.kind == "all_reduce":
        chunks = np.diff(chunk_bounds(call.elements[0], ranks)) * call.itemsize
        sent = 2 * chunks.sum() - np.roll(chunks, -1) - np.roll(chunks, -2)
    else:
        contributions = np.asarray(call.bytes_by_rank, np.int64)
        sent = contributions.sum() - np.roll(contributions, -1)
    return sent, np.roll(sent, 1)


def recording_bytes(recording: Recording) -> tuple[Ints, Ints]:
    """Return (sent, received) bytes of each rank over all collectives of a recording, as `ring_bytes`."""
    sent, received = sum_over_ranks(((call.ranks, ring_bytes(call)) for call in recording.calls), recording.workers)
    return sent, received


def payload_bytes(recording: Recording) -> Ints:
    """Return the bytes that each rank hands to its collectives, int64 of shape (ranks,)."""
    handed_in = ((call.ranks, np.asarray([call.bytes_by_rank], np.int64)) for call in recording.calls)
    total: Ints = sum_over_ranks(handed_in, recording.workers, rows=1)[0]
    return total


def sum_over_ranks(parts: Iterable[tuple[Sequence[int], ArrayLike]], ranks: int, *, rows: int = 2) -> Ints:
    """Return sums over ranks' places, int64 of shape (rows, ranks), of parts that some ranks have; none stand for all.

    What a part has beyond its ranks, for servers, is left out.
    """
    total = np.zeros((rows, ranks), np.int64)
    for members, part in parts:
        where = np.asarray(members, np.int64) if len(members) else np.arange(ranks)
        total[:, where] += np.asarray(part)[:, : len(where)]
    return total
