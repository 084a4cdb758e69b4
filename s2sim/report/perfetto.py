"""Timelines for Perfetto, in Google's "Trace Event Format": X lasts, C counts, s and f: arrow, M names; in us."""

from collections.abc import Iterator, Mapping
from typing import Any

from s2sim.experiment.timeline import STREAMS, Streams, Timeline, TimelineSpan

# Spans that overlap without nesting are on separate tracks of a rank.
_LANES = 1_000_000


def to_perfetto(timelines: Mapping[str, Timeline | Streams], title: str) -> dict[str, Any]:
    """Return the trace as JSON: a track per rank and link direction, or stream; ``timelines`` by name of tracks."""
    events: list[dict[str, Any]] = []
    for number, (name, timeline) in enumerate(timelines.items()):
        ranks, links = 2 * number + 1, 2 * number + 2
        many = {ranks: "ranks", links: "links, GB/s"}
        labels = {ranks: f"rank {timeline.rank}"} if isinstance(timeline, Streams) else many
        for process, label in labels.items():
            shown = {"name": f"{name}: {label}" if name else label}
            events.append({"ph": "M", "pid": process, "name": "process_name", "args": shown})
        if isinstance(timeline, Streams):
            events += _stream_events(timeline, ranks)
            continue
        free_us: dict[int, list[float]] = {}
        for span in sorted(timeline.spans, key=lambda span: (span.start_us, span.rank, -span.end_us)):
            lanes = free_us.setdefault(span.rank, [])
            known = len(lanes)
            lane = _take_lane(lanes, span)
            track = lane * _LANES + span.rank
            if lane == known:
                label = f"rank {span.rank}" if lane == 0 else f"rank {span.rank} ({lane + 1})"
                events += _track(ranks, track, label, span.rank * _LANES + lane)
            events.append(_span(ranks, track, span))
        events += (
            {"ph": "C", "pid": links, "name": rate.link, "ts": rate.at_us, "args": {"GB/s": rate.rate_Bps / 1e9}}
            for rate in timeline.rates
        )
    return {"displayTimeUnit": "ns", "otherData": {"title": title}, "traceEvents": events}


def _track(process: int, track: int, name: str, order: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "tid": track, "name": "thread_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "tid": track, "name": "thread_sort_index", "args": {"sort_index": order}}


def _span(process: int, track: int, span: TimelineSpan) -> dict[str, Any]:
    named = {"ph": "X", "pid": process, "tid": track, "name": span.name, "cat": span.category}
    return {**named, "ts": span.start_us, "dur": span.end_us - span.start_us, "args": span.details}


def _stream_events(streams: Streams, process: int) -> Iterator[dict[str, Any]]:
    """Yield the tracks of each stream with their spans, and arrows; spans that overlap have separate tracks."""
    track_of: dict[int, int] = {}
    first = 1
    for stream in STREAMS:
        spans = sorted(
            (span for span in streams.spans if span.category == stream), key=lambda span: (span.start_us, -span.end_us)
        )
        free_us: list[float] = []
        lanes = [_take_lane(free_us, span) for span in spans]
        for lane in range(max(lanes, default=0) + 1):
            yield from _track(process, first + lane, stream if lane == 0 else f"{stream} ({lane + 1})", first + lane)
        for span, lane in zip(spans, lanes, strict=True):
            track_of[id(span)] = first + lane
            yield _span(process, first + lane, span)
        first += max(lanes, default=0) + 1
    for number, arrow in enumerate(streams.arrows):
        # The ends of arrows have to be within spans: that which makes the bucket ready, and the collective.
        leaves_us = (arrow.source.start_us + arrow.source.end_us) / 2
        same = {"id": f"{process}.{number}", "pid": process, "name": arrow.name, "cat": "bucket"}
        yield {**same, "ph": "s", "tid": track_of[id(arrow.source)], "ts": leaves_us}
        yield {**same, "ph": "f", "bp": "e", "tid": track_of[id(arrow.target)], "ts": arrow.target.start_us}


def _take_lane(free_us: list[float], span: TimelineSpan) -> int:
    """Return the first free lane for the next span; ``free_us`` are the times from which lanes are free."""
    lane = next((lane for lane, free in enumerate(free_us) if free <= span.start_us), len(free_us))
    free_us[lane : lane + 1] = [span.end_us]
    return lane
