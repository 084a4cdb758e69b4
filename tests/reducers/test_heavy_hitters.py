"""Sketched-SGD and FetchSGD: what they are where the sketch is wide, what it finds where it is not, and their bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once

from .naive import top

WIDE = 1 << 14
"""Columns for a hundred elements: that three of five estimates are wrong does not happen."""


@given(st.integers(1, 5), st.integers(0, 100), st.floats(0.01, 1), st.integers(0, 2**32))
def test_in_a_wide_sketch_they_keep_the_largest_of_the_sum(ranks, n, density, seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.permutation(n).astype(np.float32) for _ in range(ranks)]
    # No two sums have one magnitude, so that rounding decides nothing.
    vectors[0] = (vectors[0] + np.arange(n) / 128).astype(np.float32)
    mean = np.sum(vectors, axis=0, dtype=np.float64).astype(np.float32) / np.float32(ranks)
    expected = top(mean, elements_kept(n, density))
    for name in ("sketched-sgd", "fetchsgd"):
        found = reduce_once(f"{name}:density={density},columns={WIDE}", vectors).values[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ranks", [2, 8])
def test_bytes_are_the_sketch_and_the_kept(ranks):
    n, k, rows, columns = 20_000, 160, 3, 800
    rng = np.random.default_rng(1)
    vectors = [rng.standard_normal(n, np.float32) for _ in range(ranks)]
    options = f"density=0.008,rows={rows},columns={columns}"
    once = reduce_once(f"sketched-sgd:{options},candidates=2", vectors)
    assert once.bytes_sent == [8 * (rows * columns + 2 * k) * (ranks - 1) // ranks] * ranks
    once = reduce_once(f"fetchsgd:{options}", vectors)
    # Around the ring to rank 0 and from it: rank 0 does not send a sketch on, the last rank no update.
    up, down = 4 * rows * columns, 8 * k
    assert once.bytes_sent == [down] + [up + down] * (ranks - 2) + [up]


def test_sizes_are_the_published_ones_unless_given():
    once = reduce_once("fetchsgd", [np.ones(10_000, np.float32)] * 2)
    assert once.recording.calls[0].elements == (5 * 1000,) * 2


@pytest.mark.parametrize("seed", range(5))
def test_heavy_hitters_are_found_in_a_narrow_sketch(seed):
    """Charikar, Chen and Farach-Colton, theorem 1: who is above a multiple of the tail's norm over sqrt(columns)."""
    n, ranks, heavy, columns = 50_000, 4, 20, 1000
    rng = np.random.default_rng(seed)
    vectors = [rng.standard_normal(n, np.float32) for _ in range(ranks)]
    places = rng.choice(n, heavy, replace=False)
    tail = np.sqrt(ranks * n)
    for vector in vectors:
        vector[places] = np.float32(8 * tail / np.sqrt(columns) / ranks)
    for name in ("sketched-sgd", "fetchsgd"):
        text = f"{name}:density={heavy / n},rows=7,columns={columns}"
        found = np.flatnonzero(reduce_once(text, vectors, seed=seed).values[0])
        assert np.array_equal(found, np.sort(places))


@pytest.mark.parametrize(("clear", "momentum"), [("subtract", 0.0), ("subtract", 0.9), ("zero", 0.9)])
def test_the_server_keeps_what_it_does_not_send(clear, momentum):
    ranks, n, density = 3, 100, 0.05
    k = elements_kept(n, density)
    instances = make_instances(
        make_reducer(f"fetchsgd:density={density},columns={WIDE},momentum={momentum},clear={clear}"), ranks
    )
    velocity, error = np.zeros(n), np.zeros(n)
    for step in range(6):
        rng = np.random.default_rng(step)
        vectors = [rng.standard_normal(n, np.float32) for _ in range(ranks)]
        results, _ = run_group(instances, [Gradient(("all",), (vector,)) for vector in vectors], step=step)
        velocity = momentum * velocity + np.mean(vectors, axis=0)
        error = error + velocity
        update = top(error, k)
        error[update != 0] = 0
        if clear == "zero":
            velocity[update != 0] = 0
        np.testing.assert_allclose(results[0].mean.layers[0], update, rtol=1e-4, atol=1e-5)
        assert all(np.array_equal(result.sent().layers[0], results[0].mean.layers[0]) for result in results)


def test_only_the_server_carries_sketches():
    instances = make_instances(make_reducer("fetchsgd:columns=10"), 2)
    run_group(instances, [Gradient(("all",), (np.ones(5, np.float32),))] * 2)
    assert instances[0].state()["S_e"].shape == (5, 10)
    assert instances[1].state() == {"S_u": None, "S_e": None}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fetchsgd:rows=17", r"rows=17 is not in \[1, 16\]"),
        ("sketched-sgd:columns=0", r"columns=0 is not in \[1, 4294967295\]"),
        ("sketched-sgd:candidates=0", "candidates=0 must be at least 1"),
        ("fetchsgd:momentum=1", r"momentum=1.0 is not in \[0, 1\)"),
    ],
)
def test_options_out_of_range_are_refused(text, complaint):
    with pytest.raises(OptionError, match=complaint):
        make_reducer(text)
