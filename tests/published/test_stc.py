"""Bits that STC's authors count for a tensor, against a real message."""

import numpy as np
import pytest

from s2sim.codecs.integer_codes import rice_bits
from s2sim.reducers.run import reduce_once

N = 400_000


@pytest.mark.parametrize("density", [0.01, 0.001])
def test_bits_of_a_tensor(density):
    """github.com/felisat/federated-learning: k (B_pos + 1), B_pos = b* + 1 / (1 - (1 - q)^(2^b*)) + 1.

    Here a position has the bit less that a Rice code needs less, and the mean magnitude its 32.
    """
    k = round(N * density)
    q = (k + 1) / (N + 1)
    low_bits = rice_bits(q)
    authors = k * (low_bits + 1 / (1 - (1 - q) ** (1 << low_bits)) + 1 + 1)
    vector = np.random.default_rng(0).standard_normal(N).astype(np.float32)
    (call,) = reduce_once(f"stc:density={density},aggregate=gather", [vector]).recording.calls
    # The bytes that positions and signs end in may be a few bits too long.
    assert 8 * call.bytes_by_rank[0] == pytest.approx(authors - k + 32, rel=0.01, abs=16)
