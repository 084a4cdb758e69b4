"""The wire: a payload is a few named arrays, and its bytes are a frame of fixed size followed by the arrays' bytes.

The frame holds everything that is not data (magic, version, codec and options, names, types and shapes, checksum), so
that ``len(payload.to_bytes()) - FRAME_BYTES`` is exactly what a network would carry. Reading builds arrays from a
closed list of number types and nothing else: nothing in the bytes is ever executed.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from s2sim.arrays import Array, Floats32
from s2sim.errors import CodecError
from s2sim.files import own_tables
from s2sim.options import Described, build, option_text, split_option_string
from s2sim.registry import Catalogue, Registry

Combine: TypeAlias = Literal["sum", "or", "max", "gather"]
"""How the same array of several ranks' payloads becomes one: all-reduced by an operation, or gathered side by side."""

Combination: TypeAlias = dict[str, Combine]
"""How each array of a codec's payload combines."""


class Codec(Protocol):
    """A frozen dataclass of options that encodes vectors, with the name it is registered under.

    Attributes
    ----------
    summary, source : str
        What it does, in one line, and where it was published.
    combine : dict of str to {"sum", "or", "max", "gather"}
        For each array of its payload, how those of several ranks combine.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    combine: ClassVar[Combination]

    def encode(self, array: Floats32) -> "Payload":
        """Return the payload of ``array``, float32 of shape (n,)."""

    def decode(self, payload: "Payload") -> Floats32:
        """Return what ``payload`` stands for, float32 of shape (n,)."""


class DescribedCodec(Described):
    """A codec, with what ``codecs.toml`` says of it."""

    __slots__ = ()
    catalogue = Catalogue(__name__.rpartition(".")[0], own_tables(__file__, "codecs.toml"))
    summary: ClassVar[str]
    source: ClassVar[str]
    combine: ClassVar[Combination]


def float32_vector(array: Array, owner: str) -> Floats32:
    """Return ``array`` if it is a float32 vector; `CodecError` says what ``owner`` found instead."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 1:
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise CodecError(f"{owner} encodes a float32 vector; found {found}: convert and flatten it first")
    return array


VERSION, MAX_ARRAYS = 2, 4
MAX_DIMENSIONS = 3

_MAGIC = b"S2SIMPLD"
# magic, version, number of arrays, elements of the vector, bytes of the body, codec with its options
_HEAD = struct.Struct("<8sHHQQ128s")
# name, type, dimensions, shape
_ARRAY = struct.Struct(f"<16s4sI{MAX_DIMENSIONS}Q")
_CHECKSUM = struct.Struct("<I")
_ARRAYS_BYTES = MAX_ARRAYS * _ARRAY.size

FRAME_BYTES = _HEAD.size + _ARRAYS_BYTES + _CHECKSUM.size
"""Bytes of `Payload.to_bytes` that are not data, the same for every payload."""

