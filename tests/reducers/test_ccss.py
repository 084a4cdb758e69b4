"""CCSS is S2 on what top-k leaves, and one sketch of everything."""

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.testing.reducer_properties import example_gradients

from .naive import flat, top


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_it_is_s2_of_what_is_left(ranks):
    rng = np.random.default_rng(ranks)
    vectors = [rng.standard_normal(2000, np.float32) for _ in range(ranks)]
    found = reduce_once("ccss:density=0.05,rows=5,cells=4", vectors)
    wanted = reduce_once("s2:rows=5,cells=4", [top(vector, 100) for vector in vectors])
    assert np.array_equal(found.values[0], wanted.values[0])
    assert found.bytes_sent == wanted.bytes_sent


def test_in_a_wide_sketch_it_is_the_mean_of_top_k():
    rng = np.random.default_rng(7)
    vectors = [rng.standard_normal(500, np.float32) for _ in range(4)]
    found = reduce_once("ccss:density=0.1,rows=5,cells=200", vectors).values[0]
    np.testing.assert_allclose(found, np.mean([top(vector, 50) for vector in vectors], axis=0), atol=1e-5)


def test_all_layers_share_one_sketch():
    gradients = example_gradients(3)
    alone = [Gradient(("all",), (flat(gradient),)) for gradient in gradients]
    results, recording = run_group(make_instances(make_reducer("ccss:density=0.1"), 3), gradients)
    as_one, recording_as_one = run_group(make_instances(make_reducer("ccss:density=0.1"), 3), alone)
    assert np.array_equal(flat(results[0].mean), flat(as_one[0].mean))
    assert np.array_equal(flat(results[2].sent()), flat(as_one[2].sent()))
    assert [call.elements for call in recording.calls] == [call.elements for call in recording_as_one.calls]


def test_a_later_step_knows_the_unions_size():
    instances = make_instances(make_reducer("ccss:density=0.1"), 3)
    calls = [len(run_group(instances, example_gradients(3), step=step)[1].calls) for step in range(2)]
    assert calls == [3, 2]


def test_sizes_are_checked_as_those_of_s2():
    with pytest.raises(OptionError, match=r"ccss: rows=17 is not in \[1, 16\]"):
        make_reducer("ccss:rows=17")
