"""SparDL against a naive oracle with dense blocks, its bytes, and where what is cut off goes."""

from itertools import pairwise

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


def cut(block, k):
    order = sorted(range(len(block)), key=lambda i: (-abs(float(block[i])), i))[:k]
    kept = np.zeros_like(block)
    kept[order] = block[order]
    return kept


def far_off(rank, gap, ranks):
    return [(rank + distance) % ranks for distance in range(gap, min(2 * gap, ranks))]


def spardl(vectors, density, local):
    """Every block walks to its owner by powers of two, cut before every hop."""
    ranks, n = len(vectors), len(vectors[0])
    ends = [rank * n // ranks for rank in range(ranks + 1)]
    kept = [elements_kept(b - a, density) for a, b in pairwise(ends)]
    held = [[vector[a:b] for a, b in pairwise(ends)] for vector in vectors]
    if local == "selected":
        held = [[cut(block, k) for block, k in zip(blocks, kept, strict=True)] for blocks in held]
    gap = 1
    while gap < ranks:
        gap *= 2
    while gap > 1:
        gap //= 2
        sent = [
            {block: cut(held[rank][block], kept[block]) for block in far_off(rank, gap, ranks)} for rank in range(ranks)
        ]
        for rank in range(ranks):
            for block, values in sent[rank - gap].items():
                held[rank][block] = held[rank][block] + values
    owned = [cut(held[rank][rank], kept[rank]) for rank in range(ranks)]
    return np.concatenate([np.empty(0, np.float32), *owned]) / np.float32(ranks)


@given(
    st.integers(1, 9),
    st.integers(0, 60),
    st.floats(0.01, 1),
    st.sampled_from(["all", "selected"]),
    st.integers(0, 2**32),
)
def test_it_is_the_reduce_scatter_of_sparse_blocks(ranks, n, density, local, seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.integers(-4, 5, n).astype(np.float32) for _ in range(ranks)]
    once = reduce_once(f"spardl:density={density},local={local}", vectors)
    assert np.array_equal(once.values[0], spardl(vectors, density, local))


@pytest.mark.parametrize("ranks", [2, 3, 7, 16])
def test_bytes_are_four_words_an_element_kept(ranks):
    n, density = 1000 * ranks, 0.02
    rng = np.random.default_rng(ranks)
    once = reduce_once(f"spardl:density={density}", [rng.standard_normal(n, np.float32) for _ in range(ranks)])
    k = elements_kept(n, density)
    assert once.bytes_sent == [16 * k * (ranks - 1) // ranks] * ranks
    assert len(once.recording.calls) - 1 == np.ceil(np.log2(ranks))
    assert not any(call.size_from_data for call in once.recording.calls)


@pytest.mark.parametrize(("ranks", "teams"), [(4, 2), (6, 3), (8, 8), (12, 4)])
def test_teams_add_what_they_gather_from_each_other(ranks, teams):
    n, density = 1000 * ranks, 0.02
    k = elements_kept(n, density)
    rng = np.random.default_rng(ranks)
    once = reduce_once(
        f"spardl:density={density},teams={teams}", [rng.standard_normal(n, np.float32) for _ in range(ranks)]
    )
    inside = 16 * k * (ranks - teams) / ranks
    least, most = 8 * k * (teams - 1) / ranks, 8 * k * teams * (teams - 1) / ranks
    assert inside + least <= max(once.bytes_sent) <= inside + most
    assert all(np.array_equal(values, once.values[0]) for values in once.values)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("ranks", "teams"), [(1, 1), (3, 1), (8, 1), (8, 2), (8, 8)])
def test_what_all_have_sent_is_the_mean_times_ranks(ranks, teams, dtype):
    instances = make_instances(make_reducer(f"spardl:density=0.1,teams={teams}").with_dtype(dtype), ranks)
    for step in range(3):
        results, _ = run_group(instances, example_gradients(ranks, seed=step), step=step)
        sent = np.sum([flat(result.sent()) for result in results], axis=0)
        np.testing.assert_allclose(sent, ranks * flat(results[0].mean), atol=1e-5)


def test_teams_gather_as_many_pairs_as_make_a_full_block():
    ranks, teams, n = 8, 4, 16_000
    rng = np.random.default_rng(2)
    common = rng.standard_normal(n, np.float32)
    instances = make_instances(make_reducer(f"spardl:density=0.02,teams={teams}"), ranks)
    sizes = []
    for step in range(25):
        # Much overlap: h starts at a quarter of a block, and all teams' sums together have less than a block.
        vectors = [common + np.float32(0.1) * rng.standard_normal(n, np.float32) for _ in range(ranks)]
        _, recording = run_group(instances, [Gradient(("all",), (vector,)) for vector in vectors], step=step)
        (call,) = {call for call in recording.calls if call.label == "pairs of all teams" and 0 in call.ranks}
        sizes.append(call.elements[0] // 8)
    assert sizes[0] == 40
    assert 60 < np.mean(sizes[-10:]) <= 160


def test_teams_must_divide_the_ranks():
    with pytest.raises(OptionError, match="teams=2 does not divide 3 ranks"):
        reduce_once("spardl:teams=2", [np.ones(5, np.float32)] * 3)
