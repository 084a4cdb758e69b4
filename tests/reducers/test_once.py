"""reduce_once: its values, its bytes, and what it refuses."""

import dataclasses
import sys
from itertools import product

import numpy as np
import pytest

from s2sim.errors import S2SimError
from s2sim.reducers.run import reduce_once
from s2sim.reducers.systems.s2 import S2
from s2sim.reducers.systems.topk import TopK
from s2sim.reducers.wrappers.error_feedback import ErrorFeedback

EVERY = ["dense", "fp16", "topk", "topk:ef=true", "union", "s2", "s2:rows=1,columns=10", "s2:preset=authors-gnmt"]


@pytest.mark.parametrize("text", EVERY)
def test_any_shape_works(text):
    for shape, ranks in product([(0,), (0, 4), (4, 0), (1,), (5, 3)], [1, 3]):
        once = reduce_once(text, [np.ones(shape, np.float32)] * ranks)
        assert [array.shape for array in once.values] == [shape] * ranks
        assert all(array.dtype == np.float32 for array in once.values)
        assert len(once.bytes_sent) == len(once.bytes_received) == ranks
        assert all(type(count) is int for count in once.bytes_sent + once.bytes_received)
        if ranks == 1:
            assert once.bytes_sent == once.bytes_received == [0]


def test_nothing_to_send_takes_no_bytes():
    assert reduce_once("dense", [np.zeros(0, np.float32)] * 3).bytes_sent == [0, 0, 0]


def test_one_dimension_has_element_keys_and_two_have_row_keys():
    array = np.zeros((8, 4), np.float32)
    array[2, 1] = 1
    rows = reduce_once("union", [array, array]).recording.calls
    elements = reduce_once("union", [array.reshape(-1)] * 2).recording.calls
    assert [call.elements[0] for call in rows] == [1, 4]
    assert [call.elements[0] for call in elements] == [4, 1]


def test_the_seed_changes_the_sketch_and_nothing_else():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(300).astype(np.float32) for _ in range(2)]
    first, again, other = (reduce_once("s2:rows=1,columns=100", arrays, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.values[0], again.values[0])
    assert not np.array_equal(first.values[0], other.values[0])
    assert first.bytes_sent == other.bytes_sent


def test_an_object_serves_as_well_and_keeps_its_state():
    reducer = ErrorFeedback(TopK(0.5))
    arrays = [np.array([1, 2, 3, 4], np.float32)]
    assert np.array_equal(reduce_once(reducer, arrays).values[0], reduce_once("topk:density=0.5", arrays).values[0])
    assert reducer.residual is None
    sketch = S2(rows=1)
    reduce_once(sketch, arrays)
    assert sketch.known is None


def test_strided_and_read_only_input_is_left_alone():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    base.setflags(write=False)
    once = reduce_once("union", [base[:, ::2], base[:, 1::2]])
    assert np.array_equal(once.values[1], (base[:, ::2] + base[:, 1::2]) / 2)


def test_the_result_is_frozen():
    once = reduce_once("dense", [np.ones(2, np.float32)])
    with pytest.raises(dataclasses.FrozenInstanceError):
        once.values = []


GOOD = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("gradients", "complaint"),
    [
        ([], "no gradient"),
        ([GOOD, np.ones(3)], r"rank 1 is float64: convert with \.astype\(np\.float32\)"),
        ([np.ones(3, np.int32)], "int32"),
        ([[1.0, 2.0]], "is a list"),
        ([np.ones((1, 1, 1), np.float32)], "one or two dimensions"),
        ([np.array(1, np.float32)], "one or two dimensions"),
        ([GOOD, np.ones(4, np.float32)], r"shape \(4,\), that of rank 0 \(3,\)"),
        ([GOOD, np.array([1, np.nan, 0], np.float32)], "rank 1 holds NaN"),
        ([np.array([np.inf], np.float32)], "rank 0 holds NaN or infinity"),
    ],
)
def test_bad_input_is_refused_in_one_line(gradients, complaint):
    with pytest.raises(S2SimError, match=complaint) as caught:
        reduce_once("dense", gradients)
    assert "\n" not in str(caught.value)


def test_a_negative_seed_is_refused():
    with pytest.raises(S2SimError, match="seed -1"):
        reduce_once("s2", [GOOD], seed=-1)


@pytest.mark.parametrize(
    ("reducer", "gradients", "options", "message"),
    [
        ("dense", None, {}, "give a list"),
        ("dense", (array for array in [np.zeros(2, np.float32)]), {}, "give a list"),
        ("dense", np.zeros((2, 2), np.float32), {}, "give a list"),
        ("dense", [np.zeros(2, np.float32).view(np.ma.MaskedArray)], {}, "is a MaskedArray"),
        ("dense", [np.zeros((2, 2), np.float32).view(np.matrix)], {}, "is a matrix"),
        ("dense", [np.zeros(2, ">f4" if sys.byteorder == "little" else "<f4")], {}, r"another byte order.*\.astype"),
        (3, [np.zeros(2, np.float32)], {}, "3 is no reducer"),
        (TopK, [np.zeros(2, np.float32)], {}, "TopK.* is no reducer"),
        ("dense", [np.zeros(2, np.float32)], {"seed": None}, "whole number"),
        ("dense", [np.zeros(2, np.float32)], {"seed": 1.5}, "whole number"),
        ("dense", [np.zeros(2, np.float32)], {"seed": True}, "whole number"),
    ],
)
def test_mistakes_of_a_caller_are_told(reducer, gradients, options, message):
    with pytest.raises(S2SimError, match=message):
        reduce_once(reducer, gradients, **options)


@pytest.mark.parametrize(
    "text", ["topk:density=1", "s2:preset=authors-gnmt", "s2:error=0.1", "union", "s2-exact", "gather-rows"]
)
def test_a_sum_that_overflows_is_refused_whatever_the_reducer(text):
    huge = np.array([3e38, -3e38, 0], np.float32)
    with pytest.raises(S2SimError, match="overflows float32: scale the gradients down"):
        reduce_once(text, [huge, huge])


@pytest.mark.parametrize(
    "text", ["s2", "s2:rows=4,cells=1", "s2:ef=true", "s2:preset=authors-gnmt", "s2-exact:dtype=float32"]
)
@pytest.mark.parametrize("signs", [(1,), (1, -1)])
def test_cells_that_overflow_on_a_rank_are_refused_without_a_warning_or_a_word_of_ranks(text, signs):
    """Values collide: with one rank too, and although the sums over ranks are zero."""
    huge = np.full(40, 3.4e38, np.float32)
    with pytest.raises(S2SimError, match=r"^a sum overflows float32: scale the gradients down$"):
        reduce_once(text, [sign * huge for sign in signs])


def test_a_size_for_an_error_is_found_for_huge_values_too():
    values = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    once, huge = (reduce_once("s2:error=0.3", [values * scale] * 2) for scale in np.float32([1, 2.0**120]))
    assert once.bytes_sent == huge.bytes_sent != [0, 0]
    assert once.notes == huge.notes
