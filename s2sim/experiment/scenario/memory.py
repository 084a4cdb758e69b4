"""The most ranks of a run: each one runs every reducer's program, and memory stores all gradients."""

from __future__ import annotations

from s2sim.errors import OptionError
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.law import ExtrapolatedRanks
from s2sim.gradients.synthetic import AnyTrace, SyntheticTrace
from s2sim.machine import memory_bytes
from s2sim.units import format_bytes

# Every rank runs every reducer's program, a millisecond or so each.
_MAX_RANKS = 2**17


def check_ranks(workers: int, trace: AnyTrace) -> None:
    """Refuse more ranks than can be run, or than memory can store the gradients of."""
    if workers > _MAX_RANKS:
        raise OptionError(
            f"--workers {workers}: each one runs every reducer on its own gradient, and at most {_MAX_RANKS} are run: "
            "ask for fewer, or time one collective of them with s2sim collective"
        )
    needed, there = workers * held_bytes(trace), memory_bytes()
    if there is not None and needed > there:
        raise OptionError(
            f"--workers {workers}: the gradients of {trace.name} take about {format_bytes(needed)}, and there are "
            f"{format_bytes(there)} of memory: ask for fewer workers or smaller gradients"
        )


def held_bytes(trace: AnyTrace) -> int:
    """Return the bytes that the gradient of one rank takes in memory."""
    if isinstance(trace, SyntheticTrace):
        return trace.options.held_bytes
    layers = trace.gradient(0, 0).layers
    # Drawn ranks have the dense layers of a recorded one.
    dense = (
        0
        if isinstance(trace, ExtrapolatedRanks)
        else sum(each.nbytes for each in layers if not isinstance(each, RowSparse))
    )
    return dense + sum(each.rows.nbytes + each.values.nbytes for each in layers if isinstance(each, RowSparse))
