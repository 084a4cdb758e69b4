"""One collective while the members of a group post it: what they hand in, what each ends with, and what is recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import BlockTable
from s2sim.codecs.floats import NARROW, narrow, widen
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.rank import Contribution
from s2sim.reducers.script import Call, Kind

Leaves = list[NDArray[Any] | RowSparse]

OPERATIONS: dict[str, Callable[..., Any]] = {"sum": np.add, "max": np.maximum, "or": np.bitwise_or}
OVERFLOW = "a sum overflows float32: scale the gradients down"


def leaves_of(payload: Contribution) -> Leaves:
    """Return the arrays of a payload in the order in which they are packed."""
    if isinstance(payload, Gradient):
        return list(payload.layers)
    if not isinstance(payload, tuple):
        return [payload]
    return [leaf for part in payload for leaf in leaves_of(part)]


def read_only(leaf: NDArray[Any] | RowSparse) -> NDArray[Any] | RowSparse:
    """Return a view that nobody can write through: what one rank gathers is another rank's own array."""
    if isinstance(leaf, RowSparse):
        return RowSparse(_read_only_view(leaf.rows), _read_only_view(leaf.values), leaf.shape)
    return _read_only_view(leaf)


def _read_only_view(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view


def rebuild(payload: Contribution, leaves: Iterable[Any]) -> Any:
    """Return ``payload``'s structure around other arrays, equally many."""
    following = iter(leaves)
    if isinstance(payload, tuple):
        return tuple([rebuild(part, following) for part in payload])
    if isinstance(payload, Gradient):
        return Gradient(payload.names, tuple([next(following) for _ in payload.layers]))
    return next(following)


def _refuse_wrapped(total: NDArray[Any], before: NDArray[Any], added: NDArray[Any]) -> None:
    """Raise `S2SimError` if an integer ``total`` of two others has wrapped around, on which NumPy is silent."""
    signed = total.dtype.kind == "i"
    # A signed sum that has wrapped has another sign than both of its terms.
    wrapped = ((total ^ before) & (total ^ added)) < 0 if signed else total < added
    if wrapped.any():
        raise S2SimError(
            f"a sum over ranks overflows {total.dtype}: take a wider type, or wraps=True where sums are modulo "
            f"2^{8 * total.itemsize}"
        )


@contextmanager
def refuse_overflow() -> Iterator[None]:
    """Raise `S2SimError` if a sum over ranks overflows."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError:
        raise S2SimError(OVERFLOW) from None


class Accumulator:
    """Combines the ranks' contributions to a reduction as they come, in rank order, in dense arrays.

    Sums of types of two bytes are kept in float32 and rounded once at the end. The first rank's gives the structure;
    ``op`` is one of `OPERATIONS`, and ``wraps`` says whether integers may wrap around in a sum.
    """

    def __init__(self, payload: Contribution, op: str, *, wraps: bool = False) -> None:
        self._op = op
        self._wraps = wraps
        self._structure = payload
        self._dtypes = [leaf.dtype for leaf in leaves_of(payload)]
        self._totals = [_dense_copy(leaf) for leaf in leaves_of(payload)]

    @refuse_overflow()
    def add(self, payload: Contribution) -> None:
        """Combine with one more rank's payload; `S2SimError` if a sum overflows."""
        combine = OPERATIONS[self._op]
        checked_sum = self._op == "sum" and not self._wraps
        for total, leaf in zip(self._totals, leaves_of(payload), strict=True):
            checked = checked_sum and total.dtype.kind in "iu"
            if isinstance(leaf, RowSparse) and self._op != "max":
                before = total[leaf.rows]
                total[leaf.rows] = combine(before, widen(leaf.values))
                if checked:
                    _refuse_wrapped(total[leaf.rows], before, leaf.values)
                continue
            # Under max the zeros of rows that are not stored count too.
            added = widen(leaf.to_dense() if isinstance(leaf, RowSparse) else leaf)
            before = total.copy() if checked else total
            combine(total, added, out=total)
            if checked:
                _refuse_wrapped(total, before, added)

    def result(self) -> Any:
        """Return the combination of all payloads, in their structure: dense arrays that nobody can write to."""
        totals = [
            narrow(total, dtype) if dtype in NARROW.values() else total
            for total, dtype in zip(self._totals, self._dtypes, strict=True)
        ]
        for total in totals:
            total.setflags(write=False)
        return rebuild(self._structure, totals)


def _dense_copy(leaf: NDArray[Any] | RowSparse) -> NDArray[Any]:
    return widen(leaf.to_dense() if isinstance(leaf, RowSparse) else leaf.copy())


@dataclass(frozen=True, slots=True)
class CallHeader:
    """What all members must post alike, as in `s2sim.reducers.script.Call`.

    ``wraps`` says whether integers may wrap around in a sum, ``unequal`` whether shapes differ in a way that all know.
    """

    kind: Kind
    op: str
    label: str
    size_from_data: bool = False
    root: int = 0
    wraps: bool = False
    unequal: bool = False


class Collective(ABC):
    """What members, ``ranks`` in their order, hand in under one heading: contributions by the member each is for."""

    def __init__(self, heading: CallHeader, ranks: tuple[int, ...]) -> None:
        self.heading = heading
        self.ranks = ranks
        self.missing = set(ranks)
        self._dtypes: list[np.dtype[Any]] | None = None
        self._sizes_bytes: list[dict[int, int]] = [{} for _ in ranks]

    def add(self, member: int, heading: CallHeader, payloads: Mapping[int, Contribution]) -> None:
        """Take what a member hands in."""
        rank = self.ranks[member]
        if heading != self.heading:
            first = next(each for each in self.ranks if each not in self.missing)
            raise S2SimError(
                f"rank {rank} posts {heading.kind} {heading.label!r} where rank {first} posts {self.heading.kind} "
                f"{self.heading.label!r}: all ranks must post the same collectives in the same order"
            )
        for target, payload in payloads.items():
            leaves = leaves_of(payload)
            dtypes = [leaf.dtype for leaf in leaves]
            self._dtypes = dtypes if self._dtypes is None else self._dtypes
            if dtypes != self._dtypes or not self._fits(target, leaves):
                raise S2SimError(
                    f"rank {rank} posts {heading.label!r} with another shape or type than others{self._hint(dtypes)}"
                )
            self._sizes_bytes[member][target] = sum(leaf.nbytes for leaf in leaves)
            self._take(member, target, payload, leaves)
        self.missing.discard(rank)
        if not self.missing:
            self._finish()

    def record(self) -> Call:
        """Return what the script keeps, as of a group of all ranks; mixed types count as bytes."""
        return self._call(self._dtypes, self._sizes_bytes)

    def record_alike(self, payloads: Mapping[int, Contribution]) -> Call:
        """Return what the script keeps if every member hands in the same."""
        dtypes = [leaf.dtype for leaf in leaves_of(payloads[0])]
        sizes_bytes = {to: sum(leaf.nbytes for leaf in leaves_of(payload)) for to, payload in payloads.items()}
        return self._call(dtypes, [sizes_bytes] * len(self.ranks))

    def _call(self, dtypes: Sequence[np.dtype[Any]] | None, sizes_bytes: Sequence[Mapping[int, int]]) -> Call:
        dtype = np.dtype(np.uint8)
        if dtypes and len(set(dtypes)) == 1:
            dtype = dtypes[0]
        # Members that hand in the same share one row.
        given = {id(row): row for row in sizes_bytes}
        rows = {key: {to: size // dtype.itemsize for to, size in row.items()} for key, row in given.items()}
        sizes = [rows[id(row)] for row in sizes_bytes]
        head = self.heading
        blocks: BlockTable | tuple[()] = ()
        if head.kind == "all_to_all":
            place = {key: number for number, key in enumerate(rows)}
            cells = [[row.get(to, 0) for to in range(len(self.ranks))] for row in rows.values()]
            blocks = BlockTable(cells, [place[id(row)] for row in sizes_bytes])
        return Call(
            kind=head.kind,
            op=head.op,
            # A type that NumPy lacks is a structure of one field, whose name it has.
            dtype=dtype.names[0] if dtype.names else dtype.name,
            itemsize=dtype.itemsize,
            elements=self._elements(sizes),
            size_from_data=head.size_from_data,
            label=head.label,
            blocks=blocks,
            root=head.root,
        )

    def _hint(self, dtypes: list[np.dtype[Any]]) -> str:
        passes = self.heading.op in ("gather", "exchange") and dtypes == self._dtypes
        return ": give unequal=True where all know the sizes, size_from_data=True where they do not" if passes else ""

    @abstractmethod
    def value(self, member: int) -> Any:
        """Return what a member ends with."""

    @abstractmethod
    def _fits(self, target: int, leaves: Leaves) -> bool:
        """Return whether shapes are as they must be."""

    @abstractmethod
    def _take(self, member: int, target: int, payload: Contribution, leaves: Leaves) -> None:
        """Take one payload."""

    @abstractmethod
    def _finish(self) -> None:
        """Make the result, once the last has posted."""

    @abstractmethod
    def _elements(self, sizes: Sequence[Mapping[int, int]]) -> tuple[int, ...]:
        """Return the elements of each member in the script, from what each has handed in for whom."""


class Reduction(Collective):
    """An all-reduce, a reduce or a reduce-scatter: what is meant for the same member is combined as it comes.

    An all-reduce and a reduce are handed in as if for member 0.
    """

    def __init__(self, heading: CallHeader, ranks: tuple[int, ...]) -> None:
        super().__init__(heading, ranks)
        self._shapes: dict[int, list[tuple[int, ...]]] = {}
        self._totals: dict[int, Accumulator] = {}
        self._results: dict[int, Any] = {}

    def value(self, member: int) -> Any:
        """Return the whole, one's own part, or nothing."""
        if self.heading.kind == "reduce_scatter":
            return self._results[member]
        return self._results[0] if self.heading.kind == "all_reduce" or member == self.heading.root else None

    def _fits(self, target: int, leaves: Leaves) -> bool:
        shapes = [leaf.shape for leaf in leaves]
        return self._shapes.setdefault(target, shapes) == shapes

    def _take(self, member: int, target: int, payload: Contribution, leaves: Leaves) -> None:
        if target in self._totals:
            self._totals[target].add(payload)
        else:
            self._totals[target] = Accumulator(payload, self.heading.op, wraps=self.heading.wraps)

    def _finish(self) -> None:
        self._results = {target: total.result() for target, total in self._totals.items()}
        self._totals = {}

    def _elements(self, sizes: Sequence[Mapping[int, int]]) -> tuple[int, ...]:
        if self.heading.kind == "reduce_scatter":
            return tuple(sizes[0].values())
        return tuple(row[0] for row in sizes)


class DataMovement(Collective):
    """What is passed on as it is: an all-gather, an all-to-all, a broadcast, an exchange between peers.

    A contribution for all is handed in as if for member 0.
    """

    def __init__(self, heading: CallHeader, ranks: tuple[int, ...]) -> None:
        super().__init__(heading, ranks)
        self._held: list[dict[int, Any]] = [{} for _ in ranks]
        self._gathered: tuple[Any, ...] = ()
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()

    def value(self, member: int) -> Any:
        """Return what has come for a member, or for all."""
        head = self.heading
        if head.kind == "broadcast":
            return self._held[0][head.root]
        if head.kind == "all_gather":
            return self._gathered
        if head.op == "peers":
            return dict(sorted(self._held[member].items()))
        return tuple(self._held[member][source] for source in range(len(self.ranks)))

    def _fits(self, target: int, leaves: Leaves) -> bool:
        if self.heading.op in ("gather", "exchange") and not (self.heading.size_from_data or self.heading.unequal):
            self._shapes.add(tuple(leaf.shape for leaf in leaves))
        return len(self._shapes) < 2

    def _take(self, member: int, target: int, payload: Contribution, leaves: Leaves) -> None:
        self._held[target][member] = rebuild(payload, map(read_only, leaves))

    def _finish(self) -> None:
        if self.heading.kind == "all_gather":
            self._gathered = tuple(self._held[0][source] for source in range(len(self.ranks)))

    def _elements(self, sizes: Sequence[Mapping[int, int]]) -> tuple[int, ...]:
        if self.heading.kind == "broadcast":
            return (sizes[self.heading.root][0],) * len(sizes)
        return tuple(sum(row.values()) for row in sizes)


def open_collective(heading: CallHeader, ranks: tuple[int, ...]) -> Collective:
    """Return a collective that nobody has posted yet."""
    reduces = heading.kind in ("all_reduce", "reduce", "reduce_scatter")
    return (Reduction if reduces else DataMovement)(heading, ranks)
