"""Conformance kit for gradient reducers: what every one must do, whatever it compresses.

A plug-in's test is one line: ``check_reducer(MyReducer)``.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from s2sim.errors import S2SimWarning
from s2sim.testing.reducer_laws.edges import check_edges, check_not_finite, check_zero, ranks_taken
from s2sim.testing.reducer_laws.examples import example_gradients
from s2sim.testing.reducer_laws.lengths import check_lengths
from s2sim.testing.reducer_laws.promises import check_contraction, check_unbiased, is_unbiased
from s2sim.testing.reducer_laws.restore import check_restore
from s2sim.testing.reducer_laws.steps import check_determinism, check_nothing_lost, check_sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.reducers.rank import Reducer

__all__ = ["FEW_RANK_COUNTS", "RANK_COUNTS", "check_reducer", "example_gradients"]

RANK_COUNTS = (1, 2, 3, 7, 8, 16, 64)
"""One rank, a pair, odd counts, powers of two, and more ranks than the smallest layers have elements."""

FEW_RANK_COUNTS = (1, 2, 5)
"""Those of a check that is not exhaustive."""

_SEEDS, _FEW_SEEDS = 200, 40


def check_reducer(make: Callable[[], Reducer], *, exhaustive: bool = True) -> None:
    """Check that a reducer, which ``make`` returns anew, does what every reducer must; the first law broken is named.

    With any number of ranks but those that it refuses in one line: results have the gradient's layers and are finite,
    all ranks end alike unless it says ``agrees=False``, layers that are not compressed are exact, as are all of one
    that says ``lossless``, all that is sent is received, and it is as long as what is posted. Zeros, no layers, single
    elements, equal magnitudes, subnormal and huge values go; NaN and infinities are refused. The same seed gives the
    same bits. What ranks have sent adds up to the mean unless it says ``adds_up=False``, and with feedback nothing gets
    lost. Saved and restored in mid-course it goes on with the same bits. One that is lossy and needs no feedback is
    unbiased; one that promises a `contraction` keeps it.

    Parameters
    ----------
    make : callable
        Returns the reducer, for example its class.
    exhaustive : bool
        Try all of `RANK_COUNTS` and many seeds, which takes a second; else `FEW_RANK_COUNTS` in a tenth of that.

    Raises
    ------
    AssertionError
        With what is wrong.
    """
    seeds = _SEEDS if exhaustive else _FEW_SEEDS
    with warnings.catch_warnings():
        # NumPy's tell of values that were not thought of.
        warnings.simplefilter("error", RuntimeWarning)
        # That nothing is compressed is right where there is nothing to compress.
        warnings.simplefilter("ignore", S2SimWarning)
        reducer = make()
        taken = ranks_taken(reducer, RANK_COUNTS if exhaustive else FEW_RANK_COUNTS)
        ranks = max((count for count in taken if count <= 3), default=min(taken))
        check_edges(reducer, ranks)
        check_zero(reducer, ranks)
        check_not_finite(reducer, ranks)
        check_lengths(reducer, ranks)
        check_determinism(reducer, ranks)
        if 1 in taken:
            check_sent(reducer)
        check_nothing_lost(reducer, ranks)
        check_restore(reducer, ranks)
        if 2 in taken:
            check_contraction(reducer, seeds)
            if is_unbiased(reducer):
                check_unbiased(reducer, seeds)
