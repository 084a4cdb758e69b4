"""Timelines in the JSON format that Perfetto and chrome://tracing read.

The format is Google's "Trace Event Format": ``X`` for something that lasts, ``C`` for a counter, ``M`` for names; times
are microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from s2sim.study.measuring.timeline import Span, Timeline

# Things that last at the same time on one track go to lanes of their own: a track shows what nests, and these do not.
_LANES = 1_000_000


def to_perfetto(timelines: Mapping[str, Timeline], title: str) -> dict[str, Any]:
    """Return the trace as JSON values: for each timeline a track a rank and a track a link direction.

    Parameters
    ----------
    timelines : mapping of str to Timeline
        What ranks did and links carried, by what is shown beside the tracks; alone it needs no name.
    """
    events: list[dict[str, Any]] = []
    for number, (name, timeline) in enumerate(timelines.items()):
        ranks, links = 2 * number + 1, 2 * number + 2
        for process, what in ((ranks, "ranks"), (links, "links, GB/s")):
            label = f"{name}: {what}" if name else what
            events.append({"ph": "M", "pid": process, "name": "process_name", "args": {"name": label}})
        events += _span_events(timeline.spans, ranks)
        events += (
            {"ph": "C", "pid": links, "name": rate.link, "ts": rate.at_us, "args": {"GB/s": rate.rate_Bps / 1e9}}
            for rate in timeline.rates
        )
    return {"displayTimeUnit": "ns", "otherData": {"title": title}, "traceEvents": events}


def _span_events(spans: Sequence[Span], process: int) -> Iterator[dict[str, Any]]:
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
