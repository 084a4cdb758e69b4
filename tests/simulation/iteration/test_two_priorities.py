"""What the next forward needs first goes first."""

import numpy as np

from s2sim.simulation.bucketing.policy import Bucket, ReadyTensors, finish_ps, make_discipline


def test_embeddings_first_and_then_in_the_order_of_forward():
    # An output layer, two hidden ones, and the embedding that forward begins with.
    tensors = ReadyTensors(np.array([40, 10, 40, 30]), np.array([1, 2, 3, 4]), np.array([False, False, False, True]))
    discipline = make_discipline("two-priorities:bucket=40B")
    buckets = discipline.buckets(tensors, lambda size: size)
    assert buckets == (Bucket((0,), 4), Bucket((1, 2), 2), Bucket((3,), 0))
    assert not discipline.waits_for_all
    # The output layer has begun; the embedding is ready at its end as the hidden ones are, and passes them.
    assert finish_ps(buckets, tensors, lambda size: size).tolist() == [41, 121, 71]


def test_an_embedding_is_no_part_of_the_blocks_around_it():
    tensors = ReadyTensors(np.array([5, 50, 5, 5]), np.arange(4), np.array([False, True, False, False]))
    buckets = make_discipline("two-priorities:bucket=10B").buckets(tensors, lambda size: size)
    assert buckets == (Bucket((1,), 0), Bucket((0, 2), 2), Bucket((3,), 1))
