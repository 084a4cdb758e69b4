"""What processes of all ranks do on a testbed: one task after another, each timed from an instant that they share."""

import ctypes
import os
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s2sim.arrays import Floats
from s2sim.errors import S2SimError
from s2sim.pytorch.launch import tcp_infos

# Place and form in struct tcp_info of tcpi_notsent_bytes, and of tcpi_bytes_sent and tcpi_bytes_retrans after others.
_NOT_SENT, _COUNTS = 144, struct.Struct("<I52xQQ")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
"""Collectives that are timed, by the names of `s2sim.collectives`."""

# Of these a rank's buffer has a part for each rank.
_IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all")
ITEM_BYTES = 4
_NS_PER_S = 10**9
MIN_REPEATS, _WARM_UPS = 3, 2
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


def collective_task(what: str, size_bytes: int, ranks: int) -> MeasurementTask:
    """Return a collective of so many bytes of float32, or a few less where a buffer has equal parts.

    >>> collective_task("all_gather", 1024, 3).payload_bytes
    1020
    """
    unit = ITEM_BYTES * (ranks if what in _IN_PARTS else 1)
    return MeasurementTask(what, "", 0.0, max(size_bytes // unit, 1) * unit)


@dataclass(frozen=True, slots=True)
class RepetitionResult:
    """One rank's repetition: seconds outside of collectives and spinning, and CPU seconds of spinning."""

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
        if len(rows) >= effort.repeats or (spent_s >= effort.budget_s and len(rows) >= MIN_REPEATS):
            break
    times = np.stack(rows)  # (repetitions, ranks, columns of `_time_once`)
    slowest = times[:, :, 0].argmax(axis=1)
    codec_s = np.median(times[np.arange(len(rows)), slowest, 1])
    cpu_s, sent = np.median(times[:, :, 3].sum(axis=1)), np.median(times[:, :, 2].max(axis=1))
    return summarise(times[:, :, 0].max(axis=1), float(codec_s), float(cpu_s), float(sent))


def summarise(times_s: Floats, codec_s: float, cpu_s: float, sent: float) -> dict[str, float]:
    """Return fields of `s2sim.testbed.measured.MeasuredTiming` of the repetitions of a row, float64 of shape (n,)."""
    low_s, median_s, high_s = np.percentile(times_s, (10, 50, 90)).tolist()
    seconds = {"median_s": median_s, "low_s": low_s, "high_s": high_s, "codec_s": codec_s, "cpu_s": cpu_s}
    rounded = {name: max(round(each, 9), 0.0) for name, each in seconds.items()}
    return {"repeats": len(times_s), "sent_bytes": int(sent), **rounded}


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


def run_tasks(rank: int, ranks: int, arguments: Mapping[str, Any], tell: Callable[[Any], None]) -> None:
    """Run all tasks (fields of `MeasurementTask`) reported by rank 0 with ``effort`` (`Repetitions`), seed and spin."""
    # With a usual priority others would keep a processor for milliseconds longer than a small message.
    for thread in Path("/proc/self/task").iterdir():
        # Only root may, who is needed for a network but not for processes on one machine.
        with suppress(PermissionError):
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
    effort = Repetitions(**arguments["effort"])
    for number, fields in enumerate(arguments["tasks"]):
        task = MeasurementTask(**fields)
        if task.what in COLLECTIVES:
            prepare = _collective(task, ranks)
        else:
            prepare = _reduction(task, rank, ranks, spin=arguments["spin"], seed=arguments["seed"])
        summary = time_across_ranks(rank, prepare, effort)
        if rank == 0:
            tell({"number": number, "summary": summary})


def _collective(task: MeasurementTask, ranks: int) -> Callable[[], Callable[[], RepetitionResult]]:
    """Return what prepares a collective on float32 zeros, whose sums stay zeros however often they are taken."""
    import torch
    import torch.distributed as dist

    elements = task.payload_bytes // ITEM_BYTES
    whole, other = torch.zeros(elements), torch.zeros(elements)
    part = torch.zeros(elements // ranks)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
    }

    def act() -> RepetitionResult:
        calls[task.what]()
        return RepetitionResult()

    return lambda: act


def _reduction(
    task: MeasurementTask, rank: int, ranks: int, *, spin: bool, seed: int
) -> Callable[[], Callable[[], RepetitionResult]]:
    """Return what prepares a step of a reducer on this rank's gradient, after it has computed for a while."""
    from s2sim.gradients.synthetic import load_trace
    from s2sim.pytorch.rank import learn_here, reduce_here
    from s2sim.reducers.registry import make_reducer

    trace = load_trace(task.trace, workers=ranks, seed=seed)
    gradients = [trace.gradient(0, each) for each in range(ranks)]
    reducer, gradient = make_reducer(task.what).fitted(gradients, seed), gradients[rank]

    def prepare() -> Callable[[], RepetitionResult]:
        fresh = reducer.fresh()
        if reducer.traits.warm:
            learn_here(fresh, gradient, seed=seed)

        def act() -> RepetitionResult:
            computed_s = _compute(task.compute_s, spin=spin)
            here = reduce_here(fresh, gradient, seed=seed)
            return RepetitionResult(here.total_s - here.waited_s, computed_s)

        return act

    return prepare


def _compute(seconds: float, *, spin: bool) -> float:
    """Let so much time pass, computing or asleep, and return the CPU seconds that it took."""
    if not seconds:
        return 0.0
    cpu_s, until_s = time.process_time(), time.monotonic() + seconds
    if spin:
        matrix = np.ones((96, 96), np.float32)
        product = np.empty_like(matrix)
        while time.monotonic() < until_s:
            np.matmul(matrix, matrix, out=product)
    else:
        time.sleep(seconds)
    return time.process_time() - cpu_s
