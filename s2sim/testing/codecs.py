"""Conformance kit for codecs; a plug-in's test is one line: ``check_codec(MyCodec())``."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, get_args

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.payload import FRAME_BYTES, Codec, Combine, Payload
from s2sim.errors import CodecError
from s2sim.reducers.reduction import OPERATIONS
from s2sim.testing.collectives import require, require_options

LENGTHS = (0, 1, 8, 5000)
"""No element, one, a whole byte of bits, and many."""


def example_vector(n: int, *, density: float = 0.1, seed: int = 0) -> Floats32:
    """Return a sparse vector, float32 of shape (n,): standard normal values in a fraction ``density`` of the places."""
    generator = np.random.default_rng(seed)
    return np.where(generator.random(n) < density, generator.standard_normal(n), 0).astype(np.float32)


def combined(codec: Codec, payloads: Sequence[Payload]) -> Payload:
    """Return the combination of ranks' payloads: arrays reduced in rank order by the codec's operations."""
    arrays = {
        name: reduce(OPERATIONS[operation], [payload.arrays[name] for payload in payloads])
        for name, operation in codec.combine.items()
    }
    return dataclasses.replace(payloads[0], arrays=arrays)


def check_codec(codec: Codec) -> None:
    """Check a codec; `AssertionError` names the first broken law."""
    require_options(codec, "summary")
    require(codec.combine, f"{codec.name} does not say how its arrays combine")
    known = get_args(Combine)
    for name, operation in codec.combine.items():
        require(operation in known, f"{name!r} combines by {operation!r}, which is none of {', '.join(known)}")
    for n in LENGTHS:
        payload = _check_vector(codec, example_vector(n))
        data = payload.to_bytes()
        require(
            payload.body_bytes == len(data) - FRAME_BYTES, f"body_bytes is not what to_bytes carries for {n} elements"
        )
        read = Payload.from_bytes(data, codec)
        require(read.to_bytes() == data, f"a payload is another one when it is read from its bytes for {n} elements")
        same = np.array_equal(codec.decode(read), codec.decode(payload))
        require(same, f"a payload decodes to other values when it is read from its bytes for {n} elements")
        _check_combined(codec, payload)
        _check_forged(codec, payload)
    data = codec.encode(example_vector(8, density=1.0)).to_bytes()
    for length in range(len(data)):
        _refused(f"{length} of {len(data)} bytes read as a payload", Payload.from_bytes, data[:length], codec)
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 1 << place % 8
        _refused(f"an altered byte {place} is not refused", Payload.from_bytes, altered, codec)
    for wrong, what in ((np.zeros(4), "float64"), (np.zeros((2, 2), np.float32), "a matrix"), ([0.0], "a list")):
        _refused(f"encode takes {what}, which is no float32 vector", codec.encode, wrong)


def _refused(message: str, action: Callable[..., object], *arguments: object) -> None:
    try:
        action(*arguments)
    except CodecError:
        return
    except Exception as error:
        raise AssertionError(f"{message}: {type(error).__name__} instead of CodecError") from error
    raise AssertionError(message)


def _check_vector(codec: Codec, array: Floats32) -> Payload:
    n = len(array)
    before = array.copy()
    payload = codec.encode(array)
    require(np.array_equal(array, before), f"encode changes its input of {n} elements")
    require(payload.elements == n, f"the payload of {n} elements says that it has {payload.elements}")
    names = f"the payload holds {', '.join(payload.arrays)}, though combine names {', '.join(codec.combine)}"
    require(tuple(payload.arrays) == tuple(codec.combine), names)
    again = dataclasses.replace(codec).encode(array)  # type: ignore[type-var]  # codecs are dataclasses; a Protocol has no way to demand that
    data = payload.to_bytes()
    require(again.to_bytes() == data, f"{n} elements are encoded to other bytes when it is done again")
    decoded = codec.decode(payload)
    require(payload.to_bytes() == data, f"decode changes its payload of {n} elements")
    _check_decoded(decoded, n)
    require(not decoded[array == 0].any(), f"zeros of {n} elements do not stay zero")
    require(np.array_equal(codec.decode(payload), decoded), f"{n} elements decode to other values the second time")
    return payload


def _check_decoded(decoded: Any, n: int) -> None:
    require(isinstance(decoded, np.ndarray), f"decode gives {type(decoded).__name__}, not an array")
    require(decoded.dtype == np.float32, f"decode gives {decoded.dtype}, not float32")
    require(decoded.shape == (n,), f"decode gives the shape {decoded.shape}, not ({n},)")


def _check_combined(codec: Codec, payload: Payload) -> None:
    """Check that a rank of zeros changes nothing, if all ranks' arrays become one."""
    if "gather" in codec.combine.values():
        return
    n = payload.elements
    nothing = codec.encode(np.zeros(n, np.float32))
    for name, array in payload.arrays.items():
        shape = nothing.arrays[name].shape
        require(shape == array.shape, f"{name!r} of {n} zeros has shape {shape}, and of others {array.shape}")
    for pair in ((payload, nothing), (nothing, payload)):
        same = np.array_equal(codec.decode(combined(codec, pair)), codec.decode(payload))
        require(same, f"{n} elements decode to other values when they are combined with zeros")


def _check_forged(codec: Codec, payload: Payload) -> None:
    """Check that decode of a foreign or damaged payload raises `CodecError` or returns a vector."""
    foreign = dataclasses.replace(payload, codec="some-other-codec")
    _refused("decode takes a payload that another codec made", codec.decode, foreign)
    nameless = dataclasses.replace(payload, arrays={f"no {name}": part for name, part in payload.arrays.items()})
    _refused("decode takes a payload of arrays with other names", codec.decode, nameless)
    for name, array in payload.arrays.items():
        for forged, what in ((array[:-1], "cut short"), (np.repeat(array, 2, axis=0), "twice as long")):
            part = dataclasses.replace(payload, arrays={**payload.arrays, name: forged})
            try:
                decoded = codec.decode(part)
            except CodecError:
                continue
            except Exception as error:
                text = f"decode of a payload whose {name!r} is {what} raises {type(error).__name__}, not CodecError"
                raise AssertionError(text) from error
            _check_decoded(decoded, payload.elements)
