"""The kit against codecs that break its rules."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from s2sim.codecs.bitmap import Bitmap
from s2sim.codecs.floats import HalfCodec
from s2sim.codecs.payload import Payload
from s2sim.codecs.top_k import TopKCodec
from s2sim.testing.codecs import check_codec

COUNTER = itertools.count()


@dataclass
class Thawed:
    """Not frozen."""

    name: ClassVar[str] = "thawed"


class Plain:
    """No dataclass."""

    name = "plain"


@dataclass(frozen=True, eq=False)
class Unequal(HalfCodec):
    """Equal to nothing but itself."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True)
class Wordy(HalfCodec):
    summary: ClassVar[str] = "first line\nsecond line"


@dataclass(frozen=True)
class Sourceless(HalfCodec):
    source: ClassVar[str] = " "


@dataclass(frozen=True)
class Averages(HalfCodec):
    combine: ClassVar[dict[str, str]] = {"values": "mean"}


@dataclass(frozen=True)
class OtherArrays(HalfCodec):
    combine: ClassVar[dict[str, str]] = {"halves": "sum"}


@dataclass(frozen=True)
class Scribbles(HalfCodec):
    """Rounds its input in place."""

    def encode(self, array):
        payload = HalfCodec.encode(self, array)
        array[:] = payload.arrays["values"]
        return payload


@dataclass(frozen=True)
class Restless(HalfCodec):
    """Adds another number each time."""

    def encode(self, array):
        payload = HalfCodec.encode(self, array)
        payload.arrays["values"][:] += next(COUNTER)
        return payload


@dataclass(frozen=True)
class Doubles(HalfCodec):
    """Decodes to float64."""

    def decode(self, payload):
        return HalfCodec.decode(self, payload).astype(np.float64)


@dataclass(frozen=True)
class Padded(Bitmap):
    """Decodes to whole bytes of bits."""

    def decode(self, payload):
        (support,) = payload.expect(self, "support")
        return np.unpackbits(support, bitorder="little").astype(np.float32)


@dataclass(frozen=True)
class Offset(HalfCodec):
    """Zeros become something."""

    def decode(self, payload):
        return HalfCodec.decode(self, payload) + np.float32(1)


@dataclass(frozen=True)
class Scaled(HalfCodec):
    """Divides by a magnitude that may be zero."""

    def decode(self, payload):
        decoded = HalfCodec.decode(self, payload)
        with np.errstate(invalid="ignore"):
            return decoded / np.abs(decoded).max(initial=0)


@dataclass(frozen=True)
class Consumes(HalfCodec):
    """Decodes in place."""

    def decode(self, payload):
        decoded = HalfCodec.decode(self, payload)
        payload.arrays["values"][:] += np.float16(1)
        return decoded


@dataclass(frozen=True)
class Dithers(HalfCodec):
    """Decodes to other values each time."""

    def decode(self, payload):
        return HalfCodec.decode(self, payload) * np.float32(next(COUNTER))


@dataclass(frozen=True)
class Lenient(HalfCodec):
    """Converts whatever it gets."""

    def encode(self, array):
        return HalfCodec.encode(self, np.asarray(array, np.float32).ravel())


@dataclass(frozen=True)
class Remembers(HalfCodec):
    """Keeps float32 in an attribute beside what is in the payload's bytes."""

    KEPT: ClassVar[dict[int, np.ndarray]] = {}

    def encode(self, array):
        payload = HalfCodec.encode(self, array)
        self.KEPT[id(payload)] = (payload, array.copy())
        return payload

    def decode(self, payload):
        return self.KEPT[id(payload)][1] if id(payload) in self.KEPT else HalfCodec.decode(self, payload)


@dataclass(frozen=True)
class Undiscerning(HalfCodec):
    """Takes the payload of any codec."""

    def decode(self, payload):
        return HalfCodec.decode(self, dataclasses.replace(payload, codec="fp16"))


@dataclass(frozen=True)
class Trusting(TopKCodec):
    """Does not check sizes."""

    def decode(self, payload):
        indices, values = payload.expect(self, "indices", "values")
        array = np.zeros(payload.elements, np.float32)
        array[indices] = values
        return array


@dataclass(frozen=True)
class Ragged(HalfCodec):
    """Sends once more what is not zero, so that ranks' arrays differ in size."""

    def encode(self, array):
        values = HalfCodec.encode(self, array).arrays["values"]
        return Payload.of(self, len(array), values=np.append(values, values[values != 0]))

    def decode(self, payload):
        (values,) = payload.expect(self, "values")
        return HalfCodec.decode(self, dataclasses.replace(payload, arrays={"values": values[: payload.elements]}))


@dataclass(frozen=True)
class Biased(HalfCodec):
    """Sends one more than each value, which every rank adds."""

    def encode(self, array):
        payload = HalfCodec.encode(self, array)
        payload.arrays["values"][:] += 1
        return payload

    def decode(self, payload):
        return HalfCodec.decode(self, payload) - np.float32(1)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Thawed, "not frozen"),
        (Plain, "no dataclass"),
        (Unequal, "does not equal"),
        (Wordy, "more than a line"),
        (Sourceless, "no source"),
        (Averages, "'mean', which is none of sum, or, max, gather"),
        (OtherArrays, "though combine names halves"),
        (Scribbles, "changes its input"),
        (Restless, "other bytes when it is done again"),
        (Doubles, "float64, not float32"),
        (Padded, r"the shape \(8,\), not \(1,\)"),
        (Offset, "do not stay zero"),
        (Scaled, "zeros of 1 elements do not stay zero"),
        (Consumes, "decode changes its payload"),
        (Dithers, "other values the second time"),
        (Lenient, "encode takes float64"),
        (Remembers, "other values when it is read from its bytes"),
        (Undiscerning, "another codec made"),
        (Ragged, "zeros has shape"),
        (Biased, "other values when they are combined with zeros"),
        (Trusting, "'values' is cut short raises ValueError"),
    ],
)
def test_the_kit_finds(broken, complaint):
    with pytest.raises(AssertionError, match=complaint) as caught:
        check_codec(broken())
    assert "\n" not in str(caught.value)


def test_the_kit_finds_a_wire_without_checksum(monkeypatch):
    monkeypatch.setattr("zlib.crc32", lambda _data, _value=0: 0)
    with pytest.raises(AssertionError, match="an altered byte 12 is not refused"):
        check_codec(HalfCodec())


def test_the_kit_finds_wrong_counts(monkeypatch):
    monkeypatch.setattr(Payload, "body_bytes", 7)
    with pytest.raises(AssertionError, match="not what to_bytes carries"):
        check_codec(HalfCodec())
