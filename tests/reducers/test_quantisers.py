"""Systems that round at random: oracles and bytes; that they are unbiased, the kit of reducers checks."""

import numpy as np
import pytest

from s2sim.codecs.floats import to_powers
from s2sim.codecs.integer_codes import encode_signed
from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.shared.gathered import flat_vector
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
        ("qsgd:bits=1", r"bits=1 is not in \[2, 16\]"),
        ("qsgd:bits=17", r"bits=17 is not in \[2, 16\]"),
        ("qsgd:bucket=0", "bucket=0 must be at least 1"),
        ("terngrad:clip=-1", r"clip=-1.0 is not in \[0, inf\)"),
        ("terngrad:shared=true,wire=byte", "wire=byte changes nothing with shared=true"),
        ("dorefa:bits=0", r"bits=0 is not in \[1, 16\]"),
        ("wangni:density=0", "density=0.0 is not above 0"),
        ("natural:exponent=half", "exponent=half is not one of full, clipped"),
    ],
)
def test_options_out_of_range(text, complaint):
    with pytest.raises(OptionError, match=complaint):
        make_reducer(text)


@pytest.mark.parametrize("rounding", ["stochastic", "nearest"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_int8_is_a_sum_of_whole_multiples_of_a_shared_step(rounding, dtype):
    gradients = arrays()
    once = reduce_once(f"int8:rounding={rounding},dtype={dtype}", gradients, seed=3)
    levels = {"int8": 127, "int16": 32767}[dtype] // RANKS
    scale = np.float32(max(np.abs(each).max() for each in gradients))
    total = np.zeros(600)
    for rank, gradient in enumerate(gradients):
        draws = named_generator(3, "shared scale", 0, rank).random(600, dtype=np.float32)
        shift = draws if rounding == "stochastic" else 0.5
        total += np.clip(np.floor(gradient / scale * np.float32(levels) + shift), -levels, levels)
    assert once.values[0] == pytest.approx(total * (scale / levels / RANKS), abs=1e-6)
    # The scale, and then one integer an element; each rank sends nearly all of both twice.
    scales, sums = once.recording.calls
    assert scales.bytes_by_rank == (4,) * RANKS
    assert (sums.dtype, sums.bytes_by_rank) == (dtype, (600 * np.dtype(dtype).itemsize,) * RANKS)


def test_int8_of_many_ranks_has_few_levels_and_then_none():
    rng = np.random.default_rng(0)
    gradients = [rng.standard_normal(5).astype(np.float32) for _ in range(128)]
    scale = np.max(np.abs(gradients[:127]))
    found = reduce_once("int8", gradients[:127]).values[0].astype(np.float64) / scale * 127
    assert found == pytest.approx(np.rint(found), abs=1e-3)
    with pytest.raises(S2SimError, match="int8: a sum over 128 ranks has no room in int8"):
        reduce_once("int8", gradients)
    reduce_once("int8:dtype=int16", gradients)


@pytest.mark.parametrize(("ranks", "dtype"), [(127, "int8"), (128, "int16")])
def test_terngrad_with_a_shared_scale_sums_whole_numbers(ranks, dtype):
    gradients = arrays(50, ranks)
    once = reduce_once("terngrad:shared=true", gradients)
    step = np.max(np.abs(gradients)) / ranks
    assert once.values[0] / step == pytest.approx(np.rint(once.values[0] / step), abs=1e-3)
    assert [call.dtype for call in once.recording.calls] == ["float32", dtype]


@pytest.mark.parametrize("bits", [1, 6, 12])
def test_dorefa_is_its_formula(bits):
    (gradient,) = arrays(999, ranks=1)
    once = reduce_once(f"dorefa:bits={bits}", [gradient], seed=5)
    most, last = float(np.abs(gradient).max()), 2**bits - 1
    draws = named_generator(5, "dorefa", 0, 0, "own").random(999, dtype=np.float32)
    # The paper's noise is within half a step, before rounding.
    unit = gradient / (2 * most) + 0.5 + (draws - 0.5) / last
    exact = 2 * most * (np.clip(np.round(unit * last), 0, last) / last - 0.5)
    # Where float32 and float64 round to different sides, one step lies between.
    off = np.abs(once.values[0] - exact)
    assert (off > 1e-5).mean() < 0.01
    assert off.max() < 2.01 * most / last
    assert once.recording.calls[0].bytes_by_rank == (-(-999 * bits // 8) + 4,)


def naive_probabilities(vector, density, rounds):
    """J. Wangni et al., algorithm 3, as recalled: probabilities, and what is cut at 1 given to the others."""
    magnitudes = np.abs(vector.astype(np.float64))
    kept = density * len(vector)
    p = np.minimum(kept * magnitudes / magnitudes.sum(), 1)
    for _ in range(rounds):
        free = p < 1
        factor = (kept - (~free).sum()) / p[free].sum()
        if factor <= 1:
            break
        p[free] = np.minimum(factor * p[free], 1)
    return p


@pytest.mark.parametrize(("density", "rounds"), [(0.02, 2), (0.2, 0), (0.5, 2), (0.9, 5)])
def test_wangni(density, rounds):
    rng = np.random.default_rng(6)
    vector = (rng.standard_normal(2000) ** 3).astype(np.float32)
    p = naive_probabilities(vector, density, rounds)
    once = reduce_once(f"wangni:density={density},rounds={rounds}", [vector])
    found = once.values[0].astype(np.float64)
    kept = found != 0
    certain = p >= 1
    assert np.array_equal(found[certain], vector[certain])
    assert found[kept] == pytest.approx(vector[kept] / p[kept], rel=1e-4)
    spread = np.sqrt((p * (1 - p)).sum())
    assert kept.sum() == pytest.approx(p.sum(), abs=5 * spread + 1e-9)
    assert p.sum() <= density * 2000 * (1 + 1e-9)
    # Eleven bits of index: with a value of 32 where certain, else with a sign; and 1 / lambda.
    drawn = kept.sum() - certain.sum()
    expected = -(-certain.sum() * 11 // 8) + 4 * certain.sum() + -(-drawn * 12 // 8) + 4
    assert once.recording.calls[0].bytes_by_rank == (expected,)


def test_wangni_is_unbiased_and_its_variance_is_that_of_its_probabilities():
    rng = np.random.default_rng(6)
    vector = rng.standard_normal(30).astype(np.float32)
    p = naive_probabilities(vector, 0.3, 2)
    drawn = np.stack([reduce_once("wangni:density=0.3", [vector], seed=seed).values[0] for seed in range(300)])
    exact = vector.astype(np.float64)
    spread = np.sqrt(np.where(p < 1, exact**2 * (1 / p - 1), 0))
    assert (np.abs(drawn.mean(axis=0, dtype=np.float64) - exact) <= 5 * spread / np.sqrt(300) + 1e-6).all()
    moment = np.square(drawn, dtype=np.float64).sum(axis=1).mean()
    assert moment == pytest.approx((exact**2 / p).sum(), rel=0.1)


@pytest.mark.parametrize("text", ["wangni", "wangni:density=1", "dorefa", "int8", "terngrad"])
def test_values_of_every_size(text):
    for values in ([0.0] * 9, [1e-45], [3e38] * 9, [-1.0], [5.0, 0.0]):
        assert np.isfinite(reduce_once(text, [np.array(values, np.float32)]).values[0]).all()


def test_wangni_sends_values_in_the_type_that_they_are_held_in():
    gradient = Gradient(("a",), (np.array([1.001, *[1e-3] * 99], np.float32),))
    found = {}
    for dtype in ("fp32", "bf16"):
        (result,), recording = run_group([make_reducer("wangni").with_dtype(dtype)], [gradient])
        found[dtype] = result.mean.layers[0][0], recording.calls[0].bytes_by_rank[0]
    # One element is certain; all others have the same magnitude.
    assert found["fp32"][0] == np.float32(1.001)
    assert found["bf16"] == (1, found["fp32"][1] - 2)


@pytest.mark.parametrize("text", ["qsgd", "qsgd:bits=8,bucket=50,coding=elias", "terngrad", "dorefa:bits=3"])
def test_no_element_is_further_off_than_the_bound(text):
    gradients = [Gradient(("a", "none", "b"), (each[:500], each[:0], each[500:] * 7)) for each in arrays()]
    instances = make_instances(make_reducer(text), RANKS)
    assert instances[0].error_bound() is None
    results, _ = run_group(instances, gradients)
    bound = instances[0].error_bound()
    assert (bound.relative, bound.share, len(bound.element)) == (False, 1, 2)
    for layer, limit in zip((0, 2), bound.element, strict=True):
        exact = np.mean([gradient.layers[layer] for gradient in gradients], axis=0, dtype=np.float64)
        worst = np.abs(results[0].mean.layers[layer] - exact).max()
        assert limit / 20 < worst <= limit * (1 + 1e-5)


def test_no_bound_is_claimed_where_none_holds():
    for text in ("qsgd:aggregate=two-phase", "terngrad:clip=2", "natural"):
        instances = make_instances(make_reducer(text), RANKS)
        run_group(instances, [Gradient(("a",), (each,)) for each in arrays()])
        assert instances[0].error_bound() is None
