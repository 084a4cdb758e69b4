"""Times what all ranks do, from an instant that they share until the last of them is done."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import S2SimError
from s2sim.testbed.measuring.sent_bytes import sent_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.arrays import Floats
    from s2sim.testbed.measuring.task import Effort

_NS_PER_S = 10**9
_LEAST_REPEATS = 3
_WARM_UPS = 2
# From the moment when rank 0 says when until then; doubled whenever a rank heard of it too late.
_FIRST_LEAD_NS, _LONGEST_LEAD_NS = 4_000_000, 2_000_000_000
_PR_SET_TIMERSLACK = 29


@dataclass(frozen=True, slots=True)
class Done:
    """What one rank tells of one repetition: seconds outside of collectives and of spinning, and seconds of spinning.

    ``computed_s`` is CPU time.
    """

    codec_s: float = 0.0
    computed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Repetitions of one thing in short, with the fields of `s2sim.testbed.measured.Timed`."""

    repeats: int
    median_s: float
    low_s: float
    high_s: float
    codec_s: float
    sent_bytes: int
    cpu_s: float


def timed_together(rank: int, prepare: Callable[[], Callable[[], Done]], effort: Effort) -> Summary:
    """Return how long something takes between all ranks of the process group, each of which calls this.

    ``prepare`` makes ready for a repetition, which is not timed, and returns what is. Processes of one machine share
    one monotonic clock, so that rank 0 names an instant a little ahead, until which all sleep (spinning, they would
    take processors from those that have not yet heard); the time of a repetition is from that instant until the last
    rank is done. A repetition that a rank began late, because it heard of the instant after it, does not count.

    Raises
    ------
    S2SimError
        If ranks never hear of an instant in time.
    """
    # By default the kernel may wake a sleeper 50 us late, to save energy.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    rows: list[Floats] = []
    spent_s, warm_ups, lead_ns = 0.0, 0, _FIRST_LEAD_NS
    while True:
        late, row = _once(rank, prepare(), lead_ns)
        # All ranks know the same, and decide the same.
        if late:
            lead_ns *= 2
            if lead_ns > _LONGEST_LEAD_NS:
                raise S2SimError("processes cannot begin together, so busy is the machine: measure when it is quiet")
            continue
        last_s = float(row[:, 0].max())
        if warm_ups < _WARM_UPS and (warm_ups == 0 or last_s < effort.budget_s / 2):
            warm_ups += 1
            continue
        rows.append(row)
        spent_s += last_s
        if len(rows) >= effort.repeats or (spent_s >= effort.budget_s and len(rows) >= _LEAST_REPEATS):
            return _summary(np.stack(rows))


def _once(rank: int, act: Callable[[], Done], lead_ns: int) -> tuple[bool, Floats]:
    """Return whether a rank was late, and for each rank its time, codec time, bytes sent and CPU time."""
    import torch
    import torch.distributed as dist

    instant = torch.tensor([time.monotonic_ns() + lead_ns if rank == 0 else 0])
    dist.broadcast(instant, 0)
    begin_ns = int(instant)
    sent, cpu_s = sent_bytes(), time.process_time()
    early_ns = begin_ns - time.monotonic_ns()
    if early_ns > 0:
        time.sleep(early_ns / _NS_PER_S)
    done = act()
    end_ns = time.monotonic_ns()
    cpu_s = time.process_time() - cpu_s - done.computed_s
    here = [(end_ns - begin_ns) / _NS_PER_S, done.codec_s, sent_bytes() - sent, cpu_s, early_ns <= 0]
    everywhere = torch.empty(dist.get_world_size() * len(here), dtype=torch.float64)
    dist.all_gather_into_tensor(everywhere, torch.tensor(here, dtype=torch.float64))
    row = everywhere.numpy().reshape(-1, len(here))
    return bool(row[:, -1].any()), row


def _summary(rows: Floats) -> Summary:
    """Return in short what shape (repetitions, ranks, columns of `_once`) tells."""
    times_s = rows[:, :, 0].max(axis=1)
    slowest = rows[:, :, 0].argmax(axis=1)
    codec_s = rows[np.arange(len(rows)), slowest, 1]
    low_s, median_s, high_s = np.percentile(times_s, (10, 50, 90))
    return Summary(
        repeats=len(rows),
        median_s=_seconds(median_s),
        low_s=_seconds(low_s),
        high_s=_seconds(high_s),
        codec_s=_seconds(np.median(codec_s)),
        sent_bytes=int(np.median(rows[:, :, 2].max(axis=1))),
        cpu_s=_seconds(np.median(rows[:, :, 3].sum(axis=1))),
    )


def _seconds(value: float | np.floating[Any]) -> float:
    """Return a time to the nanosecond, which is what clocks tell."""
    return max(round(float(value), 9), 0.0)
