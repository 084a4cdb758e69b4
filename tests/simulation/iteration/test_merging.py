"""Merged gradients: the rule of MG-WFBP and the search of TopKA2A, beside all merges that there are."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.simulation.bucketing.overlap import fit_line
from s2sim.simulation.bucketing.policy import Bucket, ReadyTensors, finish_ps, make_discipline

GRADIENTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=10)


def ready(gradients):
    """Take sizes, and how long after the gradient before it each is ready."""
    size_bytes, after_ps = np.array(gradients, np.int64).reshape(-1, 2).T
    return ReadyTensors(size_bytes, np.cumsum(after_ps), np.zeros(len(size_bytes), bool))


def line(start_ps, per_byte_ps):
    return lambda size_bytes: start_ps + per_byte_ps * size_bytes


def end_ps(text, tensors, exchange_ps):
    return int(finish_ps(make_discipline(text).buckets(tensors, exchange_ps), tensors, exchange_ps).max())


def all_merges(count):
    for choice in range(2 ** (count - 1)):
        cuts = [0, *(place for place in range(1, count) if choice >> (place - 1) & 1), count]
        yield tuple(Bucket(tuple(range(first, behind))) for first, behind in pairwise(cuts))


def least_ps(tensors, exchange_ps):
    """Return the end of the best of all merges: one by one, and by recurrence over what is before the last bucket."""
    tried = min(int(finish_ps(merge, tensors, exchange_ps).max()) for merge in all_merges(len(tensors.bytes)))
    best = [0]
    for behind in range(1, len(tensors.bytes) + 1):
        at = int(tensors.ready_ps[behind - 1])
        best.append(
            min(max(best[first], at) + exchange_ps(int(tensors.bytes[first:behind].sum())) for first in range(behind))
        )
    assert tried == best[-1]
    return tried


@given(GRADIENTS, st.integers(0, 100), st.integers(0, 4))
def test_merged_by_the_rule_nothing_is_later_than_by_itself_or_at_once(gradients, start_ps, per_byte_ps):
    tensors, exchange_ps = ready(gradients), line(start_ps, per_byte_ps)
    merged = end_ps("mg-wfbp", tensors, exchange_ps)
    assert merged <= min(end_ps("per-tensor", tensors, exchange_ps), end_ps("after-backward", tensors, exchange_ps))
    assert merged >= least_ps(tensors, exchange_ps)


@given(GRADIENTS, st.integers(1, 4))
def test_the_rule_is_the_best_merge_where_all_is_ready_or_starts_cost_nothing(gradients, per_byte_ps):
    at_once = ready([(size, 0) for size, _ in gradients])
    assert end_ps("mg-wfbp", at_once, line(7, per_byte_ps)) == least_ps(at_once, line(7, per_byte_ps))
    free = ready(gradients)
    assert end_ps("mg-wfbp", free, line(0, per_byte_ps)) == least_ps(free, line(0, per_byte_ps))


@given(st.tuples(st.integers(0, 60), st.integers(0, 60)), st.integers(0, 60), st.integers(0, 60))
def test_the_rule_is_the_best_merge_of_two(first, size_bytes, after_ps):
    tensors = ready([first, (size_bytes, after_ps)])
    assert end_ps("mg-wfbp", tensors, line(20, 1)) == least_ps(tensors, line(20, 1))


def test_the_greedy_rule_is_not_always_the_best_merge():
    # The first waits 9 for the second, which saves 10; so the third cannot share a start with the second.
    tensors, exchange_ps = ready([(20, 0), (1, 9), (1, 11)]), line(10, 1)
    assert [item.tensors for item in make_discipline("mg-wfbp").buckets(tensors, exchange_ps)] == [(0, 1), (2,)]
    assert end_ps("mg-wfbp", tensors, exchange_ps) == 51
    assert least_ps(tensors, exchange_ps) == 42  # (0,), (1, 2)


def test_the_rule_goes_on_waiting_where_each_next_gradient_is_near():
    tensors, exchange_ps = ready([(100, 9)] * 10), line(10, 1)
    assert len(make_discipline("mg-wfbp").buckets(tensors, exchange_ps)) == 1
    assert end_ps("mg-wfbp", tensors, exchange_ps) == 1100 == end_ps("after-backward", tensors, exchange_ps)
    assert end_ps("per-tensor", tensors, exchange_ps) == 1109
    assert least_ps(tensors, exchange_ps) == 1029  # the first by itself, then all others


def test_the_rule_goes_by_the_latency_that_it_is_told():
    tensors, exchange_ps = ready([(20, 0), (1, 9), (1, 11)]), line(10, 1)
    for latency, buckets in (("9ps", [(0,), (1, 2)]), ("10ps", [(0, 1), (2,)]), ("12ps", [(0, 1, 2)])):
        found = make_discipline(f"mg-wfbp:latency={latency}").buckets(tensors, exchange_ps)
        assert [item.tensors for item in found] == buckets


def test_times_that_are_no_line_are_taken_for_one():
    """From 1 MiB on a byte takes a tenth of the time, so that the line is far above small exchanges."""
    tensors = ready([(2**14, 10**6)] * 10)

    def exchange_ps(size_bytes):
        return 10**6 + 1000 * min(size_bytes, 2**20) + 100 * max(size_bytes - 2**20, 0)

    start_ps, _ = fit_line(exchange_ps)
    assert start_ps > 10 * exchange_ps(0)
    assert len(make_discipline("mg-wfbp").buckets(tensors, exchange_ps)) == 1
    assert end_ps("mg-wfbp", tensors, exchange_ps) > least_ps(tensors, exchange_ps)


def test_the_line_is_never_below_nothing():
    assert fit_line(lambda _: 0) == (0, 0)
    assert fit_line(lambda size_bytes: size_bytes**2)[0] == 0


@given(GRADIENTS, st.integers(0, 100))
def test_the_search_is_as_good_as_what_it_tries(gradients, start_ps):
    """It begins with half the model."""
    tensors, exchange_ps = ready(gradients), line(start_ps, 1)
    found = end_ps("topka2a:least=1B,tolerance=1B", tensors, exchange_ps)
    assert found >= least_ps(tensors, exchange_ps)
    half = max(int(tensors.bytes.sum()) + 1, 2) // 2
    if half < tensors.bytes.sum():
        assert found <= end_ps(f"ddp:bucket={half}B,first={half}B", tensors, exchange_ps)


@pytest.mark.parametrize(("start_ps", "buckets"), [(0, 100), (10**9, 2)])
def test_the_search_goes_to_small_buckets_where_starts_cost_nothing_and_to_large_ones_else(start_ps, buckets):
    """One bucket alone has the size of the model, where the search does not come."""
    tensors = ready([(10**6, 10**6)] * 100)
    text = "topka2a:tolerance=0B,steps=30"
    assert len(make_discipline(text).buckets(tensors, line(start_ps, 1))) == buckets
