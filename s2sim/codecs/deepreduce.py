"""DeepReduce's codes: Bloom filters of indices, and Fit-Poly, polynomials through values in falling order.

A Bloom filter of some of the keys 0 to n - 1: all of them test positive, and of the others a small share (B. H. Bloom,
"Space/time trade-offs in hash coding with allowable errors", CACM 1970). Hash functions are those of a count sketch
(`s2sim.codecs.hashing`, family ``mix``). Fit-Poly: H. Xu et al., DeepReduce, NeurIPS 2021; where each value belongs is
sent beside the polynomials.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, log, log2

import numpy as np
from numpy.polynomial import chebyshev

from s2sim.arrays import Bits, Floats, Floats32, Ints, Words
from s2sim.codecs.bitmap import check_bitmap
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.hashing import MAX_ROWS, check_key_space, mix32, mix_constants, row_words, spread
from s2sim.errors import CodecError, OptionError

_KEYS_PER_BATCH, _CACHED_FILTERS = 1 << 15, 64


def check_rate(rate: float, owner: str) -> None:
    """Raise `OptionError` unless a filter can have this rate of false positives."""
    if not 2.0**-MAX_ROWS <= rate < 1:
        raise OptionError(f"{owner}: fpr={rate} is not between 2^-{MAX_ROWS} and 1")


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """Size and hash functions of a filter.

    >>> bloom = BloomFilter.sized(keys=2, rate=0.001)
    >>> bloom.bits, bloom.hashes
    (29, 10)
    >>> bloom.positives(bloom.encode(np.array([3, 70])), 100)
    array([ 3, 70])
    """

    bits: int  # Length of the filter, at least 1
    hashes: int  # Bits that each key sets, 1 to 16
    seed: int = 0  # Chooses the hash functions

    @classmethod
    def sized(cls, keys: int, rate: float, seed: int = 0) -> "BloomFilter":
        """Return the smallest filter of so many keys whose ``rate`` of false positives is this.

        It has -keys ln(rate) / (ln 2)^2 bits, of which half are set, and log2(1 / rate) hash functions.
        """
        return cls(max(1, ceil(-keys * log(rate) / log(2) ** 2)), max(1, round(-log2(rate))), seed)

    def encode(self, keys: Ints) -> Bits:
        """Return the filter of some ``keys``, int64 of shape (k,), as uint8 of shape (ceil(bits / 8),)."""
        is_set = np.zeros(self.bits, np.bool_)
        for place in self._places(keys):
            is_set[place] = True
        return np.packbits(is_set, bitorder="little")

    def positives(self, filled: Bits, n: int) -> Ints:
        """Return the keys from 0 to ``n`` - 1 that test positive in a filter, int64, increasing."""
        check_bitmap(filled, self.bits)
        check_key_space(0, n)
        return _test_all_keys(self, filled.tobytes(), n)

    def likeliest(self, positives: Ints, k: int, random: np.random.Generator) -> Ints:
        """Return ``k`` of all keys that test positive, those among them that are surely no others; increasing.

        The conflict set of a bit are the positives that set it, of which one at least is a key of the filter. From the
        smallest on, each set in which none is chosen yet draws one; if that makes fewer than k, others are drawn at
        random. DeepReduce's policy P2, but that its code goes through the sets again for the rest.
        """
        # Every bit that a positive sets with the positive's place, ordered by both.
        count = max(1, len(positives))
        pairs = [place * count + np.arange(len(positives)) for place in self._places(positives)]
        bits, members = np.divmod(np.unique(np.concatenate(pairs)), count)
        starts = np.flatnonzero(np.diff(bits, prepend=-1))
        sizes = np.diff(starts, append=len(bits))
        draws = members[starts + (random.random(len(starts)) * sizes).astype(np.int64)]
        places = np.empty(len(starts), np.int64)
        places[np.argsort(sizes, kind="stable")] = np.arange(len(starts))

        # Where in this order each positive is chosen; a set draws once no earlier one can draw one of its members.
        chosen_at = np.full(len(positives), len(starts))
        left = np.ones(len(starts), np.bool_)
        while left.any():
            drawn_at = np.full(len(positives), len(starts))
            np.minimum.at(drawn_at, draws[left], places[left])
            ready = left & (np.minimum.reduceat(drawn_at[members], starts) == places)
            chosen_at[draws[ready]] = places[ready]
            left &= np.minimum.reduceat(chosen_at[members], starts) > places
        first = np.sort(chosen_at[chosen_at < len(starts)])[:k]
        found = draws[np.argsort(places)[first]]
        rest = np.setdiff1d(np.arange(len(positives)), found, assume_unique=True)
        more = random.choice(rest, k - len(found), replace=False)
        likeliest: Ints = positives[np.sort(np.concatenate([found, more]))]
        return likeliest

    def _places(self, keys: Ints) -> Iterator[Ints]:
        """Yield the bit that each hash function gives to each key."""
        seed_word, multipliers = mix_constants(self.hashes, self.seed)
        mixed = mix32(keys.astype(np.uint32), seed_word)
        yield from (spread(row_words(mixed, multiplier), self.bits) for multiplier in multipliers)


@lru_cache(maxsize=_CACHED_FILTERS)
def _test_all_keys(bloom: BloomFilter, filled: bytes, n: int) -> Ints:
    """Return what `BloomFilter.positives` does: whoever has a filter tests all keys, with the same outcome."""
    is_set = np.unpackbits(np.frombuffer(filled, np.uint8), bitorder="little").view(np.bool_)
    seed_word, multipliers = mix_constants(bloom.hashes, bloom.seed)
    found = [np.empty(0, np.int64)]
    for start in range(0, n, _KEYS_PER_BATCH):
        keys = np.arange(start, min(n, start + _KEYS_PER_BATCH), dtype=np.uint32)
        mixed = mix32(keys, seed_word)
        for multiplier in multipliers:
            kept = np.flatnonzero(is_set.take(spread(row_words(mixed, multiplier), bloom.bits)))
            keys, mixed = keys[kept], mixed[kept]
        found.append(keys.astype(np.int64))
    positives = np.concatenate(found)
    positives.flags.writeable = False
    return positives


DEGREE = 5
"""Of the polynomials: six coefficients each."""


def encode_fit(values: Floats32, pieces: int) -> tuple[Words, Floats32, Bits]:
    """Return the curve through ``values``, float32 of shape (n,), in falling order, in at most so many pieces.

    That is where pieces begin in the order, and n, uint32 of shape (pieces + 1,); coefficients of Chebyshev polynomials
    over each piece, float32 of shape (pieces, 6); and which value is at each place of the order, packed in
    ceil(log2 n) bits each.
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
