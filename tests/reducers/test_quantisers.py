"""QSGD, TernGrad and natural compression: oracles, unbiasedness, bytes."""

import numpy as np
import pytest

from s2sim.codecs.elias import encode_signed
from s2sim.codecs.powers_of_two import to_powers
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.elements.flat import flat_vector
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.once import reduce_once
from s2sim.reducers.registry import make_reducer
from s2sim.seeds import named_generator

RANKS = 4


def arrays(count=600, ranks=RANKS):
    rng = np.random.default_rng(2)
    return [rng.standard_normal(count).astype(np.float32) for _ in range(ranks)]


def naive_qsgd(vector, levels, bucket, draws):
    """Return Q(x_i) = ||x|| sgn(x_i) l / s, bucket by bucket; ``draws`` decide between l and l + 1."""
    decoded = np.zeros(len(vector))
    for start in range(0, len(vector), bucket):
        part = vector[start : start + bucket].astype(np.float64)
        norm = float(np.float32(np.sqrt((part**2).sum())))
        for offset, value in enumerate(part):
            up = np.floor(levels * value / norm + draws[start + offset])
            decoded[start + offset] = norm * min(up, levels) / levels
    return decoded


@pytest.mark.parametrize(("bits", "bucket"), [(2, 600), (4, 512), (8, 128), (12, 50)])
def test_qsgd_is_its_formula(bits, bucket):
    gradients = arrays()
    once = reduce_once(f"qsgd:bits={bits},bucket={bucket}", gradients, seed=9)
    expected = np.zeros(600)
    for rank, gradient in enumerate(gradients):
        draws = named_generator(9, "qsgd", 0, rank, "own").random(600, dtype=np.float32)
        expected += naive_qsgd(gradient, 2 ** (bits - 1) - 1, bucket, draws) / RANKS
    assert once.values[0] == pytest.approx(expected, abs=1e-5)
    payload = -(-600 * bits // 8) + 4 * -(-600 // bucket)
    assert once.bytes_sent == [payload * (RANKS - 1)] * RANKS


def test_elias_codes_change_bytes_and_nothing_else():
    gradients = arrays()
    fixed, coded = (reduce_once(f"qsgd:bits=2,coding={coding}", gradients) for coding in ("fixed", "elias"))
    assert np.array_equal(fixed.values[0], coded.values[0])
    assert max(coded.bytes_sent) < max(fixed.bytes_sent)
    assert coded.recording.calls[0].size_from_data
    assert not fixed.recording.calls[0].size_from_data
    # One level and one rank: what is sent is the norms, and the codes of the signs that were drawn.
    alone = reduce_once("qsgd:bits=2,coding=elias", gradients[:1])
    stream = encode_signed(np.sign(alone.values[0]).astype(np.int32))
    assert alone.recording.calls[0].bytes_by_rank == (8 + len(stream),)


@pytest.mark.parametrize("text", ["qsgd:bits=3", "terngrad", "natural", "qsgd:bits=3,aggregate=two-phase"])
def test_unbiased_over_seeds(text):
    gradients = arrays(40)
    exact = np.mean(gradients, axis=0, dtype=np.float64)
    drawn = np.stack([reduce_once(text, gradients, seed=seed).values[0] for seed in range(400)]).astype(np.float64)
    spread = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - exact) <= 5 * spread + 1e-7).all()
    assert spread.max() > 0


def test_terngrad_has_three_values_and_two_bits_an_element():
    (gradient,) = arrays(1001, ranks=1)
    scale = np.abs(gradient).max()
    for wire, size in (("packed", 251), ("byte", 1001)):
        once = reduce_once(f"terngrad:wire={wire}", [gradient])
        assert set(once.values[0].tolist()) == {-scale, 0, scale}
        assert (once.values[0] * gradient >= 0).all()
        assert once.recording.calls[0].bytes_by_rank == (4 + size,)
    draws = named_generator(0, "terngrad", 0, 0, "own").random(1001, dtype=np.float32)
    assert np.array_equal(once.values[0] / scale, np.floor(gradient / scale + draws))


def test_terngrad_clips_at_standard_deviations():
    (gradient,) = arrays(1000, ranks=1)
    once = reduce_once("terngrad:clip=2.5", [gradient])
    assert np.abs(once.values[0]).max() == pytest.approx(2.5 * gradient.std(), rel=1e-6)


def test_natural_sends_nine_bits_and_eight_if_clipped():
    gradients = arrays(1000)
    gradients[0][:4] = 1e-40, 2.0**30, -(2.0**30), 0
    full, clipped = (reduce_once(f"natural:exponent={kind}", gradients) for kind in ("full", "clipped"))
    assert full.bytes_sent == [1125 * (RANKS - 1)] * RANKS
    assert clipped.bytes_sent == [1000 * (RANKS - 1)] * RANKS
    assert np.array_equal(full.values[0][4:], clipped.values[0][4:])
    alone = reduce_once("natural:exponent=clipped", gradients[:1]).values[0]
    assert alone[:4].tolist() == [0, 2.0**18, -(2.0**18), 0]
    codes = to_powers(gradients[0], named_generator(0, "natural", 0, 0, "own"))
    powers = np.ldexp(1.0, (codes & 255).astype(int) - 127) * np.where(codes >> 8, -1, 1) * ((codes & 255) > 0)
    assert np.array_equal(reduce_once("natural", gradients[:1]).values[0], powers)


@pytest.mark.parametrize("aggregate", ["gather", "two-phase", "server"])
def test_what_all_have_sent_is_the_mean_times_ranks(aggregate):
    gradients = [Gradient(("a", "b"), (array, array[:7] * 3)) for array in arrays(50, ranks=3)]
    results, _ = run_group(make_instances(make_reducer(f"qsgd:aggregate={aggregate}"), 3), gradients)
    sent = np.sum([flat_vector(result.sent()) for result in results], axis=0, dtype=np.float64)
    assert sent == pytest.approx(3 * flat_vector(results[0].mean).astype(np.float64), abs=1e-5)


def test_a_server_gets_and_sends_one_message_a_rank():
    once = reduce_once("qsgd:bits=8,aggregate=server", arrays(512))
    kinds = [(call.kind, call.op) for call in once.recording.calls]
    assert kinds == [("all_to_all", "peers"), ("broadcast", "copy")]
    # Rank 0 serves; a broadcast along the ring ends with the last rank.
    assert once.bytes_sent == [516, 2 * 516, 2 * 516, 516]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("qsgd:bits=1", "bits=1 is not from 2"),
        ("qsgd:bits=17", "bits=17 is not from 2"),
        ("qsgd:bucket=0", "bucket=0 must be at least 1"),
        ("terngrad:clip=-1", "clip=-1.0 is no number"),
        ("natural:exponent=half", "exponent=half is not one of full, clipped"),
    ],
)
def test_options_out_of_range(text, complaint):
    with pytest.raises(OptionError, match=complaint):
        make_reducer(text)
