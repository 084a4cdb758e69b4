"""Times what all ranks do, from an instant that they share until the last of them is done."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from s2sim.arrays import Floats
from s2sim.errors import S2SimError
from s2sim.pytorch.launch import tcp_infos
from s2sim.testbed.measured import Kind

# Place and form in struct tcp_info of tcpi_notsent_bytes, and of tcpi_bytes_sent and tcpi_bytes_retrans after others.
_NOT_SENT, _COUNTS = 144, struct.Struct("<I52xQQ")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
"""Collectives that are timed, by the names of `s2sim.collectives`."""

# Of these a rank's buffer has a part for each rank.
_IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all")
ITEM_BYTES = 4
_NS_PER_S = 10**9
_MIN_REPEATS = 3
_WARM_UPS = 2
# From the moment when rank 0 says when until then; doubled whenever a rank heard of it too late.
_FIRST_LEAD_NS, _MAX_LEAD_NS = 4_000_000, 2_000_000_000
_PR_SET_TIMERSLACK = 29


def sent_bytes() -> int:
    """Return the payload bytes given to this process's TCP connections, queued ones included, retransmissions not."""
    counts = (_COUNTS.unpack_from(info, _NOT_SENT) for info in tcp_infos())
    return sum(waiting + sent - again for waiting, sent, again in counts)


@dataclass(frozen=True, slots=True)
class MeasurementTask:
    """What one row of a table tells of, see `s2sim.testbed.measured.MeasuredTiming`."""

    what: str
    trace: str
    compute_s: float
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Repetitions:
    """How often something is repeated."""

    repeats: int = 30  # Most repetitions
    budget_s: float = 2.0  # Seconds of repetitions after which there are no more, once there are three


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """What is measured on each testbed, and how thoroughly."""

    # Returns what is to be measured between so many workers, by kind.
    tasks: Callable[[int], Mapping[Kind, Sequence[MeasurementTask]]]
    effort: Repetitions
    seed: int = 0  # Of what reducers draw


def collective_task(what: str, size_bytes: int, ranks: int) -> MeasurementTask:
    """Return a collective of so many bytes of float32, or a few less where a buffer has equal parts.

    >>> collective_task("all_gather", 1024, 3).payload_bytes
    1020
    """
    unit = ITEM_BYTES * (ranks if what in _IN_PARTS else 1)
    return MeasurementTask(what, "", 0.0, max(size_bytes // unit, 1) * unit)


@dataclass(frozen=True, slots=True)
class RepetitionResult:
    """What one rank tells of one repetition: seconds outside of collectives and of spinning, and seconds of spinning.

    ``computed_s`` is CPU time.
    """

    codec_s: float = 0.0
    computed_s: float = 0.0


def time_across_ranks(
    rank: int, prepare: Callable[[], Callable[[], RepetitionResult]], effort: Repetitions
) -> dict[str, float]:
    """Return the duration of an operation of all ranks of the process group, each of which calls this.

    What is returned has the names of fields of `s2sim.testbed.measured.MeasuredTiming`. ``prepare`` sets up a
    repetition, untimed, and returns the operation. Rank 0 announces a start on the machine's shared monotonic clock; a
    repetition ends with the last rank and does not count if one started late.
    """
    # By default the kernel may wake a sleeper 50 us late, to save energy.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    rows: list[Floats] = []
    spent_s, warm_ups, lead_ns = 0.0, 0, _FIRST_LEAD_NS
    while True:
        late, row = _time_once(rank, prepare(), lead_ns)
        if late:
            lead_ns *= 2
            if lead_ns > _MAX_LEAD_NS:
                raise S2SimError("processes cannot begin together, so busy is the machine: measure when it is quiet")
            continue
        last_s = float(row[:, 0].max())
        if warm_ups < _WARM_UPS and (warm_ups == 0 or last_s < effort.budget_s / 2):
            warm_ups += 1
            continue
        rows.append(row)
        spent_s += last_s
        if len(rows) >= effort.repeats or (spent_s >= effort.budget_s and len(rows) >= _MIN_REPEATS):
            return _summarise(np.stack(rows))


def _time_once(rank: int, act: Callable[[], RepetitionResult], lead_ns: int) -> tuple[bool, Floats]:
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


def _summarise(rows: Floats) -> dict[str, float]:
    """Return in short what shape (repetitions, ranks, columns of `_time_once`) tells."""
    times_s = rows[:, :, 0].max(axis=1)
    slowest = rows[:, :, 0].argmax(axis=1)
    codec_s = rows[np.arange(len(rows)), slowest, 1]
    low_s, median_s, high_s = np.percentile(times_s, (10, 50, 90))
    return {
        "repeats": len(rows),
        "median_s": _seconds(median_s),
        "low_s": _seconds(low_s),
        "high_s": _seconds(high_s),
        "codec_s": _seconds(np.median(codec_s)),
        "sent_bytes": int(np.median(rows[:, :, 2].max(axis=1))),
        "cpu_s": _seconds(np.median(rows[:, :, 3].sum(axis=1))),
    }


def _seconds(value: float | np.floating[Any]) -> float:
    return max(round(float(value), 9), 0.0)
