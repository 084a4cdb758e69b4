"""What ranks and links do over simulated time, for a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import S2SimError
from s2sim.study.measuring.streams import streams_of
from s2sim.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.running import RanRound
    from s2sim.study.measuring.executed import Executed
    from s2sim.study.measuring.streams import Streams
    from s2sim.topology.cluster import Cluster

_PS_PER_US = 1e6
# Some 200 bytes of JSON each; viewers become slow beyond.
_MOST_MESSAGES = 500_000


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasts, on the track of a rank; ``details`` are shown when it is clicked."""

    rank: int
    name: str
    category: str
    start_us: float
    end_us: float
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LinkRate:
    """What one direction of a link carries from a moment on."""

    link: str
    at_us: float
    rate_Bps: float


class Timeline:
    """Collects what happens in a simulation that runs on the network message by message.

    Parameters
    ----------
    cluster : Cluster
        Whose ranks and links there are.

    Attributes
    ----------
    spans : list of Span
        What ranks did.
    rates : list of LinkRate
        What links carried.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.spans: list[Span] = []
        self.rates: list[LinkRate] = []
        self._last_Bps = np.zeros(len(cluster.fabric))

    def add_round(self, ran: RanRound, what: str) -> None:
        """Add a span a message, on the track of the rank that sends it; ``what`` names the collective."""
        pattern = ran.round.pattern
        columns = ran.round.bytes.tolist(), ran.sent_ps.tolist(), ran.end_ps.tolist()
        for message, (size, sent_ps, end_ps) in enumerate(zip(*columns, strict=True)):
            src = pattern.src.tolist() if pattern.through_switch else [int(pattern.src[message])]
            to = "all through the switch" if pattern.through_switch else f"rank {pattern.dst[message]}"
            details = {"collective": what, "step": ran.step, "round": ran.time, "bytes": size}
            for rank in src:
                self.add_work(rank, f"to {to}, {format_bytes(size)}", "message", sent_ps, end_ps, **details)

    def add_work(self, rank: int, name: str, category: str, start_ps: int, end_ps: int, **details: Any) -> None:
        """Add a span on the track of a rank."""
        self.spans.append(Span(rank, name, category, start_ps / _PS_PER_US, end_ps / _PS_PER_US, details))

    def add_loads(self, now_ps: int, loads_Bps: NDArray[np.float64]) -> None:
        """Note which links carry something else from now on."""
        # What rounding leaves between two solutions is no change.
        changed = np.flatnonzero(np.abs(loads_Bps - self._last_Bps) > 1e-9 * self._cluster.fabric.rate_Bps)
        for link in changed.tolist():
            name = self._cluster.fabric.link_names[link]
            self.rates.append(LinkRate(name, now_ps / _PS_PER_US, float(loads_Bps[link])))
        self._last_Bps = loads_Bps


def check_messages(schedules: Iterable[Schedule], what: str) -> None:
    """Refuse schedules with more messages than a viewer shows; ``what`` names them."""
    messages = sum(step.times * step.round.pattern.messages for schedule in schedules for step in schedule.steps)
    if messages > _MOST_MESSAGES:
        raise S2SimError(
            f"a timeline of {what} would hold {messages:,} messages, more than {_MOST_MESSAGES:,}: ask for fewer "
            "workers"
        )


def watch(executed: Executed, rank: int | None = None) -> Timeline | Streams:
    """Return what ranks and links do when a recording is replayed; of whole iterations the streams of one rank.

    Unless another ``rank`` is asked for, that is the slowest.
    """
    if executed.iterations is not None:
        return streams_of(executed.iterations, executed.leaving, rank)
    schedules = [launch.timed.schedule for launch in executed.replay.launches]
    check_messages(schedules, f"{len(schedules)} launches over {executed.recording.workers} ranks")
    timeline = Timeline(executed.timer.cluster)
    executed.watched_by(timeline)
    return timeline
