"""MG-WFBP: gradients are merged where waiting for the next one costs less than a start of its own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.options import Time
from s2sim.replay.iteration.disciplines.discipline import Bucket, Discipline

if TYPE_CHECKING:
    from s2sim.replay.iteration.disciplines.discipline import Exchange, ReadyTensors

# The authors measure 63 sizes from 32 KiB to 2 MiB; without noise a few of these do.
_FITTED_BYTES = (2**15, 2**19, 2**20, 2**21)


@dataclass(frozen=True, slots=True)
class MgWfbp(Discipline):
    """Waits for the next gradient where that is shorter than starting once more.

    Where an exchange of M bytes takes a + b M, a bucket that could leave at s takes in the next gradient, ready at r,
    if r - s < a (algorithm 1); it then may leave at r, once the bucket before it has arrived. Here a is the latency of
    the line through the times of a few sizes, unless ``latency`` says what a system believes.

    As far as times are on that line, all arrives no later than with per-tensor or after-backward. The rule is greedy,
    and not always the best merge: it judges each gradient by the one bucket before it. So it goes on waiting as long as
    each next gradient is near, and where a is long, as on many workers, what it merged may leave after backward.

    Attributes
    ----------
    latency : Time or None
        What merging is believed to save. The authors' benchmarks have a table: on 10 GbE 42us, 523us, 908us and 4.04ms
        for 4, 8, 16 and 32 GPUs (github.com/HKBU-HPML/ddl-benchmarks).
    """

    name: ClassVar[str] = "mg-wfbp"
    summary: ClassVar[str] = "merges gradients where waiting for the next costs less than a start of its own"
    source: ClassVar[str] = "Shi, Chu and Li, INFOCOM 2019; TPDS 2021"
    example: ClassVar[str] = "mg-wfbp:latency=908us"

    latency: Time | None = None

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets of the merge rule."""
        count = len(tensors.bytes)
        if not count:
            return ()
        start_ps, per_byte_ps = fit_line(exchange_ps)
        if self.latency is not None:
            start_ps = float(self.latency.ps)
        sizes_bytes, ready_ps = tensors.bytes.tolist(), tensors.ready_ps.tolist()
        cuts = [0]
        before_ps, leaves_ps, held_bytes = 0.0, float(ready_ps[0]), sizes_bytes[0]
        for place in range(1, count):
            if ready_ps[place] - leaves_ps >= start_ps:
                before_ps = leaves_ps + start_ps + per_byte_ps * held_bytes
                held_bytes = 0
                cuts.append(place)
            held_bytes += sizes_bytes[place]
            leaves_ps = max(before_ps, float(ready_ps[place]))
        return tuple(Bucket(tuple(range(first, behind))) for first, behind in pairwise((*cuts, count)))


def fit_line(exchange_ps: Exchange) -> tuple[float, float]:
    """Return the latency in picoseconds, and picoseconds a byte, of the line through the times of a few sizes.

    >>> fit_line(lambda size: 5_000_000 + 800 * size)
    (5000000.0, 800.0)
    """
    sizes = np.array(_FITTED_BYTES, float)
    times = np.array([exchange_ps(size) for size in _FITTED_BYTES], float)
    off = sizes - sizes.mean()
    per_byte_ps = float(off @ (times - times.mean()) / (off @ off))
    return max(round(float(times.mean() - per_byte_ps * sizes.mean()), 3), 0.0), max(round(per_byte_ps, 6), 0.0)
