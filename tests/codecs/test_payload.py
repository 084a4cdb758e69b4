import struct
import zlib

import numpy as np
import pytest

from s2sim.codecs import payload as wire
from s2sim.codecs.bitmap import Bitmap
from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.payload import CODECS, FRAME_BYTES, Payload, make_codec
from s2sim.codecs.top_k import TopKCodec
from s2sim.errors import CodecError

CODEC = CountSketch(rows=2, seed=7)


def vector(n=100):
    generator = np.random.default_rng(0)
    return np.where(generator.random(n) < 0.2, generator.standard_normal(n), 0).astype(np.float32)


def encoded():
    return CODEC.encode(vector()).to_bytes()


def resealed(data):
    """Return ``data`` with a checksum that fits, as a forger would."""
    frame, body = data[: FRAME_BYTES - 4], data[FRAME_BYTES:]
    return frame + struct.pack("<I", zlib.crc32(frame + body)) + body


def same(left, right):
    return (
        left.codec == right.codec
        and left.elements == right.elements
        and list(left.arrays) == list(right.arrays)
        and all(
            a.dtype == b.dtype and np.array_equal(a, b)
            for a, b in zip(left.arrays.values(), right.arrays.values(), strict=True)
        )
    )


@pytest.mark.parametrize("name", CODECS.names())
@pytest.mark.parametrize("n", [0, 1, 100])
def test_round_trip_and_length(name, n):
    codec = make_codec(name)
    payload = codec.encode(vector(n))
    data = payload.to_bytes()
    assert len(data) - FRAME_BYTES == payload.body_bytes == sum(a.nbytes for a in payload.arrays.values())
    for container in (bytes, bytearray, memoryview):
        assert same(Payload.from_bytes(container(data), codec), payload)
    assert Payload.from_bytes(data, codec).to_bytes() == data


def test_every_type_and_shape_survives():
    arrays = {
        "scalar": np.array(3, np.int64),
        "empty": np.empty((0, 5), np.float16),
        "cube": np.arange(24, dtype=">u2").reshape(2, 3, 4),
        "strided": np.arange(10, dtype=np.uint32)[::2],
    }
    payload = Payload.of(CODEC, 5, **arrays)
    read = Payload.from_bytes(payload.to_bytes(), CODEC)
    for name, array in arrays.items():
        assert read.arrays[name].shape == array.shape
        assert np.array_equal(read.arrays[name], array)
        assert read.arrays[name].flags.writeable


def test_every_truncation_and_extension_is_refused():
    data = encoded()
    for length in range(len(data)):
        with pytest.raises(CodecError):
            Payload.from_bytes(data[:length], CODEC)
    for tail in (b"\0", b"x" * 50, data):
        with pytest.raises(CodecError, match="follows"):
            Payload.from_bytes(data + tail, CODEC)


def test_every_altered_byte_is_refused():
    data = encoded()
    for position in range(len(data)):
        altered = bytearray(data)
        altered[position] ^= 1 << position % 8
        with pytest.raises(CodecError):
            Payload.from_bytes(altered, CODEC)


def test_random_damage_is_refused():
    generator = np.random.default_rng(1)
    data = encoded()
    for _ in range(1000):
        altered = bytearray(data)
        for position in generator.integers(0, len(data), generator.integers(1, 10)):
            altered[position] = generator.integers(256)
        if bytes(altered) != data:
            with pytest.raises(CodecError):
                Payload.from_bytes(altered, CODEC)


def test_forged_frames_raise_nothing_else():
    """Random frames with a fitting checksum: decoded, or refused with the one error that callers expect."""
    generator = np.random.default_rng(2)
    data = encoded()
    refused = 0
    for _ in range(1000):
        altered = bytearray(data)
        for position in generator.integers(8, FRAME_BYTES, generator.integers(1, 4)):
            altered[position] = generator.choice([0, 1, 2, 3, 127, 128, 255, altered[position] ^ 1])
        try:
            CODEC.decode(Payload.from_bytes(resealed(bytes(altered)), CODEC))
        except CodecError:
            refused += 1
    assert refused > 900


def test_forged_sizes_are_refused():
    head, array = wire._HEAD.size, wire._ARRAY
    for shape in [(2**63, 0), (2**64 - 1, 0), (2**32, 2**32), (1, 2**63), (0, 0)]:
        data = bytearray(encoded())
        data[head : head + array.size] = array.pack(b"cells", b"<f4", 2, *shape, 0)
        with pytest.raises(CodecError):
            Payload.from_bytes(resealed(bytes(data)), CODEC)


@pytest.mark.parametrize("codec", [CountSketch(rows=2), CountSketch(rows=3, seed=7), Bitmap(), TopKCodec()])
def test_another_codec_or_other_options_are_refused(codec):
    with pytest.raises(CodecError, match=r"count-sketch:rows=2,seed=7"):
        Payload.from_bytes(encoded(), codec)
    with pytest.raises(CodecError, match="made by"):
        codec.decode(CODEC.encode(vector()))


def test_another_version_is_refused():
    data = bytearray(encoded())
    data[8] = wire.VERSION - 1
    with pytest.raises(CodecError, match="has version 1; this s2sim reads version 2"):
        Payload.from_bytes(resealed(bytes(data)), CODEC)


@pytest.mark.parametrize("thing", [b"", b"\x80\x04pickle", "text", None, 7, np.zeros(1000, np.uint8), [1, 2]])
def test_anything_else_is_refused(thing):
    with pytest.raises(CodecError):
        Payload.from_bytes(thing, CODEC)


def test_what_does_not_fit_in_a_frame_is_refused():
    for arrays in [
        {f"a{i}": np.zeros(1) for i in range(5)},
        {"a name that is too long": np.zeros(1)},
        {"a": np.zeros((1, 1, 1, 1))},
        {"a": np.array(["text"])},
        {"a": np.array([object()])},
    ]:
        with pytest.raises(CodecError):
            Payload.of(CODEC, 1, **arrays).to_bytes()
