"""random-k and random-block: who sends what, at how many bytes, and what is lost on average."""

import numpy as np
import pytest

from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, run_reducer
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.testing.reducer_properties import example_gradients

N, K, RANKS = 120, 12, 4
ARRAYS = [np.random.default_rng(rank).standard_normal(N, np.float32) for rank in range(RANKS)]
MEAN = np.mean(ARRAYS, axis=0)


@pytest.mark.parametrize("name", ["random-k", "random-block"])
def test_with_a_shared_seed_all_ranks_average_the_same_elements(name):
    once = reduce_once(f"{name}:density=0.1", ARRAYS)
    chosen = np.flatnonzero(once.values[0])
    assert len(chosen) == K
    np.testing.assert_allclose(once.values[0][chosen], MEAN[chosen], rtol=1e-5)
    assert once.bytes_sent == [8 * K * (RANKS - 1) // RANKS] * RANKS
    assert [call.kind for call in once.recording.calls] == ["all_reduce"]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("random-k:density=0.1,seed=own", 8 * K),
        ("random-k:density=0.1,seed=own,send=seed", 4 * K + 8),
        ("random-block:density=0.1,seed=own", 4 * K + 4),
    ],
)
def test_with_seeds_of_their_own_ranks_gather_different_elements(text, sent):
    gradients = [example_gradients(1, seed=rank)[0] for rank in range(RANKS)]
    ran = run_reducer(make_reducer(f"{text},granularity=global"), gradients)
    own = [flat_vector(result.sent()) for result in ran.results]
    np.testing.assert_allclose(flat_vector(ran.results[0].mean), np.mean(own, axis=0), atol=1e-6)
    once = reduce_once(text, ARRAYS)
    assert once.bytes_sent == [sent * (RANKS - 1)] * RANKS
    # 4 x 12 draws of 120 elements are not one and the same.
    assert np.count_nonzero(once.values[0]) > K


def test_the_seed_tells_what_the_indices_tell():
    by_index, by_seed = (
        reduce_once(f"random-k:density=0.1,seed=own,send={send}", ARRAYS).values[0] for send in ("indices", "seed")
    )
    assert np.array_equal(by_index, by_seed)


@pytest.mark.slow
def test_a_block_is_a_run_that_goes_round_the_end():
    starts = set()
    for seed in range(400):
        kept = reduce_once("random-block:density=0.1", [np.ones(20, np.float32)], seed=seed).values[0]
        ends = np.flatnonzero(kept > np.roll(kept, 1))
        assert len(ends) == 1
        assert kept.sum() == 2
        starts.add(int(ends[0]))
    # Each of 20 starts is missed by 400 draws with a probability of 1e-9.
    assert starts == set(range(20))


def test_own_blocks_do_not_overlap():
    for seed in range(50):
        kept = reduce_once("random-block:density=0.15,seed=own", [np.ones(20, np.float32)], seed=seed).values[0]
        chosen = np.flatnonzero(kept)
        assert chosen[0] % 3 == 0
        assert chosen.tolist() == list(range(chosen[0], chosen[0] + 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random-k", "random-block"])
def test_what_is_lost_on_average_is_a_share_of_the_squared_norm(name):
    """E ||x - C(x)||^2 = (1 - k/n) ||x||^2 (Stich et al. 2018, definition 2.1)."""
    x, k, draws = ARRAYS[0][:20], 5, 600
    lost = [
        float(np.square(x - reduce_once(f"{name}:density=0.25", [x], seed=s).values[0]).sum()) for s in range(draws)
    ]
    error = np.std(lost) / np.sqrt(draws)
    assert abs(np.mean(lost) - (1 - k / 20) * float(np.square(x).sum())) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["shared", "own"])
def test_scaled_draws_are_unbiased_with_the_second_moment_of_theory(seed):
    """E C(x) = x and E ||C(x)||^2 = n/k ||x||^2."""
    x, k, draws = ARRAYS[0][:20], 5, 600
    found = [
        reduce_once(f"random-k:density=0.25,scale=true,seed={seed}", [x], seed=each).values[0] for each in range(draws)
    ]
    deviation = np.abs(x) * np.sqrt((20 / k - 1) / draws)
    assert (np.abs(np.mean(found, axis=0) - x) < 4.5 * deviation).all()
    squares = np.square(found).sum(axis=1)
    assert abs(squares.mean() - 20 / k * float(np.square(x).sum())) < 4 * squares.std() / np.sqrt(draws)


def test_by_layer_each_has_its_share_and_globally_the_whole_has():
    gradients = example_gradients(3)
    sizes = [layer.size for layer in gradients[0].layers]
    for granularity, k in (
        ("layer", sum(elements_kept(size, 0.1) for size in sizes)),
        ("global", elements_kept(sum(sizes), 0.1)),
    ):
        for name in ("random-k", "random-block"):
            ran = run_reducer(make_reducer(f"{name}:density=0.1,granularity={granularity}"), gradients)
            assert ran.recording.calls[0].bytes_by_rank == (4 * k,) * 3


def test_steps_draw_anew():
    reducer = make_reducer("random-k:density=0.1,ef=true")
    (gradient,) = example_gradients(1)
    instances = make_instances(reducer, 1)
    means = [flat_vector(run_group(instances, [gradient], step=step)[0][0].mean) for step in range(2)]
    assert not np.array_equal(means[0] != 0, means[1] != 0)


def test_a_seed_is_sent_only_where_it_tells_something():
    with pytest.raises(OptionError, match="seed=own"):
        make_reducer("random-k:send=seed")


@pytest.mark.parametrize("text", ["random-k:density=0", "random-block:density=1.5", "random-k:density=nan"])
def test_a_density_out_of_range_is_refused(text):
    with pytest.raises(OptionError, match="density"):
        make_reducer(text)
