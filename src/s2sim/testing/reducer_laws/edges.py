"""What a reducer does at the edge: any number of ranks, and gradients that are hard to take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, to_dense
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.once import reduce_once
from s2sim.testing.reducer_laws.examples import edge_gradients, example_gradients
from s2sim.testing.reducer_laws.outcome import check_accuracy, check_bound, check_results, check_traffic
from s2sim.testing.require import require

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.reducers.rank import Reducer

# Further apart than rounding may take them, where values have so few digits.
_NOT_EXACT = "subnormal values"
# Sums of several such values need not be float32 any more.
_MAY_OVERFLOW = "huge values"


def ranks_taken(reducer: Reducer, counts: Iterable[int]) -> list[int]:
    """Check one step with each number of ranks; return those that are not refused in one line that names them."""
    taken = []
    for ranks in counts:
        gradients, where = example_gradients(ranks), f"with {ranks} rank{'s' * (ranks > 1)}"
        try:
            instances = make_instances(reducer, ranks)
            results, recording = run_group(instances, gradients)
        except S2SimError as error:
            # What hangs names ranks by their place, which is below their number.
            clear = "\n" not in str(error) and re.search(rf"\b{ranks}\b", str(error)) is not None
            require(clear, f"fails {where}, and a refusal names their number: {error}")
            continue
        check_results(results, gradients, where, agrees=reducer.traits.agrees)
        check_accuracy(reducer, results, gradients, where)
        check_traffic(recording, ranks)
        check_bound(instances[0], gradients[0])
        taken.append(ranks)
    require(taken, f"refuses {', '.join(map(str, counts))} ranks, all that were tried")
    return taken


def check_edges(reducer: Reducer, ranks: int) -> None:
    """Check gradients that are hard to take: what cannot be summed in float32 may be refused, all else goes."""
    for what, gradients in edge_gradients(ranks).items():
        try:
            results, _ = run_group(make_instances(reducer, ranks), gradients)
        except S2SimError as error:
            require(what == _MAY_OVERFLOW, f"refuses {what}: {error}")
            continue
        check_results(results, gradients, f"of {what}", agrees=reducer.traits.agrees)
        if what != _NOT_EXACT:
            check_accuracy(reducer, results, gradients, f"of {what}")


def check_zero(reducer: Reducer, ranks: int) -> None:
    """Check that zeros give zeros, unless signs are all there is, and no layers none."""
    if reducer.traits.estimates != "sign":
        results, _ = run_group(make_instances(reducer, ranks), example_gradients(ranks, zero=True))
        for name, layer in results[0].mean:
            require(not to_dense(layer).any(), f"zero gradients do not give zero in {name!r}")
    results, _ = run_group(make_instances(reducer, ranks), [Gradient((), ())] * ranks)
    require(results[0].mean.layers == (), "a gradient without layers does not give one without layers")


def check_not_finite(reducer: Reducer, ranks: int) -> None:
    """Check that NaN and infinities are refused."""
    for wrong in (np.nan, np.inf):
        gradients = [np.ones(4, np.float32) for _ in range(ranks)]
        gradients[-1][2] = wrong
        try:
            reduce_once(reducer, gradients)
        except S2SimError:
            continue
        require(False, f"takes a gradient with {wrong}")
