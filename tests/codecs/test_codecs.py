"""What every registered codec must do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from s2sim.codecs.base import merge
from s2sim.codecs.registry import CODECS, make_codec
from s2sim.codecs.sketch_codec import SketchWithBitmap
from s2sim.errors import CodecError, OptionError, UnknownNameError

NAMES = CODECS.names()


def sparse_vector(n=5000, density=0.1, seed=0):
    generator = np.random.default_rng(seed)
    return np.where(generator.random(n) < density, generator.standard_normal(n), 0).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_is_a_frozen_dataclass_that_says_what_it_is(name):
    codec = make_codec(name)
    assert codec.name == name
    assert "\n" not in codec.summary
    assert codec.source
    assert set(codec.combine.values()) <= {"sum", "or", "max", "gather"}
    assert dataclasses.is_dataclass(codec)
    assert codec == make_codec(name)
    assert codec.__dataclass_params__.frozen


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [0, 1, 8, 5000])
def test_decodes_to_a_vector_of_the_same_length(name, n):
    codec = make_codec(name)
    array = sparse_vector(n)
    kept = array.copy()
    payload = codec.encode(array)
    decoded = codec.decode(payload)
    assert decoded.dtype == np.float32
    assert decoded.shape == (n,)
    assert np.array_equal(array, kept)
    assert tuple(payload.arrays) == tuple(codec.combine)
    assert not decoded[array == 0].any()


@pytest.mark.parametrize("name", NAMES)
def test_is_deterministic(name):
    codec = make_codec(name)
    assert codec.encode(sparse_vector()).to_bytes() == codec.encode(sparse_vector()).to_bytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("array", [np.zeros(4), np.zeros((2, 2), np.float32), [0.0]])
def test_refuses_what_is_no_float32_vector(name, array):
    with pytest.raises(CodecError, match="float32 vector"):
        make_codec(name).encode(array)


@pytest.mark.parametrize("text", ["bitmap", "count-sketch:columns=3000", "fp16"])
def test_merged_payload_decodes_to_the_reduction(text):
    codec = make_codec(text)
    # Small integers: every sum is exact in float32 and float16.
    generator = np.random.default_rng(1)
    ranks = [(generator.integers(-4, 5, 3000) * (generator.random(3000) < 0.05)).astype(np.float32) for _ in range(4)]
    merged = merge(codec, [codec.encode(rank) for rank in ranks])
    total = np.sum(ranks, axis=0, dtype=np.float32)
    union = np.any([rank != 0 for rank in ranks], axis=0)
    if codec.name == "bitmap":
        assert np.array_equal(codec.decode(merged), union)
    elif codec.name == "fp16":
        assert np.array_equal(codec.decode(merged), total)
    else:
        assert np.array_equal(merged.arrays["cells"], codec.encode(total).arrays["cells"])
        # Three rows of five columns a key: about one key in twenty has no two clean rows.
        assert (codec.decode(merged) == total).mean() > 0.98


def test_merge_refuses_gathered_and_differently_sized_payloads():
    top_k = make_codec("top-k")
    with pytest.raises(CodecError, match="gathered"):
        merge(top_k, [top_k.encode(sparse_vector())] * 2)
    sketch = make_codec("count-sketch")
    with pytest.raises(CodecError, match="agree on sizes"):
        merge(sketch, [sketch.encode(sparse_vector()), sketch.encode(sparse_vector(density=0.2))])
    with pytest.raises(CodecError, match="one a rank"):
        merge(sketch, [])


def test_lossless_where_promised():
    array = sparse_vector()
    assert np.array_equal(make_codec("top-k:density=1.0").decode(make_codec("top-k:density=1.0").encode(array)), array)
    bits = make_codec("bitmap").decode(make_codec("bitmap").encode(array))
    assert np.array_equal(bits, (array != 0).astype(np.float32))


def test_top_k_keeps_the_largest():
    codec = make_codec("top-k:density=0.01")
    array = sparse_vector()
    decoded = codec.decode(codec.encode(array))
    assert np.count_nonzero(decoded) == 50
    assert np.abs(decoded[decoded != 0]).min() >= np.abs(array[decoded == 0]).max()


def test_cells_are_per_non_zero_over_all_rows():
    array = sparse_vector()
    cells = SketchWithBitmap(rows=3, cells=2.0).encode(array).arrays["cells"]
    assert cells.shape == (3, -(-2 * np.count_nonzero(array) // 3))
    assert SketchWithBitmap(rows=3, columns=77).encode(array).arrays["cells"].shape == (3, 77)


@pytest.mark.parametrize(
    "text",
    [
        "top-k:density=0",
        "top-k:density=1.5",
        "count-sketch:rows=0",
        "count-sketch:cells=nan",
        "count-sketch:cells=-1",
        "count-sketch:columns=0",
        "count-sketch:columns=10,cells=3",
        "count-sketch:hash=crc",
        "count-sketch:row=3",
        "bitmap:x=1",
    ],
)
def test_bad_options_are_refused(text):
    with pytest.raises(OptionError):
        make_codec(text)


def test_unknown_codec_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'top-k'"):
        make_codec("topk")
