"""The time breakdown of an iteration: every picosecond of a rank belongs to one part."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats, Ints, Mask, as_intervals, is_covered
from s2sim.simulation.communicator import CompletedCalls, Launch
from s2sim.simulation.device import BusyInterval
from s2sim.simulation.faults.fault import Effect

LEAST_PERIODS = 3
"""With as many, the last is left out where only its end waits for all collectives in flight."""


@dataclass(frozen=True, slots=True, eq=False)
class IterationSettings:
    """The settings of a replay of iterations."""

    slower: Floats  # Factors of the duration of compute, of shape (iterations, ranks)
    optimizer: float | None = None  # That of the optimizer's if measured times are of forward and backward alone
    waits_for_all: bool = True  # Whether the next forward waits for all gradients, or a layer only for its own
    streams: int = 1  # Of each GPU: 1 if codec work runs between kernels of compute, 2 if concurrently
    accumulate: int = 1  # Mini-batches before gradients are exchanged
    idle_ps: int = 0  # Wait of ranks in each iteration for stages of a pipeline, before the last mini-batch
    processor_s_per_byte: float = 0.0  # Of a rank's compute that a collective beside it takes
    one_at_a_time: bool = False  # Whether a bucket's program begins when that of the bucket before has ended


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """Training iterations in simulated time."""

    parts: "tuple[IterationParts, ...]"  # Of the slowest rank, per period of the exchange; means over its steps
    least_waiting: "tuple[IterationParts, ...]"  # Of the rank that waits least in each, of those that take as long
    activity: "RankActivity"  # Of the slowest rank
    by_rank: "tuple[RankActivity, ...]"  # Of each rank; equal ranks share one
    waiting_ps: float  # Mean over all ranks and iterations of waiting for others
    launches: tuple[Launch, ...]
    completed: tuple[CompletedCalls, ...]
    effects: tuple[Effect, ...] = ()  # Of transient faults

    @property
    def typical(self) -> "IterationParts":
        """The iteration of median length, without the first of several, of the rank that waits least in it."""
        steady = range(1, len(self.parts)) or range(1)
        median = sorted(steady, key=lambda at: self.parts[at].iteration)[(len(steady) - 1) // 2]
        return self.least_waiting[median]

    @property
    def spread_ps(self) -> tuple[float, float]:
        """The 5 and 95 % quantiles of iterations, without the first if there are several."""
        steady = [parts.iteration for parts in self.parts[1:] or self.parts]
        low, high = np.quantile(steady, [0.05, 0.95])
        return float(low), float(high)


@dataclass(frozen=True, slots=True)
class IterationParts:
    """One iteration of one rank in integer picoseconds; all but hidden communication add up to it."""

    forward: int
    backward: int
    codec: int  # Encode and decode while no compute runs
    exposed_communication: int  # The GPU is idle; a collective of this rank is in flight or prepared by its library
    waiting: int  # The GPU is idle; this rank has posted a call that other ranks have not
    optimizer: int
    hidden_communication: int  # A collective of this rank is in flight during compute or codec
    host: int = 0  # Where a job was recorded: its host, and ranks that waited for each other

    @property
    def iteration(self) -> int:
        """The total, from the beginning of forward until the next may begin."""
        exposed = self.codec + self.exposed_communication + self.waiting
        return self.forward + self.backward + exposed + self.optimizer + self.host


@dataclass(frozen=True, slots=True)
class RankActivity:
    """The activity of one rank; times in picoseconds."""

    busy: tuple[BusyInterval, ...]  # Of its GPU, and the waits of its host that blocked it
    in_flight: tuple[tuple[int, int], ...]  # From the last rank's post of a call until this rank is done with it
    waiting: tuple[tuple[int, int], ...]  # From this rank's post of a call until the last one's, or until it is done
    ready: tuple[tuple[int, int, int], ...]  # Number of an exchange, a bucket, and the time of its last gradient
    begun_ps: tuple[int, ...]  # Begin of each iteration, and the end of the last
    rank: int  # Its number, or that of the first equal rank


def time_breakdown(spent: RankActivity, bounds_ps: Sequence[int], steps: int = 1) -> list[IterationParts]:
    """Return mean parts of the intervals between increasing times, over ``steps`` steps each.

    Compute counts first, then codec work, then communication (in flight, or a host wait for the GPU), then waiting for
    ranks that have not posted; the rest is preparation.
    """
    intervals = {
        what: as_intervals([(each.start_ps, each.end_ps) for each in spent.busy if each.what == what])
        for what in _KINDS
    }
    flying, waiting = as_intervals(spent.in_flight), as_intervals(spent.waiting)
    edges = [np.asarray(bounds_ps, np.int64), *(each.reshape(-1) for each in (*intervals.values(), flying, waiting))]
    points = np.unique(np.clip(np.concatenate(edges), bounds_ps[0], bounds_ps[-1]))
    lengths, left = np.diff(points), np.ones(len(points) - 1, np.bool_)
    first = np.searchsorted(points, bounds_ps[:-1])

    def summed(chosen: Mask) -> Ints:
        total = np.concatenate([[0], np.cumsum(np.where(chosen, lengths, 0))])
        return np.diff(total[[*first, len(lengths)]]) // steps

    def take(covered: Mask) -> Ints:
        nonlocal left
        taken, left = left & covered, left & ~covered
        return summed(taken)

    parts = {what: take(is_covered(intervals[what], points)) for what in _KINDS[:5]}
    in_flight = is_covered(flying, points)
    hidden = summed(in_flight & ~left)
    exposed = take(in_flight | is_covered(intervals["sync"], points))
    waited = take(is_covered(waiting, points))
    exposed = exposed + summed(left)
    before = (parts[what] for what in ("forward", "backward", "codec"))
    columns = (*before, exposed, waited, parts["optimizer"], hidden, parts["host"])
    return [IterationParts(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


_KINDS = ("forward", "backward", "optimizer", "host", "codec", "sync")
