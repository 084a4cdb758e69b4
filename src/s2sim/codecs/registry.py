"""The codecs there are, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.options import build, split_option_string
from s2sim.registry import Registry

if TYPE_CHECKING:
    from s2sim.codecs.base import Codec

CODECS = Registry(
    "codec",
    "s2sim.codecs",
    {
        "bitmap": "s2sim.codecs.bitmap:Bitmap",
        "count-sketch": "s2sim.codecs.count_sketch:CountSketch",
        "peeled-sketch": "s2sim.codecs.peel_codec:PeeledSketch",
        "top-k": "s2sim.codecs.top_k:TopK",
        "fp16": "s2sim.codecs.half:Half",
        "fp8": "s2sim.codecs.float8:FloatEight",
    },
)


def make_codec(text: str) -> Codec:
    """Return the codec that an option string names.

    >>> make_codec("top-k:density=0.05")
    TopK(density=0.05)
    """
    name, options = split_option_string(text)
    codec: Codec = build(CODECS.get(name), options, name)
    return codec
