"""Timelines in the JSON format that Perfetto and chrome://tracing read.

The format is Google's "Trace Event Format": ``X`` for something that lasts, ``C`` for a counter, ``s`` and ``f`` for
the ends of an arrow, ``M`` for names; times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from s2sim.experiment.timeline import STREAMS, Streams, StreamSpan, Timeline, TimelineSpan

# Things that last at the same time on one track go to lanes of their own: a track shows what nests, and these do not.
_LANES = 1_000_000


def to_perfetto(timelines: Mapping[str, Timeline | Streams], title: str) -> dict[str, Any]:
    """Return the trace as JSON values.

    It has, for each timeline, a track a rank and a track a link direction, or a track a stream of one rank.

    Parameters
    ----------
    timelines : mapping of str to Timeline or Streams
        What ranks did and links carried, or what one rank did over iterations, by what is shown beside the tracks;
        alone it needs no name.
    """
    events: list[dict[str, Any]] = []
    for number, (name, timeline) in enumerate(timelines.items()):
        ranks, links = 2 * number + 1, 2 * number + 2
        if isinstance(timeline, Streams):
            label = f"{name}: rank {timeline.rank}" if name else f"rank {timeline.rank}"
            events.append({"ph": "M", "pid": ranks, "name": "process_name", "args": {"name": label}})
            events += _stream_events(timeline, ranks)
            continue
        for process, what in ((ranks, "ranks"), (links, "links, GB/s")):
            label = f"{name}: {what}" if name else what
            events.append({"ph": "M", "pid": process, "name": "process_name", "args": {"name": label}})
        events += _span_events(timeline.spans, ranks)
        events += (
            {"ph": "C", "pid": links, "name": rate.link, "ts": rate.at_us, "args": {"GB/s": rate.rate_Bps / 1e9}}
            for rate in timeline.rates
        )
    return {"displayTimeUnit": "ns", "otherData": {"title": title}, "traceEvents": events}


def _stream_events(streams: Streams, process: int) -> Iterator[dict[str, Any]]:
    """Yield a track a stream, several where things on it last at the same time; an event a span, two an arrow."""
    track_of: dict[int, int] = {}
    first = 1
    for stream in STREAMS:
        own = sorted(
            (span for span in streams.spans if span.stream == stream), key=lambda span: (span.start_us, -span.end_us)
        )
        lanes = _lanes(own)
        for lane in range(max(lanes, default=0) + 1):
            name = stream if lane == 0 else f"{stream} ({lane + 1})"
            track = first + lane
            yield {"ph": "M", "pid": process, "tid": track, "name": "thread_name", "args": {"name": name}}
            order = {"sort_index": track}
            yield {"ph": "M", "pid": process, "tid": track, "name": "thread_sort_index", "args": order}
        for span, lane in zip(own, lanes, strict=True):
            track_of[id(span)] = first + lane
            yield {
                "ph": "X",
                "pid": process,
                "tid": first + lane,
                "name": span.name,
                "cat": stream,
                "ts": span.start_us,
                "dur": span.end_us - span.start_us,
                "args": span.details,
            }
        first += max(lanes, default=0) + 1
    for number, arrow in enumerate(streams.arrows):
        # An end belongs to what lasts on its track at that time: within the span that makes the bucket ready.
        leaves_us = (arrow.source.start_us + arrow.source.end_us) / 2
        same = {"id": f"{process}.{number}", "pid": process, "name": arrow.name, "cat": "bucket"}
        yield {**same, "ph": "s", "tid": track_of[id(arrow.source)], "ts": leaves_us}
        yield {**same, "ph": "f", "bp": "e", "tid": track_of[id(arrow.target)], "ts": arrow.target.start_us}


def _lanes(spans: Iterable[StreamSpan]) -> list[int]:
    """Return for each of some spans, in the order in which they begin, the first lane that is free."""
    free_us: list[float] = []
    found = []
    for span in spans:
        lane = next((lane for lane, free in enumerate(free_us) if free <= span.start_us), len(free_us))
        free_us[lane:] = [span.end_us, *free_us[lane + 1 :]]
        found.append(lane)
    return found


def _span_events(spans: Sequence[TimelineSpan], process: int) -> Iterator[dict[str, Any]]:
    """Yield an event a span, and the name of each track before the first of it."""
    free_us: dict[int, list[float]] = {}
    for span in sorted(spans, key=lambda span: (span.start_us, span.rank, -span.end_us)):
        lanes = free_us.setdefault(span.rank, [])
        lane = next((lane for lane, free in enumerate(lanes) if free <= span.start_us), len(lanes))
        track = lane * _LANES + span.rank
        if lane == len(lanes):
            lanes.append(span.end_us)
            name = f"rank {span.rank}" if lane == 0 else f"rank {span.rank} ({lane + 1})"
            yield {"ph": "M", "pid": process, "tid": track, "name": "thread_name", "args": {"name": name}}
            order = span.rank * _LANES + lane
            yield {"ph": "M", "pid": process, "tid": track, "name": "thread_sort_index", "args": {"sort_index": order}}
        lanes[lane] = span.end_us
        yield {
            "ph": "X",
            "pid": process,
            "tid": track,
            "name": span.name,
            "cat": span.category,
            "ts": span.start_us,
            "dur": span.end_us - span.start_us,
            "args": span.details,
        }
