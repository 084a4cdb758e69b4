"""What ranks and links do over simulated time, for a timeline."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.collective_run import CompletedRound
from s2sim.errors import S2SimError
from s2sim.experiment.execute import ExecutedRecording
from s2sim.simulation.accounting import Iterations
from s2sim.simulation.bucketing.policy import BucketExchange
from s2sim.simulation.bucketing.sharded import PARAMETERS
from s2sim.topology.cluster import Cluster
from s2sim.units import format_bytes

STREAMS = ("compute", "codec", "network")
"""From what makes gradients to what carries them."""

_PS_PER_US = 1e6
_CODEC = {"codec": "encode, decode", "sync": "host waits for the GPU"}
# Some 200 bytes of JSON each; viewers become slow with more.
_MAX_MESSAGES = 500_000


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """Something that lasts, on the track of a rank; ``details`` are shown when it is clicked."""

    rank: int
    name: str
    category: str  # One of `STREAMS` where the track is a stream
    start_us: float
    end_us: float
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a span of compute, whose end makes a bucket ready, to the one of the network that carries it."""

    name: str
    source: TimelineSpan
    target: TimelineSpan


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of one rank."""

    rank: int  # Which
    spans: tuple[TimelineSpan, ...]  # What it did
    arrows: tuple[Arrow, ...]  # What of that waited for which gradients


def streams_of(iterations: Iterations, exchange: Sequence[BucketExchange], rank: int | None = None) -> Streams:
    """Return the activity of a rank, by default the slowest, with the ``exchange`` of its buckets."""
    chosen = iterations.activity.rank if rank is None else rank
    spent = iterations.by_rank[chosen]
    busy = []
    ended: dict[int, TimelineSpan] = {}
    for each in spent.busy:
        category = "codec" if each.what in _CODEC else "compute"
        iteration = min(bisect_right(spent.begun_ps, each.start_ps) - 1, len(spent.begun_ps) - 2)
        start_us, end_us = each.start_ps / _PS_PER_US, each.end_ps / _PS_PER_US
        name = _CODEC.get(each.what, each.what)
        busy.append(TimelineSpan(chosen, name, category, start_us, end_us, {"iteration": iteration}))
        if each.what == "backward":
            ended[each.end_ps] = busy[-1]
    # By number of the exchange and bucket.
    made = {(number, bucket): ended[ready_ps] for number, bucket, ready_ps in spent.ready if ready_ps in ended}
    # Calls of one exchange follow those of the previous one.
    ends = list(accumulate(len(leaving.recording.calls) for leaving in exchange))
    carried: list[TimelineSpan] = []
    arrows = []
    for launch in iterations.launches:
        if launch.ranks and spent.rank not in launch.ranks:
            continue
        demands = [demand for _, step in launch.parts for demand in step.demands]
        kind, size = demands[0].kind, sum(demand.handed_in_bytes for demand in demands)
        buckets, names = [], []
        for call, step in launch.parts:
            number, within = divmod(call, ends[-1])
            bucket = bisect_right(ends, within)
            own = exchange[bucket].recording.calls[within - (ends[bucket - 1] if bucket else 0)]
            buckets.append((number, bucket))
            carried_what = own.label or step.what or kind
            names.append(carried_what if own.label == PARAMETERS else f"bucket {bucket}: {carried_what}")
        carries, algorithm = ", ".join(dict.fromkeys(names)), launch.timed.schedule.algorithm
        details = {"carries": carries, "algorithm": algorithm, "bytes a rank": size}
        start_us, end_us = launch.start_ps / _PS_PER_US, launch.end_ps / _PS_PER_US
        span = TimelineSpan(chosen, f"{kind}, {format_bytes(size)}", "network", start_us, end_us, details)
        carried.append(span)
        arrows += [
            Arrow(f"bucket {bucket}", made[number, bucket], span)
            for number, bucket in dict.fromkeys(buckets)
            if (number, bucket) in made and made[number, bucket].end_us <= start_us < end_us
        ]
    return Streams(chosen, (*busy, *carried), tuple(arrows))


@dataclass(frozen=True, slots=True)
class LinkRate:
    """What one direction of a link carries from a moment on."""

    link: str
    at_us: float
    rate_Bps: float


class Timeline:
    """The spans of ranks and the rates of links of a simulation that runs message by message."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.spans: list[TimelineSpan] = []
        self.rates: list[LinkRate] = []
        self._last_Bps = np.zeros(len(cluster.fabric))

    def add_round(self, ran: CompletedRound, what: str) -> None:
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
        self.spans.append(TimelineSpan(rank, name, category, start_ps / _PS_PER_US, end_ps / _PS_PER_US, details))

    def add_loads(self, now_ps: int, loads_Bps: NDArray[np.float64]) -> None:
        """Note which links carry something else from now on."""
        # What rounding leaves between two solutions is no change.
        changed = np.flatnonzero(np.abs(loads_Bps - self._last_Bps) > 1e-9 * self._cluster.fabric.rate_Bps)
        for link in changed.tolist():
            name = self._cluster.fabric.link_names[link]
            self.rates.append(LinkRate(name, now_ps / _PS_PER_US, float(loads_Bps[link])))
        self._last_Bps = loads_Bps


def check_messages(schedules: Iterable[Schedule], what: str) -> None:
    """Refuse schedules with more messages than a viewer can show; ``what`` names them."""
    messages = sum(step.times * step.round.pattern.messages for schedule in schedules for step in schedule.steps)
    if messages > _MAX_MESSAGES:
        raise S2SimError(
            f"a timeline of {what} would hold {messages:,} messages, more than {_MAX_MESSAGES:,}: ask for fewer workers"
        )


def record_timeline(executed: ExecutedRecording, rank: int | None = None) -> Timeline | Streams:
    """Return the activity of ranks and links in a replay; of iterations that of one rank, by default the slowest."""
    if executed.iterations is not None:
        assert executed.scenario.training is not None
        gathers = executed.rank_work.gathers.in_order(executed.scenario.training.accumulate)
        exchange = (*executed.bucket_exchanges, *(gather.exchange for gather in gathers))
        return streams_of(executed.iterations, exchange, rank)
    schedules = [launch.timed.schedule for launch in executed.replay.launches]
    check_messages(schedules, f"{len(schedules)} launches over {executed.recording.workers} ranks")
    timeline = Timeline(executed.timer.cluster)
    executed.simulate(executed.plan, timeline)
    return timeline
