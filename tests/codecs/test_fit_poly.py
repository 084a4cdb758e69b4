"""Fit-Poly: curves that polynomials are, knots where a curve bends, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.deepreduce import DEGREE, decode_fit, encode_fit
from s2sim.errors import CodecError


@given(st.integers(0, 200), st.integers(1, 9), st.integers(0, 2**32))
def test_values_come_back_nearly(n, pieces, seed):
    values = np.random.default_rng(seed).standard_normal(n, np.float32)
    message = encode_fit(values, pieces)
    found = decode_fit(*message)
    assert found.dtype == np.float32
    assert found.shape == (n,)
    # A knot and a polynomial a piece, and of each value its place among all in falling order.
    order_bytes = -(-n * max(1, (n - 1).bit_length()) // 8)
    assert sum(array.nbytes for array in message) <= 4 * (pieces + 1) + 4 * (DEGREE + 1) * pieces + order_bytes
    # A least squares fit is not further off than the best constants, which are the means of the pieces.
    assert np.linalg.norm(found - values) <= np.linalg.norm(values - values.mean()) * (1 + 1e-4) + 1e-5 if n else True


@pytest.mark.parametrize("seed", range(3))
def test_a_falling_polynomial_is_found_exactly(seed):
    places = np.linspace(0, 1, 500)
    curve = (3 - places - 2 * places**3 - places**5).astype(np.float32)
    values = np.random.default_rng(seed).permutation(curve)
    np.testing.assert_allclose(decode_fit(*encode_fit(values, 1)), values, atol=1e-6)


def test_a_knot_lies_where_the_curve_bends_most():
    falls = np.concatenate([np.linspace(10, 9, 300), np.linspace(1, 0, 700)]).astype(np.float32)
    knots, coefficients, _ = encode_fit(falls, 2)
    assert knots.tolist() in ([0, 299, 1000], [0, 300, 1000])
    assert coefficients.shape == (2, 6)


def test_few_values_take_no_more_pieces_than_they_bend():
    knots, _, order = encode_fit(np.array([1, 1, 1, 1], np.float32), 8)
    assert knots.tolist() == [0, 4]
    assert order.nbytes == 1


def test_eight_pieces_keep_what_top_k_selects_of_a_normal_gradient():
    values = np.random.default_rng(0).standard_normal(100_000, np.float32)
    largest = values[np.argsort(-np.abs(values))[:1000]]
    found = decode_fit(*encode_fit(largest, 8))
    assert np.linalg.norm(found - largest) < 0.01 * np.linalg.norm(largest)


def test_altered_knots_are_refused():
    knots, coefficients, order = encode_fit(np.arange(100, dtype=np.float32), 3)
    with pytest.raises(CodecError, match="needs one knot more"):
        decode_fit(knots[:-1], coefficients, order)
