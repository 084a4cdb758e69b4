"""The order of bytes of the systems for ResNet-50: n = 25.56 M, k = 1 % of them, P = 32 ranks.

The figures, in MB sent by a rank, follow from the papers' formulas (shared notes on compressors, section G). They are
compared with the lengths of real messages of fewer elements, grown alike: all are in proportion to n, but for a few
bytes a message.
"""

from math import log2

import numpy as np
import pytest

from s2sim.reducers.run import reduce_once

P = 32
# So that every rank has a whole number of pairs for every other.
RAN = 102_400
GROWN = 25_560_000 / RAN

EQUAL = {
    "dense": 198,
    "topk": 63.4,
    "topka2a": 101,
    "sparcml:algorithm=dense-split": 101,
    "spardl": 4.0,
    "random-block": 2.0,
    "random-k": 2.0,
    "deepreduce": 49,
    "sbc": 8.0,
}
AT_MOST = {"ok-topk": 5.9}
GTOPK_PATH = 20.4
# They are given in two or three digits.
WITHIN = 0.02


@pytest.fixture(scope="module")
def gradients():
    generator = np.random.default_rng(0)
    return [generator.standard_normal(RAN).astype(np.float32) for _ in range(P)]


def megabytes(text, gradients):
    """Return what the busiest rank sends for all elements."""
    return max(reduce_once(text, gradients).bytes_sent) * GROWN / 1e6


@pytest.mark.parametrize(("text", "published"), EQUAL.items())
def test_a_rank_sends_what_follows_from_the_papers(text, published, gradients):
    assert megabytes(text, gradients) == pytest.approx(published, rel=WITHIN)


@pytest.mark.parametrize(("text", "published"), AT_MOST.items())
def test_a_rank_sends_no_more_than_the_bound(text, published, gradients):
    assert 0 < megabytes(text, gradients) <= published


def test_the_longest_path_of_gtopk(gradients):
    """Pairs travel up the tree level by level, and down it again."""
    *levels, down = reduce_once("gtopk", gradients).recording.calls
    assert (len(levels), down.kind) == (log2(P), "broadcast")
    up = sum(max(map(max, call.blocks)) * call.itemsize for call in levels)
    path = up + len(levels) * max(down.bytes_by_rank)
    assert path * GROWN / 1e6 == pytest.approx(GTOPK_PATH, rel=WITHIN)


@pytest.mark.slow
def test_the_order_is_the_published_one(gradients):
    order = ["random-block", "spardl", "ok-topk", "sbc", "deepreduce", "topk", "topka2a", "dense"]
    found = [megabytes(text, gradients) for text in order]
    assert found == sorted(found)
