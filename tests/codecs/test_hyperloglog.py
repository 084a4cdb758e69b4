from math import log

import numpy as np
import pytest

from s2sim.codecs.hashing import HyperLogLog, _seed_word, mix64
from s2sim.errors import CodecError, OptionError


def naive_registers(estimator, keys):
    registers = [0] * estimator.size
    for hashed in mix64(keys, _seed_word(estimator.seed)).tolist():
        bits = f"{hashed:064b}"
        chosen, rest = int(bits[: estimator.precision], 2), bits[16:]
        position = rest.index("1") + 1 if "1" in rest else 49
        registers[chosen] = max(registers[chosen], position)
    return registers


@pytest.mark.parametrize("precision", [4, 9, 12, 16])
def test_registers_equal_the_naive_ones(precision):
    keys = np.random.default_rng(0).choice(1 << 32, 3000, replace=False).astype(np.uint32)
    estimator = HyperLogLog(precision, seed=5)
    registers = estimator.registers(keys)
    assert registers.dtype == np.uint8
    assert registers.tolist() == naive_registers(estimator, keys)


def test_the_hash_is_splitmix64():
    """First outputs of SplitMix64 from state 0: its state grows by the golden ratio before each is finalised."""
    keys = np.array([1, 2, 3], np.uint32)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mix64(keys, np.uint64(0)).tolist() == expected


@pytest.mark.parametrize("stride", [1, 64])
@pytest.mark.parametrize("keys", [100, 1000, 20_000, 200_000])
def test_error_is_as_published(keys, stride):
    """Mean and RMS of the relative error over seeds, against 1.04 / sqrt(m)."""
    precision, seeds = 10, 40
    support = np.arange(keys, dtype=np.uint32) * np.uint32(stride)
    estimators = [HyperLogLog(precision, seed) for seed in range(seeds)]
    errors = np.array([e.estimate(e.registers(support)) / keys - 1 for e in estimators])
    standard = 1.04 / np.sqrt(2**precision)
    assert np.sqrt(np.mean(errors**2)) < 1.35 * standard
    assert abs(errors.mean()) < 4 * standard / np.sqrt(seeds)
    if keys > 5 * 2**precision:
        assert np.sqrt(np.mean(errors**2)) > 0.7 * standard


def test_ten_million_keys():
    estimator = HyperLogLog(14)
    estimate = estimator.estimate(estimator.registers(np.arange(10_000_000, dtype=np.uint32)))
    assert abs(estimate / 1e7 - 1) < 4 * 1.04 / np.sqrt(2**14)


def test_merge_is_the_maximum_and_repeats_do_not_count():
    estimator = HyperLogLog()
    left, right = np.arange(0, 3000, dtype=np.uint32), np.arange(2000, 6000, dtype=np.uint32)
    merged = np.maximum(estimator.registers(left), estimator.registers(right))
    assert np.array_equal(merged, estimator.registers(np.arange(6000, dtype=np.uint32)))
    assert np.array_equal(estimator.registers(np.tile(left, 3)), estimator.registers(left))


def test_small_counts_are_counted_by_empty_registers():
    estimator = HyperLogLog(precision=12)
    assert estimator.estimate(np.zeros(4096, np.uint8)) == 0
    one = np.zeros(4096, np.uint8)
    one[7] = 3
    assert estimator.estimate(one) == pytest.approx(4096 * log(4096 / 4095))


def test_misuse_is_refused():
    with pytest.raises(OptionError):
        HyperLogLog(precision=3)
    with pytest.raises(OptionError):
        HyperLogLog(seed=-1)
    with pytest.raises(CodecError, match="4096"):
        HyperLogLog().estimate(np.zeros(1024, np.uint8))
