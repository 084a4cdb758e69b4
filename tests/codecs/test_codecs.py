"""The conformance kit over every registered codec, and what is particular to one."""

import numpy as np
import pytest

from s2sim.codecs.payload import CODECS, make_codec
from s2sim.errors import OptionError, UnknownNameError
from s2sim.testing.codecs import check_codec, combined, example_vector

VARIANTS = [
    *CODECS.names(),
    "top-k:density=1",
    "count-sketch:rows=1,columns=40,hash=modulo",
    "count-sketch:rows=5,columns=400,seed=3,hash=product",
]


@pytest.mark.parametrize("text", VARIANTS)
def test_every_registered_codec_conforms(text):
    codec = make_codec(text)
    assert codec.name == text.partition(":")[0]
    check_codec(codec)


@pytest.mark.parametrize("text", ["bitmap", "count-sketch:columns=3000", "fp16"])
def test_merged_payload_decodes_to_the_reduction(text):
    codec = make_codec(text)
    # Small integers: every sum is exact in float32 and float16.
    generator = np.random.default_rng(1)
    ranks = [(generator.integers(-4, 5, 3000) * (generator.random(3000) < 0.05)).astype(np.float32) for _ in range(4)]
    merged = combined(codec, [codec.encode(rank) for rank in ranks])
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


def test_lossless_where_promised():
    array = example_vector(5000)
    assert np.array_equal(make_codec("top-k:density=1.0").decode(make_codec("top-k:density=1.0").encode(array)), array)
    bits = make_codec("bitmap").decode(make_codec("bitmap").encode(array))
    assert np.array_equal(bits, (array != 0).astype(np.float32))


def test_top_k_keeps_the_largest():
    codec = make_codec("top-k:density=0.01")
    array = example_vector(5000)
    decoded = codec.decode(codec.encode(array))
    assert np.count_nonzero(decoded) == 50
    assert np.abs(decoded[decoded != 0]).min() >= np.abs(array[decoded == 0]).max()


@pytest.mark.parametrize(
    "text",
    [
        "top-k:density=0",
        "top-k:density=1.5",
        "count-sketch:rows=0",
        "count-sketch:columns=0",
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
