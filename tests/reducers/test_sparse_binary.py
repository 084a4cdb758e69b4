"""Sparse binary and ternary compression against naive oracles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.integer_codes import encode_positions
from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, reduce_steps
from s2sim.reducers.script import Work

RANKS = 5


def arrays(count=2000, ranks=RANKS):
    rng = np.random.default_rng(4)
    return [rng.standard_normal(count).astype(np.float32) for _ in range(ranks)]


def naive_sbc(vector, density):
    """Return what a tensor becomes, and where it is not zero."""
    k = elements_kept(len(vector), density)
    ordered = sorted(range(len(vector)), key=lambda place: (-abs(float(vector[place])), place))
    sides = []
    for sign in (1, -1):
        chosen = [place for place in ordered if sign * vector[place] > 0][:k]
        mean = float(np.mean(vector[chosen].astype(np.float64))) if chosen else 0.0
        sides.append((sign * mean, mean, sorted(chosen)))
    _, mean, chosen = max(sides, key=lambda side: side[0])
    decoded = np.zeros(len(vector))
    decoded[chosen] = mean
    return decoded, chosen


@pytest.mark.parametrize(("density", "low_bits"), [(0.01, 6), (0.05, 4), (0.001, 9), (1, 0)])
def test_sbc(density, low_bits):
    gradients = arrays()
    once = reduce_once(f"sbc:density={density}", gradients)
    naive = [naive_sbc(gradient, density) for gradient in gradients]
    assert once.values[0] == pytest.approx(np.mean([decoded for decoded, _ in naive], axis=0), abs=1e-6)
    (call,) = once.recording.calls
    assert call.size_from_data
    assert call.bytes_by_rank == tuple(len(encode_positions(np.array(chosen), low_bits)) + 4 for _, chosen in naive)


def test_the_paper_s_low_bits():
    gradients = arrays(100_000, ranks=1)
    six, seven = (reduce_once(text, gradients) for text in ("sbc", "sbc:low_bits=7"))
    assert np.array_equal(six.values[0], seven.values[0])
    sizes = [8 * (once.recording.calls[0].bytes_by_rank[0] - 4) / 1000 for once in (six, seven)]
    assert sizes == pytest.approx([8.108, 8.382], rel=0.01)


def naive_ternary(vector, density):
    """Return what a tensor becomes, and where it is not zero."""
    k = elements_kept(len(vector), density)
    ordered = sorted(range(len(vector)), key=lambda place: (-abs(float(vector[place])), place))
    chosen = sorted(place for place in ordered[:k] if vector[place])
    decoded = np.zeros(len(vector))
    decoded[chosen] = np.sign(vector[chosen]) * np.abs(vector[chosen].astype(np.float64)).mean() if chosen else 0
    return decoded, chosen


@pytest.mark.parametrize(("density", "low_bits"), [(0.01, 6), (0.2, 2)])
def test_stc_gathered(density, low_bits):
    gradients = arrays()
    once = reduce_once(f"stc:density={density},aggregate=gather", gradients)
    naive = [naive_ternary(gradient, density) for gradient in gradients]
    assert once.values[0] == pytest.approx(np.mean([decoded for decoded, _ in naive], axis=0), abs=1e-6)
    (call,) = once.recording.calls
    assert call.bytes_by_rank == tuple(
        len(encode_positions(np.array(chosen), low_bits)) + -(-len(chosen) // 8) + 4 for _, chosen in naive
    )


def test_stc_compresses_both_ways():
    gradients = arrays()
    once = reduce_once("stc:density=0.05", gradients)
    total = sum(naive_ternary(gradient, 0.05)[0] for gradient in gradients)
    decoded, chosen = naive_ternary(total.astype(np.float32), 0.05)
    assert once.values[0] == pytest.approx(decoded / RANKS, abs=1e-6)
    down = once.recording.calls[1]
    assert down.bytes_by_rank[0] == len(encode_positions(np.array(chosen), 4)) + -(-len(chosen) // 8) + 4
    assert once.bytes_sent[0] == down.bytes_by_rank[0]


@pytest.mark.parametrize(
    ("text", "naive"), [("sbc:density=0.2", naive_sbc), ("stc:density=0.2,aggregate=gather", naive_ternary)]
)
@given(values=st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 1e-45, 3e38]), min_size=1, max_size=30))
def test_few_and_equal_values(text, naive, values):
    vector = np.array(values, np.float32)
    decoded, _ = naive(vector, 0.2)
    assert reduce_once(text, [vector]).values[0] == pytest.approx(decoded, rel=1e-6)


def test_strom_with_a_threshold_for_all():
    gradients = arrays()
    once = reduce_once("strom:threshold=1.5", gradients)
    expected = np.mean([1.5 * np.sign(each) * (np.abs(each) > 1.5) for each in gradients], axis=0)
    assert once.values[0] == pytest.approx(expected, abs=1e-6)
    (call,) = once.recording.calls
    assert call.bytes_by_rank == tuple(4 * int((np.abs(each) > 1.5).sum()) for each in gradients)
    assert call.size_from_data


def test_strom_with_a_share_of_the_elements():
    gradients = arrays()
    once = reduce_once("strom:density=0.01", gradients)
    taus = [np.sort(np.abs(each))[-20] for each in gradients]
    expected = np.mean(
        [tau * np.sign(each) * (np.abs(each) >= tau) for tau, each in zip(taus, gradients, strict=True)], axis=0
    )
    assert once.values[0] == pytest.approx(expected, abs=1e-6)
    assert once.recording.calls[0].bytes_by_rank == (4 * 20 + 4,) * RANKS


def test_strom_sends_the_rest_of_a_large_element_in_later_steps():
    gradients = [[np.array([5.0, -0.5, 0.0], np.float32)], *[[np.zeros(3, np.float32)]] * 3]
    steps = reduce_steps("strom:threshold=2,ef=true", gradients)
    assert [step.values[0].tolist() for step in steps] == [[2, 0, 0], [2, 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    "text",
    [
        "sbc:density=0",
        "sbc:density=2",
        "sbc:low_bits=-1",
        "sbc:low_bits=32",
        "strom:threshold=1e-60",
        "stc:density=0",
        "strom:threshold=0",
        "strom:threshold=0.1,density=0.1",
        "strom:density=2",
    ],
)
def test_options_out_of_range(text):
    with pytest.raises(OptionError, match=r"(sbc|stc|strom): "):
        make_reducer(text)


@pytest.mark.parametrize(
    ("text", "steps"), [("sbc", [2 * 20, 2 * 20 * RANKS]), ("strom", [0, 0]), ("qsgd", [0, 0]), ("qsgd:bits=8", [0, 0])]
)
def test_positions_are_coded_on_the_host(text, steps):
    script = reduce_once(text, arrays()).recording.scripts[0]
    assert [step.host_steps for step in script if isinstance(step, Work)] == steps


def test_elias_codes_are_coded_on_the_host_bit_by_bit():
    once = reduce_once("qsgd:coding=elias", arrays())
    sizes = once.recording.calls[0].bytes_by_rank
    encode, decode = (step for step in once.recording.scripts[0] if isinstance(step, Work))
    assert (encode.host_steps, decode.host_steps) == (2000 + 8 * sizes[0], 8 * sum(sizes))
