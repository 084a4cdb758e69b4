"""QSDP and THC against naive programs, and their bytes with and without the means that shards do not need."""

from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import is_symmetric, run_reducer
from s2sim.reducers.script import chunk_bounds, recording_bytes
from s2sim.seeds import named_generator
from s2sim.simulation.bucketing.sharded import shard_recording

from .naive import flat


def gradients_of(ranks, elements, seed=0):
    values = np.random.default_rng([seed, ranks]).standard_normal((ranks, elements)).astype(np.float32)
    return [Gradient(("layer",), (row,)) for row in values]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_qsdp_rounds_to_levels_of_each_bucket(bits, ranks):
    block, gradients = 10, gradients_of(ranks, 103)
    ran = run_reducer(make_reducer(f"qsdp:bits={bits},block={block}"), gradients)
    for gradient, result in zip(gradients, ran.results, strict=True):
        vector, sent = flat(gradient), flat(result.sent())
        bounds = chunk_bounds(len(vector), ranks)
        for start, stop in pairwise(bounds.tolist()):
            for first in range(start, stop, block):
                bucket = vector[first : min(first + block, stop)].astype(np.float64)
                unit = (bucket.max() - bucket.min()) / (2**bits - 1)
                levels = (sent[first : first + len(bucket)] - bucket.min()) / unit
                np.testing.assert_allclose(levels, np.rint(levels), atol=1e-2)
                assert (np.abs(levels - (bucket - bucket.min()) / unit) < 1.001).all()
    exact = np.mean([flat(result.sent()).astype(np.float64) for result in ran.results], axis=0)
    np.testing.assert_allclose(flat(ran.results[0].mean), exact, atol=1e-6)


def test_qsdp_is_right_on_average_and_one_exchange_whatever_the_nodes():
    gradients = gradients_of(4, 64)
    means = [
        flat(run_group(make_instances(make_reducer("qsdp:bits=4"), 4), gradients, seed=seed)[0][0].mean)
        for seed in range(100)
    ]
    error = np.std(means, axis=0).max() / 10
    np.testing.assert_allclose(
        np.mean(means, axis=0), np.mean([flat(each) for each in gradients], axis=0), atol=5 * error
    )
    assert make_reducer("qsdp").placed((0, 0, 1, 1)).notes() == ()


