"""Where the time of an iteration went, as a plain value of a result row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.replay.iteration.parts import Parts


@dataclass(frozen=True, slots=True)
class IterationRow:
    """The median iteration of the slowest rank in seconds; all but hidden communication add up to it.

    Attributes
    ----------
    forward, backward, optimizer : float
        While these run, what slows them down included.
    codec : float
        Encode and decode while no compute runs.
    exposed_communication : float
        While nothing of the GPU runs and a collective of this rank is in flight, or its library prepares one.
    waiting : float
        While nothing of the GPU runs and this rank has posted what other ranks have not.
    hidden_communication : float
        While a collective of this rank is in flight beside compute or codec.
    spread_s : float
        From the 5th to the 95th percentile over iterations; 0 where all take the same.
    iterations : int
        How many ran.
    samples_per_s : float or None
        Samples that all workers together have done with in a second; None where the batch is not known.
    discipline : str
        Option string of what exchanges which gradients when.
    buckets : int
        Groups of tensors that are exchanged each as one.
    streams : {1, 2}
        Whether codec and compute run one after the other, or side by side.
    lower_bound : float
        No iteration is shorter: the longest chain through compute and cuts.
    waiting_mean : float
        Seconds that a rank waits for others, the mean over all ranks and iterations.
    """

    forward: float
    backward: float
    codec: float
    exposed_communication: float
    hidden_communication: float
    waiting: float
    optimizer: float
    spread_s: float
    iterations: int
    samples_per_s: float | None
    discipline: str
    buckets: int
    streams: int
    lower_bound: float
    waiting_mean: float

    @property
    def total_s(self) -> float:
        """All of it, from the beginning of forward until the next may begin."""
        exposed = self.codec + self.exposed_communication + self.waiting
        return self.forward + self.backward + exposed + self.optimizer

    @property
    def hidden_share(self) -> float:
        """Share of communication that runs beside compute or codec; 1 where there is none."""
        communication = self.hidden_communication + self.exposed_communication
        return self.hidden_communication / communication if communication else 1.0


def iteration_row(
    parts: Parts,
    *,
    spread_ps: float,
    iterations: int,
    samples: int | None,
    discipline: str,
    buckets: int,
    streams: int,
    lower_bound_s: float,
    waiting_mean_ps: float,
) -> IterationRow:
    """Return where the time of an iteration went.

    Parameters
    ----------
    parts : Parts
        Of the slowest rank in the median iteration.
    spread_ps : float
        From the 5th to the 95th percentile over iterations.
    iterations : int
        How many ran.
    samples : int or None
        What all workers together compute in one; None where that is not known.
    discipline, buckets, streams, lower_bound_s, waiting_mean_ps
        As in `IterationRow`.
    """
    return IterationRow(
        forward=parts.forward / PS_PER_S,
        backward=parts.backward / PS_PER_S,
        codec=parts.codec / PS_PER_S,
        exposed_communication=parts.exposed_communication / PS_PER_S,
        hidden_communication=parts.hidden_communication / PS_PER_S,
        waiting=parts.waiting / PS_PER_S,
        optimizer=parts.optimizer / PS_PER_S,
        spread_s=spread_ps / PS_PER_S,
        iterations=iterations,
        samples_per_s=samples * PS_PER_S / parts.iteration if samples and parts.iteration else None,
        discipline=discipline,
        buckets=buckets,
        streams=streams,
        lower_bound=lower_bound_s,
        waiting_mean=waiting_mean_ps / PS_PER_S,
    )
