"""Positions as distances of 16 bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.hashing import decode_distances, encode_distances
from s2sim.errors import CodecError

FURTHEST = 65535


@given(st.lists(st.integers(0, 10**6), unique=True).map(sorted))
def test_they_lead_back(positions):
    values = np.arange(1, len(positions) + 1, dtype=np.float32)
    distances, filled = encode_distances(np.array(positions, np.int64), values)
    assert distances.dtype == np.uint16
    found = decode_distances(distances, 10**6 + 1)
    assert found[filled != 0].tolist() == positions
    assert filled[filled != 0].tolist() == values.tolist()
    # One filler where the next position is further away than 16 bits tell, for each time that it is.
    steps = np.diff([-1, *positions])
    assert len(distances) == sum(-(-step // FURTHEST) for step in steps)


def test_the_edge():
    for position, length in ((FURTHEST - 1, 1), (FURTHEST, 2), (2 * FURTHEST - 1, 2), (2 * FURTHEST, 3)):
        distances, _ = encode_distances(np.array([position]), np.ones(1, np.float32))
        assert len(distances) == length


def test_what_leads_nowhere_is_refused():
    with pytest.raises(CodecError, match="do not lead"):
        decode_distances(np.array([3, 0], np.uint16), 10)
    with pytest.raises(CodecError, match="do not lead"):
        decode_distances(np.array([3, 9], np.uint16), 11)
