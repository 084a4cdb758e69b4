"""What one rank does over whole iterations: compute, codec and network, and which bucket each collective carries."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from s2sim.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.replay.communicator import Launch
    from s2sim.replay.iteration.exchange import Leaving
    from s2sim.replay.iteration.iterations import Iterations
    from s2sim.replay.iteration.where import Spent

Stream: TypeAlias = Literal["compute", "codec", "network"]

STREAMS: tuple[Stream, ...] = ("compute", "codec", "network")
"""From what makes gradients to what carries them."""

_PS_PER_US = 1e6
_CODEC = {"codec": "encode, decode", "host": "host waits for the GPU"}


@dataclass(frozen=True, slots=True)
class StreamSpan:
    """Something that lasts on a stream; ``details`` are shown when it is clicked."""

    stream: Stream
    name: str
    start_us: float
    end_us: float
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a span of compute, whose end makes a bucket ready, to the one of the network that carries it."""

    name: str
    source: StreamSpan
    target: StreamSpan


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of one rank.

    Attributes
    ----------
    rank : int
        Which.
    spans : tuple of StreamSpan
        What it did.
    arrows : tuple of Arrow
        What of that waited for which gradients.
    """

    rank: int
    spans: tuple[StreamSpan, ...]
    arrows: tuple[Arrow, ...]


def streams_of(iterations: Iterations, exchange: Sequence[Leaving], rank: int | None = None) -> Streams:
    """Return what a rank did, the slowest unless another is asked for.

    Parameters
    ----------
    exchange : sequence of Leaving
        The buckets that were exchanged.
    """
    chosen = iterations.spent.rank if rank is None else rank
    spent = iterations.by_rank[chosen]
    busy = [_busy_span(spent, place) for place in range(len(spent.busy))]
    calls = _Calls(exchange)
    carried = [
        (launch, calls.span(launch)) for launch in iterations.launches if not launch.ranks or chosen in launch.ranks
    ]
    made = dict(_made_ready(spent, busy))
    arrows = [
        Arrow(f"bucket {bucket}", made[number, bucket], span)
        for launch, span in carried
        for number, bucket in calls.buckets(launch)
        if (number, bucket) in made and made[number, bucket].end_us <= span.start_us < span.end_us
    ]
    return Streams(chosen, (*busy, *(span for _, span in carried)), tuple(arrows))


def _busy_span(spent: Spent, place: int) -> StreamSpan:
    each = spent.busy[place]
    iteration = bisect_right(spent.begun_ps, each.start_ps) - 1
    on_codec = each.what in _CODEC
    return StreamSpan(
        "codec" if on_codec else "compute",
        _CODEC[each.what] if on_codec else each.what,
        each.start_ps / _PS_PER_US,
        each.end_ps / _PS_PER_US,
        {"iteration": min(iteration, len(spent.begun_ps) - 2)},
    )


def _made_ready(spent: Spent, busy: Sequence[StreamSpan]) -> Iterator[tuple[tuple[int, int], StreamSpan]]:
    """Yield each exchange's number and bucket with the span of backward at whose end all of it was there."""
    ended = {each.end_ps: span for each, span in zip(spent.busy, busy, strict=True) if each.what == "backward"}
    for number, bucket, ready_ps in spent.ready:
        if ready_ps in ended:
            yield (number, bucket), ended[ready_ps]


class _Calls:
    """Which bucket a call of iterations belongs to; calls of one exchange follow those of the one before."""

    def __init__(self, exchange: Sequence[Leaving]) -> None:
        self._exchange = exchange
        self._ends = list(accumulate(len(leaving.recording.calls) for leaving in exchange))

    def _place(self, call: int) -> tuple[int, int, int]:
        """Return the exchange's number, the bucket, and which call of its recording it is."""
        number, within = divmod(call, self._ends[-1])
        bucket = bisect_right(self._ends, within)
        return number, bucket, within - (self._ends[bucket - 1] if bucket else 0)

    def buckets(self, launch: Launch) -> list[tuple[int, int]]:
        """Return the exchanges' numbers and buckets of what a launch carries."""
        return list(dict.fromkeys(self._place(call)[:2] for call, _ in launch.parts))

    def span(self, launch: Launch) -> StreamSpan:
        """Return a launch on the network."""
        demands = [demand for _, step in launch.parts for demand in step.demands]
        size = sum(demand.handed_in_bytes for demand in demands)
        names = []
        for call, step in launch.parts:
            _, bucket, own = self._place(call)
            label = self._exchange[bucket].recording.calls[own].label
            names.append(f"bucket {bucket}: {label or step.what or demands[0].kind}")
        details = {
            "carries": ", ".join(dict.fromkeys(names)),
            "algorithm": launch.timed.schedule.algorithm,
            "bytes a rank": size,
        }
        start_us, end_us = launch.start_ps / _PS_PER_US, launch.end_ps / _PS_PER_US
        return StreamSpan("network", f"{demands[0].kind}, {format_bytes(size)}", start_us, end_us, details)
