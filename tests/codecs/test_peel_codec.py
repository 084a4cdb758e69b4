import dataclasses

import numpy as np
import pytest

from s2sim.codecs.exact_sketch import PeeledSketchCodec
from s2sim.codecs.payload import FRAME_BYTES, Payload
from s2sim.errors import CodecError, OptionError
from s2sim.testing.codecs import check_codec, combined, example_vector

TYPES = ["int32", "int64", "float32"]


@pytest.mark.parametrize(
    "codec",
    [
        *(PeeledSketchCodec(dtype=dtype) for dtype in TYPES),
        PeeledSketchCodec(keys=6000, bound=50.0),
        PeeledSketchCodec(cells=1.5, seed=9),
    ],
)
def test_conforms(codec):
    check_codec(codec)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [2, 100, 3000, 200_000])
def test_a_vector_comes_back(dtype, n):
    for seed in range(20 if n < 5000 else 1):
        array = example_vector(n, density=0.4, seed=seed)
        codec = PeeledSketchCodec(max(600, n // 2), dtype=dtype, seed=seed)
        decoded = codec.decode(codec.encode(array))
        assert np.linalg.norm(decoded - array) <= 1e-6 * np.linalg.norm(array)
        assert np.array_equal(decoded != 0, array != 0)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_merged_payloads_decode_to_the_sum_in_any_order(dtype):
    ranks = [example_vector(20_000, seed=rank) for rank in range(8)]
    exact = np.sum(ranks, axis=0, dtype=np.float64)
    codec = PeeledSketchCodec(keys=int(np.count_nonzero(exact)), bound=40.0, dtype=dtype)
    payloads = [codec.encode(rank) for rank in ranks]
    decoded = codec.decode(combined(codec, payloads))
    assert np.linalg.norm(decoded - exact) <= 1e-6 * np.linalg.norm(exact)
    assert np.array_equal(codec.decode(combined(codec, payloads[::-1])), decoded)


def test_too_small_a_table_is_noticed():
    codec = PeeledSketchCodec(keys=500, bound=10.0)
    with pytest.raises(CodecError, match="cannot be read"):
        codec.decode(codec.encode(example_vector(10_000, density=0.3)))


def test_cells_without_their_bitmap_are_noticed():
    codec = PeeledSketchCodec()
    payload = codec.encode(example_vector(1000))
    support = payload.arrays["support"].copy()
    support[np.flatnonzero(support)[0]] = 0
    with pytest.raises(CodecError, match="belong together"):
        codec.decode(dataclasses.replace(payload, arrays={**payload.arrays, "support": support}))


def test_altered_and_truncated_payloads_are_refused():
    generator = np.random.default_rng(0)
    codec = PeeledSketchCodec()
    data = codec.encode(example_vector(300)).to_bytes()
    for _ in range(2000):
        altered = bytearray(data)
        if generator.random() < 0.3:
            altered = altered[: generator.integers(len(data))]
        else:
            for place in generator.integers(0, len(data), generator.integers(1, 10)):
                altered[place] ^= generator.integers(1, 256)
        if bytes(altered) != data:
            with pytest.raises(CodecError):
                codec.decode(Payload.from_bytes(altered, codec))


def test_forged_arrays_raise_nothing_else():
    """What a fitting checksum would let through: decoded to a vector, or refused with the one error callers expect."""
    generator = np.random.default_rng(1)
    codec = PeeledSketchCodec()
    payload = codec.encode(example_vector(300))
    refused = 0
    for _ in range(2000):
        arrays = {name: array.copy() for name, array in payload.arrays.items()}
        name = generator.choice(list(arrays))
        change = generator.integers(4)
        if change == 0:
            arrays[name] = arrays[name].reshape(-1)[: generator.integers(arrays[name].size + 1)]
        elif change == 1:
            arrays[name] = arrays[name].astype(generator.choice(["u1", "i2", "i4", "f4", "f8"]))
        elif change == 2:
            arrays[name] = arrays[name].repeat(generator.integers(0, 4), axis=generator.integers(arrays[name].ndim))
        else:
            flat = arrays[name].reshape(-1).view(np.uint8)
            flat[generator.integers(flat.size)] ^= np.uint8(generator.integers(1, 256))
        try:
            decoded = codec.decode(dataclasses.replace(payload, arrays=arrays))
        except CodecError:
            refused += 1
        else:
            assert decoded.shape == (300,)
            assert decoded.dtype == np.float32
    assert refused > 1000


def test_size_is_cells_and_bitmap():
    payload = PeeledSketchCodec(10_000).encode(np.where(np.arange(100_000) % 10 == 0, 1, 0).astype(np.float32))
    expected = 4 * 13_002 + 12_500
    assert payload.body_bytes == expected == len(payload.to_bytes()) - FRAME_BYTES


def test_bad_options_and_values_are_refused():
    for options in (
        {"cells": 1.2},
        {"cells": float("nan")},
        {"keys": -1},
        {"bound": 0.0},
        {"bound": float("inf")},
        {"bound": 1.0, "dtype": "float32"},
        {"dtype": "int8"},
        {"seed": -1},
    ):
        with pytest.raises(OptionError):
            PeeledSketchCodec(**options)
    with pytest.raises(CodecError, match="bound=1"):
        PeeledSketchCodec(bound=1.0).encode(np.array([2.0], np.float32))
    with pytest.raises(CodecError, match="infinite"):
        PeeledSketchCodec().encode(np.array([np.inf], np.float32))
    assert np.isinf(PeeledSketchCodec(dtype="float32").encode(np.array([np.inf], np.float32)).arrays["cells"]).any()
