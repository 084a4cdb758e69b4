"""When exchanges end, beside sums done by hand: two layers, two buckets, one network."""

import numpy as np
import pytest

from s2sim.simulation.bucketing.policy import Bucket, ReadyTensors, finish_ps, make_discipline

LATENCY, PER_BYTE = 10, 2  # ps


def exchange_ps(size):
    return LATENCY + PER_BYTE * size


def two(first_bytes, second_bytes, first_ready, second_ready):
    return ReadyTensors(np.array([first_bytes, second_bytes]), np.array([first_ready, second_ready]), np.zeros(2, bool))


@pytest.mark.parametrize(
    ("layers", "ends"),
    [
        # The first, 10 + 2 x 5 from 7 on, is over at 27, before the second is ready.
        (two(5, 3, 7, 100), [27, 116]),
        # The second is ready in the moment in which the first ends.
        (two(5, 3, 7, 27), [27, 43]),
        # The second waits for the first.
        (two(50, 3, 7, 27), [117, 133]),
        # Both at once: the latency is paid twice.
        (two(5, 3, 7, 7), [27, 43]),
        # Nothing to send still is an exchange.
        (two(0, 3, 7, 7), [17, 33]),
    ],
)
def test_two_layers_in_two_buckets(layers, ends):
    buckets = make_discipline("per-tensor").buckets(layers, exchange_ps)
    assert finish_ps(buckets, layers, exchange_ps).tolist() == ends


@pytest.mark.parametrize(("layers", "end"), [(two(5, 3, 7, 100), 126), (two(50, 3, 7, 27), 143), (two(5, 3, 7, 7), 33)])
def test_two_layers_in_one_bucket(layers, end):
    buckets = make_discipline("after-backward").buckets(layers, exchange_ps)
    assert finish_ps(buckets, layers, exchange_ps).tolist() == [end]


def test_equal_priorities_are_the_recurrence():
    generator = np.random.default_rng(3)
    tensors = ReadyTensors(generator.integers(0, 50, 40), np.sort(generator.integers(0, 3000, 40)), np.zeros(40, bool))
    buckets = tuple(Bucket(tuple(range(start, min(start + 3, 40)))) for start in range(0, 40, 3))
    end, ends = 0, []
    for bucket in buckets:
        end = max(end, tensors.ready_ps[bucket.tensors[-1]]) + exchange_ps(sum(tensors.bytes[list(bucket.tensors)]))
        ends.append(end)
    assert finish_ps(buckets, tensors, exchange_ps).tolist() == ends


def test_what_is_ready_goes_by_priority_and_what_has_begun_goes_on():
    tensors = ReadyTensors(np.array([5, 5, 5]), np.array([0, 1, 2]), np.zeros(3, bool))
    buckets = (Bucket((0,), 1), Bucket((1,), 1), Bucket((2,), 0))
    # The first takes the network until 20; by then the third is ready, and goes before the second.
    assert finish_ps(buckets, tensors, exchange_ps).tolist() == [20, 60, 40]


def test_no_buckets_end_nothing():
    none = ReadyTensors(*(np.zeros(0, kind) for kind in (np.int64, np.int64, bool)))
    assert finish_ps((), none, exchange_ps).tolist() == []