_DTYPES = {
    dtype.str.encode(): dtype
    for dtype in map(np.dtype, ("|u1", "|i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8"))
}


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """An encoded vector: named arrays."""

    codec: str  # Option string of the codec that made it, without which it cannot be decoded
    elements: int  # Length of the vector
    arrays: Mapping[str, Array]  # The data, in the order in which they travel

    @classmethod
    def of(cls, codec: Codec, elements: int, **arrays: Array) -> "Payload":
        """Return the payload that ``codec`` makes of a vector of ``elements``."""
        return cls(option_text(codec), elements, arrays)

    @property
    def body_bytes(self) -> int:
        """Bytes of the data, without the frame."""
        return sum(array.nbytes for array in self.arrays.values())

    def expect(self, codec: Codec, *names: str) -> list[Array]:
        """Return the arrays called ``names``; `CodecError` if ``codec`` did not make this payload of just these."""
        _check_codec_name(self.codec, codec)
        if tuple(self.arrays) != names:
            raise CodecError(f"a payload of {codec.name} holds {', '.join(names)}; found {', '.join(self.arrays)}")
        return list(self.arrays.values())

    def to_bytes(self) -> bytes:
        """Return the frame and the data, `FRAME_BYTES` + `body_bytes` long."""
        if len(self.arrays) > MAX_ARRAYS:
            raise CodecError(f"a payload holds at most {MAX_ARRAYS} arrays; found {len(self.arrays)}")
        body = b"".join(_little_endian(array).tobytes() for array in self.arrays.values())
        head = _HEAD.pack(
            _MAGIC,
            VERSION,
            len(self.arrays),
            self.elements,
            len(body),
            _encode_text(self.codec, 128, "codec option string"),
        )
        for name, array in self.arrays.items():
            if array.ndim > MAX_DIMENSIONS:
                raise CodecError(
                    f"array {name!r} has {array.ndim} dimensions; a payload's have at most {MAX_DIMENSIONS}"
                )
            shape = (*array.shape, *[0] * (MAX_DIMENSIONS - array.ndim))
            dtype = _little_endian(array).dtype.str.encode().ljust(4, b"\0")
            head += _ARRAY.pack(_encode_text(name, 16, "array name"), dtype, array.ndim, *shape)
        frame = head.ljust(_HEAD.size + _ARRAYS_BYTES, b"\0")
        return b"".join((frame, _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(frame))), body))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, codec: Codec) -> "Payload":
        """Return the payload that `to_bytes` of a payload of ``codec`` made; `CodecError` for anything else.

        That is: cut short, longer, altered in any byte, of another version or codec.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise CodecError(f"a payload is read from bytes; found {type(data).__name__}")
        data = bytes(data)
        if len(data) < FRAME_BYTES:
            raise CodecError(f"a payload has at least {FRAME_BYTES} bytes; found {len(data)}: it is cut short")
        magic, version, count, elements, body_bytes, codec_text = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise CodecError(f"these {len(data)} bytes are no payload: they begin with {magic!r}, not {_MAGIC!r}")
        if version != VERSION:
            raise CodecError(f"the payload has version {version}; this s2sim reads version {VERSION}")
        if len(data) != FRAME_BYTES + body_bytes:
            raise CodecError(
                f"the payload should have {FRAME_BYTES + body_bytes} bytes and has {len(data)}: "
                f"{'it is cut short' if len(data) < FRAME_BYTES + body_bytes else 'something follows it'}"
            )
        frame, body = data[: FRAME_BYTES - _CHECKSUM.size], memoryview(data)[FRAME_BYTES:]
        (checksum,) = _CHECKSUM.unpack_from(data, len(frame))
        if zlib.crc32(body, zlib.crc32(frame)) != checksum:
            raise CodecError("the payload's checksum does not match: its bytes were altered")
        _check_codec_name(codec_text.rstrip(b"\0").decode("ascii", "replace"), codec)
        payload = cls(option_text(codec), elements, _read_arrays(data, count))
        if payload.to_bytes() != data:
            raise CodecError("the payload describes other arrays than it holds")
        return payload


def _check_codec_name(found: str, codec: Codec) -> None:
    if found != option_text(codec):
        raise CodecError(f"the payload was made by {found!r} and cannot be read by {option_text(codec)!r}")


def _little_endian(array: Array) -> Array:
    if array.dtype.newbyteorder("<").str.encode() not in _DTYPES:
        raise CodecError(f"a payload cannot carry {array.dtype}; it carries {', '.join(map(str, _DTYPES.values()))}")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _encode_text(text: str, size: int, what: str) -> bytes:
    encoded = text.encode("ascii", errors="replace")
    if len(encoded) > size or not text.isascii() or "\0" in text:
        raise CodecError(f"the {what} {text!r} does not fit in a frame: use at most {size} ASCII characters")
    return encoded.ljust(size, b"\0")


def _read_arrays(data: bytes, count: int) -> dict[str, Array]:
    """Return the arrays that the frame of ``data`` describes, copied, so that they are aligned and writable."""
    arrays: dict[str, Array] = {}
    start = FRAME_BYTES
    for slot in range(min(count, MAX_ARRAYS)):
        name, dtype_text, dimensions, *sizes = _ARRAY.unpack_from(data, _HEAD.size + slot * _ARRAY.size)
        shape = tuple(sizes[:dimensions])
        try:
            dtype, key = _DTYPES[dtype_text.rstrip(b"\0")], name.rstrip(b"\0").decode("ascii")
            stop = start + prod(shape) * dtype.itemsize
            arrays[key] = np.frombuffer(data[start:stop], dtype).reshape(shape).copy()
        except (KeyError, ValueError, OverflowError) as error:
            # An unknown type, or a shape that does not fit in the bytes or in NumPy's sizes.
            raise CodecError(f"array {name!r} of the payload has an impossible name, type or shape") from error
        start = stop
    return arrays


CODECS = Registry("codec", "s2sim.codecs", DescribedCodec.catalogue.places)


def make_codec(text: str) -> Codec:
    """Return the codec that an option string names.

    >>> make_codec("top-k:density=0.05")
    TopKCodec(density=0.05)
    """
    name, options = split_option_string(text)
    codec: Codec = build(CODECS.get(name), options, name)
    return codec
