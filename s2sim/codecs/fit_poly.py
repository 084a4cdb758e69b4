"""Fit-Poly: values in falling order are a smooth curve, of which the coefficients of a few polynomials are sent.

H. Xu et al., DeepReduce, NeurIPS 2021. These give the values in falling order; where each belongs is sent beside them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.polynomial import chebyshev

from s2sim.arrays import Bits, Floats, Floats32, Words
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.errors import CodecError

DEGREE = 5
"""Of the polynomials: six coefficients each."""


def encode_fit(values: Floats32, pieces: int) -> tuple[Words, Floats32, Bits]:
    """Return the curve through ``values``, float32 of shape (n,), in falling order, in at most so many pieces.

    Returns
    -------
    knots : uint32 array, shape (pieces + 1,)
        Where pieces begin in the order, and n.
    coefficients : float32 array, shape (pieces, 6)
        Of Chebyshev polynomials over each piece.
    order : uint8 array
        Which value is at each place of the order, packed in ceil(log2 n) bits each.
    """
    falling = np.argsort(-values, kind="stable")
    curve = values[falling].astype(np.float64)
    knots = _find_knots(curve, pieces)
    coefficients = np.zeros((len(knots) - 1, DEGREE + 1), np.float32)
    for piece, (start, stop) in zip(coefficients, pairwise(knots), strict=True):
        degree = min(DEGREE, stop - start - 1)
        piece[: degree + 1] = chebyshev.chebfit(_abscissae(stop - start), curve[start:stop], degree)
    return np.array(knots, np.uint32), coefficients, pack_integers(falling.astype(np.uint32), _order_bits(len(values)))


def decode_fit(knots: Words, coefficients: Floats32, order: Bits) -> Floats32:
    """Return the values that the curve has, float32 of shape (n,); the inverse of `encode_fit` but for the fit."""
    if len(coefficients) != len(knots) - 1 or np.any(np.diff(knots.astype(np.int64)) < 0):
        raise CodecError(f"a curve of {len(coefficients)} pieces needs one knot more, none before the last")
    count = int(knots[-1])
    values = np.zeros(count, np.float32)
    curve = np.zeros(count)
    for piece, (start, stop) in zip(coefficients, pairwise(knots.tolist()), strict=True):
        curve[start:stop] = chebyshev.chebval(_abscissae(stop - start), piece)
    values[unpack_integers(order, _order_bits(count), count)] = curve
    return values


def _find_knots(curve: Floats, pieces: int) -> list[int]:
    """Return where pieces begin, and the end: one at a time where the curve is furthest from a piece's chord."""
    if not len(curve):
        return [0]
    knots = [0, len(curve)]
    furthest = {0: _worst_chord_error(curve, 0, len(curve))}
    while len(furthest) < pieces:
        start = max(furthest, key=lambda begin: furthest[begin][0])
        distance, at = furthest[start]
        if not distance > 0:
            break
        stop = knots[knots.index(start) + 1]
        knots = sorted([*knots, at])
        furthest[start], furthest[at] = _worst_chord_error(curve, start, at), _worst_chord_error(curve, at, stop)
    return knots


def _worst_chord_error(curve: Floats, start: int, stop: int) -> tuple[float, int]:
    """Return the largest squared distance of a piece of a curve from its chord, and the inner place where it is."""
    if stop - start < 3:
        return 0.0, start
    part = curve[start:stop]
    run, rise = len(part) - 1, part[-1] - part[0]
    off = (part - part[0]) * run - np.arange(len(part)) * rise
    squared: Floats = np.square(off) / (run**2 + rise**2)
    at = int(squared.argmax())
    return float(squared[at]), start + at


def _abscissae(count: int) -> Floats:
    """Return where so many values stand in their piece, from -1 to 1."""
    return np.linspace(-1, 1, count) if count > 1 else np.zeros(count)


def _order_bits(count: int) -> int:
    return max(1, (count - 1).bit_length())
