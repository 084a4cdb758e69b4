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


def sylvester(n):
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(n)


TABLE, P_OVERFLOW = [0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30], 1 / 32


@pytest.mark.parametrize("where", ["owners", "network"])
@pytest.mark.parametrize("ranks", [1, 3, pytest.param(9, marks=pytest.mark.slow)])
def test_thc_adds_up_values_of_a_table(where, ranks):
    n, table, p = 1500, TABLE, P_OVERFLOW
    gradients = gradients_of(ranks, n)
    results, recording = run_group(make_instances(make_reducer(f"thc:where={where}"), ranks), gradients)
    blocks = -(-n // (1024 * ranks)) * ranks
    signs = named_generator(0, "thc").choice(np.array([-1, 1], np.float32), (blocks, 1024))
    H, g, t_p = sylvester(1024), table[-1], NormalDist().inv_cdf(1 - p / 2)
    rotated = [np.pad(flat(each), (0, blocks * 1024 - n)).reshape(blocks, 1024) * signs @ H for each in gradients]
    scale = max(map(np.linalg.norm, rotated)) / np.sqrt(blocks * 1024)
    total = np.zeros((blocks, 1024))
    for rank, values in enumerate(rotated):
        draws = named_generator(0, "thc", 0, rank).random((blocks, 1024), np.float32)
        at = np.clip((values / scale + t_p) * g / (2 * t_p), 0, g)
        below = np.clip(np.searchsorted(table, at, "right") - 1, 0, len(table) - 2)
        low, high = np.array(table)[below], np.array(table)[below + 1]
        own = np.where(draws < (at - low) / (high - low), high, low)
        decoded = (((own * 2 * t_p / g - t_p) * scale) @ H * signs).reshape(-1)[:n]
        # A draw may lie between the roundings of both programs.
        np.testing.assert_allclose(flat(results[rank].sent()), decoded, atol=0.02)
        total += own
    mean = (((total / ranks * 2 * t_p / g - t_p) * scale) @ H * signs).reshape(-1)[:n]
    for result in results:
        np.testing.assert_allclose(flat(result.mean), mean, atol=0.02)
    wide = 1 if g * ranks <= 255 else 2
    padded = blocks * 1024
    sent = {"owners": padded // 2 + wide * padded, "network": 2 * wide * padded}[where] * (ranks - 1) // ranks
    # The largest norm goes before.
    norms = 8 * 2 * (ranks - 1) / ranks
    assert abs(int(recording_bytes(recording)[0].max()) - sent) <= norms + 8


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
