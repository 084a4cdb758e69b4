"""One collective while the members of a group post it: what they hand in, what each ends with, and what is recorded."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from s2sim.arrays import Array, BlockTable
from s2sim.codecs.floats import NARROW, narrow, widen
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.rank import Contribution
from s2sim.reducers.script import Call, Kind

OPERATIONS: dict[str, Callable[..., Any]] = {"sum": np.add, "max": np.maximum, "or": np.bitwise_or}
OVERFLOW = "a sum overflows float32: scale the gradients down"


def leaves_of(payload: Contribution) -> list[Array | RowSparse]:
    """Return the arrays of a payload in the order in which they are packed."""
    if isinstance(payload, Gradient):
        return list(payload.layers)
    return [leaf for part in payload for leaf in leaves_of(part)] if isinstance(payload, tuple) else [payload]


def read_only(leaf: Any) -> Any:
    """Return a view that nobody can write through: what one rank gathers is another rank's own array."""
    if isinstance(leaf, RowSparse):
        return RowSparse(read_only(leaf.rows), read_only(leaf.values), leaf.shape)
    view = leaf.view()
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


def _refuse_wrapped(total: Array, before: Array, added: Array) -> None:
    """Raise `S2SimError` if an integer ``total`` of two others has wrapped around, on which NumPy is silent."""
    # A signed sum that has wrapped has another sign than both of its terms.
    wrapped = ((total ^ before) & (total ^ added)) < 0 if total.dtype.kind == "i" else total < added
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
        dense = [leaf.to_dense() if isinstance(leaf, RowSparse) else leaf.copy() for leaf in leaves_of(payload)]
        self._totals = list(map(widen, dense))

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
    spreads: bool = False


class Collective:
    """What members, ``ranks`` in their order, hand in under one heading: contributions by the member each is for.

    What is meant for the same member is combined as it comes in an all-reduce, a reduce or a reduce-scatter, and passed
    on as it is in all others. What is for all, or for the root, is handed in as if for member 0.
    """

    def __init__(self, heading: CallHeader, ranks: tuple[int, ...]) -> None:
        self.heading = heading
        self.ranks = ranks
        self.missing = set(ranks)
        self._reduces = heading.kind in ("all_reduce", "reduce", "reduce_scatter")
        # Whether shapes have to be equal: of what is combined for a member, or of all that is passed on.
        free = heading.size_from_data or heading.unequal or heading.op not in ("gather", "exchange")
        self._alike = self._reduces or not free
        self._shapes: dict[int, list[tuple[int, ...]]] = {}
        self._dtypes: list[np.dtype[Any]] | None = None
        self._sizes_bytes: list[dict[int, int]] = [{} for _ in ranks]
        # By the member that it is for: what is combined so far, the results, and what others have for it.
        self._totals: dict[int, Accumulator] = {}
        self._results: dict[int, Any] = {}
        self._held: list[dict[int, Any]] = [{} for _ in ranks]

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
            dtypes, shapes = [leaf.dtype for leaf in leaves], [leaf.shape for leaf in leaves]
            self._dtypes = dtypes if self._dtypes is None else self._dtypes
            fits = not self._alike or self._shapes.setdefault(target if self._reduces else 0, shapes) == shapes
            if dtypes != self._dtypes or not fits:
                passes = self.heading.op in ("gather", "exchange") and dtypes == self._dtypes
                hint = ": give unequal=True where all know the sizes, size_from_data=True where they do not"
                raise S2SimError(
                    f"rank {rank} posts {heading.label!r} with another shape or type than others{hint * passes}"
                )
            self._sizes_bytes[member][target] = sum(leaf.nbytes for leaf in leaves)
            if not self._reduces:
                self._held[target][member] = rebuild(payload, map(read_only, leaves))
            elif target in self._totals:
                self._totals[target].add(payload)
            else:
                self._totals[target] = Accumulator(payload, heading.op, wraps=heading.wraps)
        self.missing.discard(rank)
        if not self.missing:
            self._results = {target: total.result() for target, total in self._totals.items()}
            self._totals = {}
            if self.heading.kind == "all_gather":
                self._results = {0: tuple(self._held[0][source] for source in range(len(self.ranks)))}

    def value(self, member: int) -> Any:
        """Return what a member ends with: the whole, its own part, what has come for it, or nothing."""
        head, held = self.heading, self._held[member]
        if head.kind == "reduce_scatter":
            return self._results[member]
        if head.kind == "broadcast":
            return self._held[0][head.root]
        if head.kind == "all_to_all":
            return dict(sorted(held.items())) if head.op == "peers" else tuple(held[at] for at in range(len(held)))
        return self._results[0] if head.kind != "reduce" or member == head.root else None

    def record(self) -> Call:
        """Return what the script keeps, as of a group of all ranks; mixed types count as bytes."""
        return self._call(self._dtypes, self._sizes_bytes)

    def record_alike(self, payloads: Mapping[int, Contribution]) -> Call:
        """Return what the script keeps if every member hands in the same."""
        dtypes = [leaf.dtype for leaf in leaves_of(payloads[0])]
        sizes_bytes = {to: sum(leaf.nbytes for leaf in leaves_of(payload)) for to, payload in payloads.items()}
        return self._call(dtypes, [sizes_bytes] * len(self.ranks))

    def _call(self, dtypes: Sequence[np.dtype[Any]] | None, sizes_bytes: Sequence[Mapping[int, int]]) -> Call:
        head, dtype = self.heading, np.dtype(np.uint8)
        if dtypes and len(set(dtypes)) == 1:
            dtype = dtypes[0]
        # Members that hand in the same share one row.
        given = {id(row): row for row in sizes_bytes}
        rows = {key: {to: size // dtype.itemsize for to, size in row.items()} for key, row in given.items()}
        sizes = [rows[id(row)] for row in sizes_bytes]
        blocks: BlockTable | tuple[()] = ()
        if head.kind == "all_to_all":
            place = {key: number for number, key in enumerate(rows)}
            cells = [[row.get(to, 0) for to in range(len(self.ranks))] for row in rows.values()]
            blocks = BlockTable(cells, [place[id(row)] for row in sizes_bytes])
        if head.kind == "reduce_scatter":
            elements = tuple(sizes[0].values())
        elif head.kind == "broadcast":
            elements = (sizes[head.root][0],) * len(sizes)
        else:
            elements = tuple(sum(row.values()) for row in sizes)
        return Call(
            kind=head.kind,
            op=head.op,
            # A type that NumPy lacks is a structure of one field, whose name it has.
            dtype=dtype.names[0] if dtype.names else dtype.name,
            itemsize=dtype.itemsize,
            elements=elements,
            size_from_data=head.size_from_data,
            label=head.label,
            blocks=blocks,
            root=head.root,
            spreads=head.spreads,
        )
