"""Any codec as a reducer: against payloads that are put together by hand."""

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np
import pytest

from s2sim.codecs.payload import CODECS, Payload, make_codec
from s2sim.errors import CodecError, OptionError, UnknownNameError
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.testing.codecs import check_codec, combined, example_vector

RANKS = 4


@dataclass(frozen=True)
class Halved:
    """Every other element, whose payload is gathered."""

    name: ClassVar = "halved"
    summary: ClassVar = "every other element"
    source: ClassVar = "none"
    combine: ClassVar = {"values": "gather"}

    def encode(self, array):
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 1:
            raise CodecError("no float32 vector")
        return Payload.of(self, len(array), values=array[::2].copy())

    def decode(self, payload):
        (values,) = payload.expect(self, "values")
        if values.shape != (-(-payload.elements // 2),):
            raise CodecError("cut short")
        vector = np.zeros(payload.elements, np.float32)
        vector[::2] = values
        return vector


@pytest.mark.parametrize(
    "text",
    [
        "fp16",
        "fp8",
        "top-k:density=0.1",
        "count-sketch:rows=3,columns=99",
        "peeled-sketch:keys=2000,bound=100",
        "bitmap",
    ],
)
def test_what_arrives_is_decoded_rank_by_rank_or_once(text):
    vectors = [example_vector(900, seed=seed) for seed in range(RANKS)]
    codec = make_codec(text)
    payloads = [codec.encode(vector) for vector in vectors]
    if "gather" in codec.combine.values():
        total = reduce(np.add, map(codec.decode, payloads))
    else:
        total = codec.decode(combined(codec, payloads))
    found = reduce_once(f"coded:codec={text.replace(',', ';')}", vectors)
    for values in found.values:
        np.testing.assert_allclose(values, total / np.float32(RANKS), rtol=1e-3, atol=1e-6)


def test_ranks_send_the_bytes_of_their_arrays():
    vectors = [example_vector(800, seed=seed) for seed in range(RANKS)]
    assert reduce_once("coded", vectors).bytes_sent == [2 * 800 * 2 * (RANKS - 1) // RANKS] * RANKS
    assert reduce_once("coded:codec=top-k:density=0.1", vectors).bytes_sent == [(RANKS - 1) * 80 * 8] * RANKS


def test_a_codec_of_a_plug_in_is_a_reducer_by_its_name(monkeypatch):
    check_codec(Halved())
    monkeypatch.setitem(CODECS._targets, "halved", f"{__name__}:Halved")
    vectors = [example_vector(901, seed=seed) for seed in range(RANKS)]
    mean = np.mean(vectors, axis=0)
    mean[1::2] = 0
    found = reduce_once("coded:codec=halved", vectors)
    np.testing.assert_allclose(found.values[0], mean, rtol=1e-6)
    assert found.bytes_sent == [(RANKS - 1) * 451 * 4] * RANKS


def test_wrong_codecs_are_refused_by_name(monkeypatch):
    with pytest.raises(UnknownNameError, match=r"unknown codec 'topk'.*top-k"):
        make_reducer("coded:codec=topk")
    with pytest.raises(OptionError, match="top-k has no option 'k'"):
        make_reducer("coded:codec=top-k:k=3")
    monkeypatch.setitem(CODECS._targets, "mixed", f"{__name__}:Halved")
    monkeypatch.setattr(Halved, "combine", {"values": "gather", "total": "sum"})
    with pytest.raises(OptionError, match="both gathered and reduced"):
        make_reducer("coded:codec=mixed")
