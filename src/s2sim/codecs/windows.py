"""Windows of a sketch: neighbouring keys go to neighbouring columns, so that few cells are touched at a time.

A large sketch does not fit in a core's cache, and cells hit at random cost a trip to memory each. With windows, the
keys of one stretch of the vector share one range of columns, which stays in the cache while that stretch is streamed.
Inside a window keys are hashed as ever, so the error is the same, but only if every window has as many columns for a
key as the others: windows are proportional to the keys in them. Ranks whose sketches are to be added must therefore
agree on the counts first, by an all-reduce of one number a segment or by taking the last step's.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.bitmap import CHUNK_ELEMENTS, count
from s2sim.codecs.count_sketch import CountSketch
from s2sim.errors import CodecError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SEGMENT_ELEMENTS = CHUNK_ELEMENTS
"""Keys in one segment; a window is one segment or several."""

_LINE_CELLS = 16
"""Cells in a line of 64 bytes of a cache."""

_KEYS_IN_WINDOW = 1 << 15
"""Keys that are worth a window of their own; their cells take a few hundred kilobytes of a second-level cache."""


def segment_counts(bitmap: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the set bits of each segment of a bitmap, int64 of shape (ceil(bits / SEGMENT_ELEMENTS),)."""
    step = SEGMENT_ELEMENTS // 8
    return np.array([count(bitmap[start : start + step]) for start in range(0, len(bitmap), step)], np.int64)


@dataclass(frozen=True, slots=True)
class Windows:
    """Which columns of a sketch the keys of each stretch go to.

    Attributes
    ----------
    first_keys : tuple of int
        First key of each window; 0 is the first of all.
    bounds : tuple of int
        First column of each window, and the sketch's number of columns at the end.

    Examples
    --------
    >>> Windows.proportional(np.array([60_000, 0, 40_000]), 1002)
    Windows(first_keys=(0, 262144), bounds=(0, 601, 1002))
    """

    first_keys: tuple[int, ...]
    bounds: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.first_keys or self.first_keys[0] or len(self.bounds) != len(self.first_keys) + 1 or self.bounds[0]:
            raise OptionError("windows begin at key 0 and column 0 and have one bound more than first keys")
        for name, numbers in (("first keys", self.first_keys), ("bounds", self.bounds)):
            if any(left >= right for left, right in pairwise(numbers)):
                raise OptionError(f"the {name} of windows must increase: each window needs a key and a column")

    @classmethod
    def proportional(cls, counts: NDArray[np.int64], columns: int) -> Windows:
        """Return windows whose columns are proportional to the keys in them.

        Parameters
        ----------
        counts : int64 array, shape (segments,)
            Keys expected in each segment of `SEGMENT_ELEMENTS`: the same on all ranks. Any common multiple does.
        columns : int
            Columns of the sketch. Each window gets one at least, because keys may come where none were expected.
        """
        if counts.ndim != 1 or not len(counts) or counts.min() < 0:
            raise OptionError("windows need the number of keys of each segment: at least one, none of them negative")
        total = int(counts.sum())
        # No more windows than columns, and none so small that a few keys which nobody expected would crowd it.
        least = max(_KEYS_IN_WINDOW, total // columns + 1)
        first_segments, keys_before = [0], [0]
        passed = 0
        for segment, keys in enumerate(counts.tolist()):
            if passed - keys_before[-1] >= least <= total - passed:
                first_segments.append(segment)
                keys_before.append(passed)
            passed += keys
        spare = columns - len(first_segments)
        bounds = [window + spare * keys // max(1, total) for window, keys in enumerate(keys_before)]
        return cls(tuple(segment * SEGMENT_ELEMENTS for segment in first_segments), (*bounds, columns))

    def split(self, keys: NDArray[np.uint32]) -> Iterator[tuple[slice, slice]]:
        """Yield (slice of ``keys``, slice of columns) for each window that some of these increasing keys lie in."""
        if not len(keys):
            return
        first = bisect_right(self.first_keys, int(keys[0])) - 1
        stop = bisect_right(self.first_keys, int(keys[-1]))
        cuts = np.searchsorted(keys, np.array(self.first_keys[first + 1 : stop], np.uint32)).tolist()
        for window, (start, end) in enumerate(pairwise([0, *cuts, len(keys)]), first):
            yield slice(start, end), slice(self.bounds[window], self.bounds[window + 1])


@dataclass(frozen=True, slots=True)
class WindowedSketch(CountSketch):
    """A count sketch that takes keys in increasing order and puts them into windows.

    Attributes
    ----------
    windows : Windows
        Which columns the keys of each stretch go to.
    """

    windows: Windows = field(kw_only=True)

    def __post_init__(self) -> None:
        CountSketch.__post_init__(self)
        if self.windows.bounds[-1] != self.columns:
            raise OptionError(f"windows of {self.windows.bounds[-1]} columns do not fit a sketch of {self.columns}")

    def _check_order(self, keys: NDArray[Any]) -> None:
        if np.any(keys[1:] <= keys[:-1]):
            raise CodecError("the keys of a sketch with windows must increase: sort them first")

    def _parts(
        self, cells: NDArray[np.float32], keys: NDArray[np.uint32]
    ) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        for some, columns in self.windows.split(keys):
            window = cells[:, columns]
            if window.shape[1] <= _LINE_CELLS * (some.stop - some.start):
                # Most of its lines are needed: reading them in order takes less time than many misses at random.
                window.max()
            yield some, window
