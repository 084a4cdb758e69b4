"""A Bloom filter of some of the keys 0 to n - 1: all of them test positive, and of the others a small share.

B. H. Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 1970. Hash functions are those of a
count sketch (`s2sim.codecs.hashing`, family ``mix``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log, log2

import numpy as np

from s2sim.arrays import Bits, Ints, Words
from s2sim.codecs.bitmap import check_bitmap
from s2sim.codecs.hashing import MAX_ROWS, check_key_space, mix32, mix_constants
from s2sim.errors import OptionError

_KEYS_PER_BATCH = 1 << 15
_CACHED_FILTERS = 64


def check_rate(rate: float, owner: str) -> None:
    """Raise `OptionError` unless a filter can have this rate of false positives."""
    if not 2.0**-MAX_ROWS <= rate < 1:
        raise OptionError(f"{owner}: fpr={rate} is not between 2^-{MAX_ROWS} and 1")


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """Size and hash functions of a filter.

    Examples
    --------
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
    def sized(cls, keys: int, rate: float, seed: int = 0) -> BloomFilter:
        """Return the smallest filter of so many keys whose ``rate`` of false positives is this.

        It has -keys ln(rate) / (ln 2)^2 bits, of which half are set, and log2(1 / rate) hash functions.
        """
        bits = ceil(-keys * log(rate) / log(2) ** 2)
        return cls(max(1, bits), max(1, round(-log2(rate))), seed)

    def encode(self, keys: Ints) -> Bits:
        """Return the filter of some ``keys``, int64 of shape (k,), as uint8 of shape (ceil(bits / 8),)."""
        is_set = np.zeros(self.bits, np.bool_)
        for place in self._places(self._mixed(keys)):
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
        bits, members = self._conflicts(positives)
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

    def _conflicts(self, positives: Ints) -> tuple[Ints, Ints]:
        """Return every bit that a positive sets with the positive's place, ordered by both."""
        count = max(1, len(positives))
        places = np.arange(len(positives))
        pairs = [place * count + places for place in self._places(self._mixed(positives))]
        ordered = np.sort(np.concatenate(pairs))
        ordered = ordered[np.diff(ordered, prepend=-1) != 0]
        return ordered // count, ordered % count

    def _mixed(self, keys: Ints) -> Words:
        return mix32(keys.astype(np.uint32), mix_constants(self.hashes, self.seed)[0])

    def _places(self, mixed: Words) -> Iterator[Ints]:
        """Yield the bit that each hash function gives to each mixed key."""
        for multiplier in mix_constants(self.hashes, self.seed)[1]:
            scaled = (mixed * multiplier).astype(np.uint64)
            scaled *= np.uint64(self.bits)
            scaled >>= np.uint64(32)
            yield scaled.view(np.int64)


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
            scaled = np.multiply(mixed * multiplier, np.uint64(bloom.bits), dtype=np.uint64)
            scaled >>= np.uint64(32)
            kept = np.flatnonzero(is_set.take(scaled.view(np.int64)))
            keys, mixed = keys[kept], mixed[kept]
        found.append(keys.astype(np.int64))
    positives = np.concatenate(found)
    positives.flags.writeable = False
    return positives
