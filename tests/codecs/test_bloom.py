"""The Bloom filter against one of sets of bits, its rate of false positives, and which keys are likeliest."""

from math import log2

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from s2sim.codecs.deepreduce import BloomFilter, check_rate
from s2sim.errors import CodecError, OptionError

RATES = [0.5, 0.1, 0.01, 0.001, 2.0**-16]


def some_keys(n, k, seed):
    return np.sort(np.random.default_rng(seed).choice(n, k, replace=False))


@given(st.integers(0, 300), st.floats(0, 1), st.sampled_from(RATES), st.integers(0, 2**32))
def test_no_key_is_lost(n, share, rate, seed):
    keys = some_keys(n, int(n * share), seed)
    bloom = BloomFilter.sized(len(keys), rate, seed)
    filled = bloom.encode(keys)
    assert len(filled) == -(-bloom.bits // 8)
    positives = bloom.positives(filled, n)
    assert np.isin(keys, positives).all()
    assert np.all(np.diff(positives) > 0)


@pytest.mark.parametrize("rate", RATES)
def test_others_pass_at_the_rate_asked_for(rate):
    n, k = 200_000, 2000
    keys = some_keys(n, k, 1)
    bloom = BloomFilter.sized(k, rate)
    wrong = len(bloom.positives(bloom.encode(keys), n)) - k
    # The number of hash functions is whole, and that of bits set is not quite half.
    expected = rate * (n - k)
    assert abs(wrong - expected) < 0.15 * expected + 5 * np.sqrt(expected)


@pytest.mark.parametrize("rate", RATES)
def test_bits_are_those_of_the_formula(rate):
    bloom = BloomFilter.sized(10_000, rate)
    assert bloom.bits == pytest.approx(1.4427 * 10_000 * log2(1 / rate), rel=1e-4)
    assert bloom.hashes == round(log2(1 / rate))


def conflict_sets(bloom, positives):
    """By bit, the places of the positives that set it."""
    sets = {}
    for place, key in enumerate(positives):
        for bit in np.flatnonzero(np.unpackbits(bloom.encode(np.array([key])), bitorder="little")):
            sets.setdefault(int(bit), []).append(place)
    return [sets[bit] for bit in sorted(sets)]


@given(st.integers(1, 400), st.floats(0.01, 0.2), st.sampled_from([0.5, 0.1, 0.01]), st.integers(0, 2**32))
@example(200, 0.125, 0.1, 1)
def test_the_likeliest_are_drawn_from_conflict_sets(n, share, rate, seed):
    keys = some_keys(n, max(1, int(n * share)), seed)
    bloom = BloomFilter.sized(len(keys), rate, seed)
    positives = bloom.positives(bloom.encode(keys), n)
    sets = conflict_sets(bloom, positives)
    draws = np.random.default_rng(7).random(len(sets))
    chosen = []
    for members, draw in sorted(zip(sets, draws, strict=True), key=lambda item: len(item[0])):
        if len(chosen) < len(keys) and not set(members) & set(chosen):
            chosen.append(members[int(draw * len(members))])
    found = bloom.likeliest(positives, len(keys), np.random.default_rng(7))
    assert len(found) == len(keys)
    assert np.all(np.diff(found) > 0)
    assert np.isin(positives[chosen], found).all()
    alone = [members[0] for members in sets if len(members) == 1]
    assert np.isin(positives[alone], keys).all()
    assert np.isin(positives[alone], found).all()


def test_filters_differ_by_seed():
    keys = np.arange(100)
    assert not np.array_equal(*(BloomFilter.sized(100, 0.01, seed).encode(keys) for seed in (1, 2)))


def test_what_is_no_filter_is_refused():
    with pytest.raises(CodecError, match="bitmap of 58 elements is 8 bytes"):
        BloomFilter.sized(4, 0.001).positives(np.zeros(7, np.uint8), 10)
    for rate in (0, 1, -0.5, 1e-9):
        with pytest.raises(OptionError, match=r"fpr=.* is not between 2\^-16 and 1"):
            check_rate(rate, "x")