@pytest.mark.parametrize("bits", [4, 8])
def test_bytes_of_qsdp(bits):
    ranks, n, block = 4, 4096, 64
    gradient = Gradient(("w",), (np.zeros(n, np.float32),))
    recording = run_reducer(
        make_reducer(f"qsdp:bits={bits},block={block}").placed((0, 0, 1, 1)), [gradient] * ranks
    ).recording
    coded = n * bits // 8 + 8 * n // block
    assert set(recording_bytes(recording)[0].tolist()) == {(coded + 4 * n) * (ranks - 1) // ranks}
    assert set(recording_bytes(shard_recording(recording))[0].tolist()) == {coded * (ranks - 1) // ranks}
    assert is_symmetric(make_reducer("qsdp"), gradient)


def butterflies(vector):
    """Return 2^k elements times the orthonormal Hadamard matrix, one butterfly after the other."""
    turned, span = vector.astype(np.float64), 1
    while span < len(turned):
        pairs = turned.reshape(-1, 2, span)
        turned = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1) / np.sqrt(2)
        span *= 2
    return turned


TABLE, P_OVERFLOW = [0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30], 1 / 32


def naive_thc(vectors):
    """Return what each rank's codes stand for, and the mean of all, by vectors of as many elements as fit and 2^k."""
    ranks, table = len(vectors), np.array(TABLE)
    n = next(n for n in range(len(vectors[0]), 10**6) if n % (2 * ranks) == 0)  # As many whole bytes for each owner
    vectors = [np.pad(vector, (0, n - len(vector))) for vector in vectors]
    signs = named_generator(0, "thc").choice(np.array([-1, 1], np.float32), n)
    draws = [named_generator(0, "thc", 0, rank) for rank in range(ranks)]
    g, t_p = table[-1], NormalDist().inv_cdf(1 - P_OVERFLOW / 2)
    decoded, start = np.zeros((ranks, n)), 0
    while start < n:
        now = slice(start, start + 2 ** int(np.log2(n - start)))
        norm = max(np.linalg.norm(vector[now].astype(np.float64)) for vector in vectors)
        deviation = norm / np.sqrt(now.stop - start)
        for rank, vector in enumerate(vectors):
            at = butterflies(vector[now] * signs[now]) / (deviation or 1)
            at = ((np.clip(at, -t_p, t_p) + t_p) * g / (2 * t_p)).clip(0, g)
            high = table[np.searchsorted(table, at).clip(1)]
            low = table[np.searchsorted(table, at).clip(1) - 1]
            up = draws[rank].random(now.stop - start, np.float32) < (at - low) / (high - low)
            values = np.where(up, high, low) * 2 * t_p / g - t_p
            decoded[rank, now] = butterflies(values * deviation) * signs[now]
        start = now.stop
    return decoded, decoded.mean(axis=0)


def two_scales(rank):
    """Return a gradient of two layers, one of which is a thousand times as large."""
    random = np.random.default_rng(rank)
    layers = [scale * random.standard_normal(size) for size, scale in (((3000,), 1.0), ((50, 20), 1e-3))]
    return Gradient(("large", "small"), tuple(layer.astype(np.float32) for layer in layers))


CASES = {
    "one rank": gradients_of(1, 1500),
    "three ranks": gradients_of(3, 1500),
    "two scales": [two_scales(rank) for rank in range(4)],
    "few elements a rank": gradients_of(16, 100),
    "fewer elements than ranks": gradients_of(9, 5),
}


@pytest.mark.parametrize("where", ["owners", "network"])
@pytest.mark.parametrize("case", CASES)
def test_thc_adds_up_values_of_a_table(where, case):
    gradients = CASES[case]
    ranks, n, g = len(gradients), gradients[0].size, TABLE[-1]
    results, recording = run_group(make_instances(make_reducer(f"thc:where={where}"), ranks), gradients)
    vectors = list(map(flat, gradients))
    decoded, mean = (values[..., :n] for values in naive_thc(vectors))
    # A draw may lie between the roundings of both programs: that is a step of the table in one element of few.
    for result, own in zip(results, decoded, strict=True):
        assert np.linalg.norm(flat(result.sent()) - own) < 0.02 * np.linalg.norm(own)
        assert np.linalg.norm(flat(result.mean) - mean) < 0.02 * np.linalg.norm(mean)
    exact = np.mean(vectors, axis=0)
    assert np.linalg.norm(mean - exact) < 0.35 * np.linalg.norm(exact)
    wide = 1 if g * ranks <= 255 else 2
    padded = len(range(0, n, 2 * ranks)) * 2 * ranks
    # The largest norms go before, one for each power of two.
    sent = 2 * 40 * 8 + {"owners": padded // 2 + wide * padded, "network": 2 * wide * padded}[where]
    assert recording_bytes(recording)[0].sum() == (ranks - 1) * sent


def test_thc_loses_as_little_where_scales_differ():
    """All elements of a vector are turned together, so that those of a large layer are not clipped more than others."""
    losses = []
    for spread in (1.0, 1e-3):
        random = np.random.default_rng(5)
        scales = np.where(np.arange(1 << 15) < 1 << 11, 1.0, spread)
        vector = (scales * random.standard_normal(1 << 15)).astype(np.float32)
        (mean, *_), _ = run_group(make_instances(make_reducer("thc"), 2), [Gradient(("w",), (vector,))] * 2)
        losses.append(np.linalg.norm(flat(mean.mean) - vector) / np.linalg.norm(vector))
    assert losses[1] == pytest.approx(losses[0], rel=0.1)
    assert losses[0] < 0.15


def test_thc_is_an_eighth_up_and_a_quarter_down():
    """Of float32, as published: four bits to whoever sums, and a byte of the sum."""
    recording = run_reducer(make_reducer("thc"), gradients_of(8, 8 * 1024)).recording
    bits, sums = (call for call in recording.calls if call.kind != "all_reduce")
    assert bits.bytes_by_rank[0] == 8 * 1024 * 4 // 8
    assert sum(sums.bytes_by_rank) == 8 * 1024 * 4 // 4


def test_thc_makes_normal_elements_of_one_large_one():
    vector = np.zeros(1024, np.float32)
    vector[7] = 1000
    results, _ = run_group(make_instances(make_reducer("thc"), 2), [Gradient(("w",), (vector,))] * 2)
    # Every element of the rotation is one standard deviation: none is clipped, and 1000 comes back but for rounding.
    assert flat(results[0].mean)[7] == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize("text", ["qsdp:bits=3", "qsdp:node=2", "thc:where=here"])
def test_refused_options(text):
    with pytest.raises(OptionError):
        make_reducer(text)
