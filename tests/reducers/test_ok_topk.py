"""Ok-Topk against a naive oracle on steps with exact thresholds, its thresholds in between, its regions and balance."""

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
from s2sim.testing.reducer_properties import example_gradients

from .naive import flat


def largest(pairs, k):
    ordered = sorted(((i, value) for i, value in pairs.items() if value), key=lambda item: (-abs(item[1]), item[0]))
    return dict(ordered[:k])


def ok_topk(vectors, k):
    """The k largest of the sums of each rank's k largest."""
    sums = {}
    for vector in vectors:
        for i, value in largest(dict(enumerate(vector)), k).items():
            sums[i] = sums.get(i, np.float32(0)) + value
    mean = np.zeros_like(vectors[0])
    for i, value in largest(sums, k).items():
        mean[i] = value / np.float32(len(vectors))
    return mean


@given(
    st.integers(1, 9),
    st.integers(0, 60),
    st.floats(0.01, 1),
    st.sampled_from(["large", "all"]),
    st.sampled_from(["skewed", "always", "never"]),
    st.integers(0, 2**32),
)
def test_the_first_step_is_exact(ranks, n, density, sums, balance, seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.integers(-4, 5, n).astype(np.float32) for _ in range(ranks)]
    once = reduce_once(f"ok-topk:density={density},sums={sums},balance={balance}", vectors)
    assert np.array_equal(once.values[0], ok_topk(vectors, elements_kept(n, density)))


@pytest.mark.parametrize("ranks", [1, 2, 7, 16])
def test_what_all_have_sent_is_the_mean_times_ranks_in_every_step(ranks):
    instances = make_instances(make_reducer("ok-topk:density=0.1,recompute=3"), ranks)
    for step in range(5):
        gradients = example_gradients(ranks, seed=step)
        results, _ = run_group(instances, gradients, step=step)
        sent = np.sum([flat(result.sent()) for result in results], axis=0)
        np.testing.assert_allclose(sent, ranks * flat(results[0].mean), atol=1e-5)


def test_thresholds_follow_the_gradient_between_exact_steps():
    ranks, n, k = 4, 4000, 40
    rng = np.random.default_rng(3)
    instances = make_instances(make_reducer("ok-topk:recompute=100"), ranks)
    kept = []
    for step in range(100):
        # Gradients that grow by half in their course: without a nudge, four times as many would be selected.
        scale = np.float32(1 + step / 200)
        gradients = [Gradient(("all",), (rng.standard_normal(n, np.float32) * scale,)) for _ in range(ranks)]
        results, recording = run_group(instances, gradients, step=step)
        kept.append(np.count_nonzero(flat(results[0].mean)))
        asked = [call.label for call in recording.calls]
        assert ("magnitudes of sums" in asked) == (step == 0)
        assert ("ends of equal shares" in asked) == (step % 64 == 0)
    assert kept[0] == k
    assert 0.5 * k < np.mean(kept[50:]) < 1.6 * k


def calls_of(vectors, text):
    return {call.label: call for call in reduce_once(text, vectors).recording.calls}


def test_regions_hold_equal_shares_of_what_is_selected():
    ranks, n = 8, 20_000
    rng = np.random.default_rng(5)
    # Nearly all that is large lies in the last tenth.
    envelope = np.where(np.arange(n) < 0.9 * n, 0.1, 1).astype(np.float32)
    calls = calls_of([rng.standard_normal(n, np.float32) * envelope for _ in range(ranks)], "ok-topk:density=0.02")
    received = np.array(calls["pairs to their owners"].blocks).sum(axis=0)
    assert received.max() < 1.2 * received.mean()


def test_an_owner_of_most_sums_hands_them_to_others():
    ranks, n, k = 8, 8000, 160
    rng = np.random.default_rng(7)
    vectors = [rng.standard_normal(n, np.float32) for _ in range(ranks)]
    for rank, vector in enumerate(vectors):
        # All select equally from all regions; what one rank alone selects in the first is larger than any other sum.
        vector[rank : rank + 160 : ranks] = 100
        vector[rng.choice(np.arange(n // 8, n), k // 8 * 7, replace=False)] = 5 + rng.random(k // 8 * 7, np.float32)
    calls = calls_of(vectors, "ok-topk:density=0.02")
    held = np.array(calls["largest sums"].elements)
    assert "sums to those who hold few" in calls
    assert held.max() - held.min() <= 8  # Bytes of a pair.
    assert np.array_equal(reduce_once("ok-topk:density=0.02", vectors).values[0], ok_topk(vectors, k))


def test_sums_are_moved_when_asked_for_alone():
    vectors = [np.random.default_rng(rank).standard_normal(2000, np.float32) for rank in range(4)]
    moved = "sums to those who hold few"
    assert [moved in calls_of(vectors, f"ok-topk:balance={when}") for when in ("skewed", "always", "never")] == [
        False,
        True,
        False,
    ]


def test_all_sums_are_more_than_the_large_ones():
    vectors = [np.random.default_rng(rank).standard_normal(20_000, np.float32) for rank in range(8)]
    large, everything = (calls_of(vectors, f"ok-topk:sums={sums}")["largest sums"] for sums in ("large", "all"))
    # Hardly two ranks select the same element.
    assert sum(everything.elements) > 0.9 * 8 * 8 * 200
    assert sum(large.elements) < 1.3 * 8 * 200


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
def test_bytes_keep_the_papers_bounds(ranks, shared):
    """Li and Hoefler, section 3: 8k(P-1)/P is the least of any sparse all-reduce, 24k(P-1)/P the most of theirs."""
    n, density = 2000 * ranks, 0.05
    rng = np.random.default_rng(ranks)
    common = rng.standard_normal(n, np.float32)
    own = np.sqrt(np.float32(1 - shared**2))
    vectors = [np.float32(shared) * common + own * rng.standard_normal(n, np.float32) for _ in range(ranks)]
    sent = reduce_once(f"ok-topk:density={density}", vectors).bytes_sent
    k = elements_kept(n, density)
    assert 8 * k * (ranks - 1) / ranks <= np.mean(sent)
    assert max(sent) <= 24 * k * (ranks - 1) / ranks


def test_thresholds_must_hold_for_a_step():
    with pytest.raises(OptionError, match="recompute=0 must be at least 1"):
        make_reducer("ok-topk:recompute=0")
