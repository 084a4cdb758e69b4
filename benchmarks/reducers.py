"""CPU time of every reducer's own work, as multiples of one pass over the gradient.

The unit is the CPU time of ``np.count_nonzero(values.view(np.int32))`` just before, over all elements, zeros included:
a vectorised read of 4 bytes an element, on one core. "encode" is what one of two ranks does until it first waits for
another, with the sums that are taken as soon as it posts; "step" is a whole step of both, halved: encoding, summing and
decoding. Both are of the first step, whether it exchanges anything or not. Those that send rows may encode faster than
all is read, as they look at the rows held alone. Ratios are medians.

Run with ``python benchmarks/reducers.py [ELEMENTS [NAME...]]``; half of the elements are dense, half a table of which
5 % of the rows are held.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
from measure import SMALL, cpu_seconds_and_ratio

from s2sim.errors import S2SimError, S2SimWarning
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.process_group import RankProgress, World, make_instances, run_group
from s2sim.reducers.registry import make_reducer, reducer_names

if TYPE_CHECKING:
    from s2sim.reducers.rank import Reducer

RANKS = 2
WIDTH = 32
HELD = 0.05


def gradients(elements: int) -> list[Gradient]:
    """Return a gradient of normal values for each rank."""
    return [_gradient(elements, np.random.default_rng(rank)) for rank in range(RANKS)]


def _gradient(elements: int, generator: np.random.Generator) -> Gradient:
    rows = elements // 2 // WIDTH
    held = np.flatnonzero(generator.random(rows) < HELD)
    table = RowSparse(held, generator.standard_normal((len(held), WIDTH), np.float32), (rows, WIDTH))
    dense = generator.standard_normal((elements // 2 // WIDTH, WIDTH), np.float32)
    return Gradient(("weight", "table"), (dense, table))


def encode(reducer: Reducer, gradient: Gradient) -> None:
    """Run one rank's program until it waits; one that exchanges nothing in its first step ends with that."""
    world = World(RANKS)
    next(reducer.fresh().reduce(RankProgress(0).member(world.all, 0, 0), gradient), None)


def main() -> None:
    """Print a line a reducer."""
    elements = int(float(sys.argv[1])) if len(sys.argv) > 1 else 20_000 if SMALL else 2_000_000
    given = gradients(elements)
    whole = np.zeros(elements, np.float32)
    print(f"n = {elements:,}, {RANKS} ranks, NumPy {np.__version__}")
    print(f"{'reducer':24s} encode ms (x read)    step ms a rank (x read)")
    for name in sys.argv[2:] or reducer_names():
        try:
            reducer = make_reducer(name).fitted(given, 0)
            print(line(name, reducer, given, whole), flush=True)
        except S2SimError as error:
            print(f"{name:24s} refuses: {error}")


def line(name: str, reducer: Reducer, given: list[Gradient], whole: np.ndarray) -> str:
    """Return what one reducer takes."""

    def read() -> None:
        np.count_nonzero(whole.view(np.int32))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", S2SimWarning)
        first, first_reads = cpu_seconds_and_ratio(lambda: encode(reducer, given[0]), read)
        step, step_reads = cpu_seconds_and_ratio(lambda: run_group(make_instances(reducer, RANKS), given), read)
    both, both_reads = step / RANKS, step_reads / RANKS
    return f"{name:24s} {1e3 * first:9.2f} ({first_reads:6.1f})     {1e3 * both:12.2f} ({both_reads:6.1f})"


if __name__ == "__main__":
    main()
