"""The base of systems that gather codes, on a code that loses a known amount."""

from dataclasses import dataclass

import numpy as np
import pytest

from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.rank import Traits
from s2sim.reducers.shared.gathered import Aggregate, Gathered, flat_vector
from s2sim.testing.reducer_properties import example_gradients
from s2sim.testing.reducers import check_reducer


@dataclass(slots=True)
class Rounded(Gathered):
    """Values to the nearest multiple of an eighth."""

    aggregate: Aggregate = "gather"

    about = Traits(name="rounded", summary="rounds", source="this test", feedback="needed")

    def encode(self, vector, random):
        return ((np.rint(vector.astype(np.float64) * 8) / 8).astype(np.float32),)

    def decode(self, message, elements):
        assert len(message[0]) == elements
        return message[0]


@pytest.mark.parametrize("aggregate", ["gather", "two-phase"])
def test_it_is_a_reducer(aggregate):
    check_reducer(lambda: Rounded(aggregate))


@pytest.mark.parametrize("aggregate", ["gather", "two-phase"])
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_what_all_have_sent_is_the_mean_times_ranks(aggregate, ranks):
    gradients = example_gradients(ranks)
    results, _ = run_group(make_instances(Rounded(aggregate), ranks), gradients)
    sent = sum(flat_vector(result.sent()).astype(np.float64) for result in results)
    assert sent == pytest.approx(ranks * flat_vector(results[0].mean).astype(np.float64), abs=1e-5)
    exact = sum(flat_vector(gradient).astype(np.float64) for gradient in gradients)
    phases = 1 if aggregate == "gather" else 1 + 1 / ranks
    assert np.abs(sent - exact).max() <= ranks * phases / 16 + 1e-5


def test_bytes_of_both_ways():
    gradients = example_gradients(4)
    _, gathered = run_group(make_instances(Rounded(), 4), gradients)
    assert [call.bytes_by_rank for call in gathered.calls] == [(4 * gradients[0].size,) * 4]
    _, owned = run_group(make_instances(Rounded("two-phase"), 4), gradients)
    assert [call.kind for call in owned.calls] == ["all_to_all", "all_gather"]
    assert sum(owned.calls[1].bytes_by_rank) == 4 * gradients[0].size
