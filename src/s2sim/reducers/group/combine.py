"""How the payloads of all ranks combine in a collective, whatever arrays they are made of."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.bfloat16 import NARROW, narrow, widen
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from s2sim.reducers.rank import Contribution

OPERATIONS: dict[str, Callable[..., Any]] = {"sum": np.add, "max": np.maximum, "or": np.bitwise_or}


def leaves_of(payload: Contribution) -> list[NDArray[Any] | RowSparse]:
    """Return the arrays of a payload in the order in which they are packed."""
    if isinstance(payload, Gradient):
        return list(payload.layers)
    if not isinstance(payload, tuple):
        return [payload]
    leaves: list[NDArray[Any] | RowSparse] = []
    for part in payload:
        if isinstance(part, np.ndarray):
            leaves.append(part)
        else:
            leaves += leaves_of(part)
    return leaves


def read_only(leaf: NDArray[Any] | RowSparse) -> NDArray[Any] | RowSparse:
    """Return a view that nobody can write through: what one rank gathers is another rank's own array."""
    if isinstance(leaf, RowSparse):
        return RowSparse(_frozen(leaf.rows), _frozen(leaf.values), leaf.shape)
    return _frozen(leaf)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view


def rebuild(payload: Contribution, leaves: list[Any]) -> Any:
    """Return ``payload``'s structure around other arrays, as many as it has."""
    return _rebuilt(payload, iter(leaves))


def _rebuilt(payload: Contribution, leaves: Iterator[Any]) -> Any:
    if isinstance(payload, tuple):
        return tuple([_rebuilt(part, leaves) for part in payload])
    if isinstance(payload, Gradient):
        return Gradient(payload.names, tuple([next(leaves) for _ in payload.layers]))
    return next(leaves)


OVERFLOW = "a sum overflows float32: scale the gradients down"


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

    def add(self, payload: Contribution) -> None:
        """Combine with one more rank's payload; `S2SimError` if a sum overflows."""
        with refuse_overflow():
            self._add(payload)

    def _add(self, payload: Contribution) -> None:
        combine = OPERATIONS[self._op]
        for total, leaf in zip(self._totals, leaves_of(payload), strict=True):
            checked = self._op == "sum" and not self._wraps and total.dtype.kind in "iu"
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
