"""A strict reader of Google's "Trace Event Format", as far as timelines use it."""

from collections import defaultdict
from math import isfinite

KEYS = {
    "M": {"ph", "pid", "name", "args"},
    "X": {"ph", "pid", "tid", "name", "cat", "ts", "dur", "args"},
    "C": {"ph", "pid", "name", "ts", "args"},
    "s": {"ph", "pid", "tid", "name", "cat", "ts", "id"},
    "f": {"ph", "pid", "tid", "name", "cat", "ts", "id", "bp"},
}
NAMES = {"process_name", "thread_name", "thread_sort_index"}
# Of floats in microseconds up to an hour.
WITHIN_US = 1e-6


def check_trace_events(trace):
    """Refuse what a viewer would not show as it is meant; return arrows as pairs of the events they join."""
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert trace["displayTimeUnit"] in {"ns", "ms"}
    tracks, spans, ends = defaultdict(set), defaultdict(list), defaultdict(list)
    for event in trace["traceEvents"]:
        keys = set(event) - ({"tid"} if event["ph"] == "M" else set())
        assert keys == KEYS[event["ph"]], event
        if event["ph"] == "M":
            assert event["name"] in NAMES
            tracks[event["name"]].add((event["pid"], event.get("tid")))
            continue
        assert isfinite(event["ts"])
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event))
        elif event["ph"] in "sf":
            ends[event["id"]].append(event)
    assert set(spans) <= tracks["thread_name"]
    assert {pid for pid, _ in spans} <= {pid for pid, _ in tracks["process_name"]}
    for own in spans.values():
        _check_nesting(own)
    return [_joined(pair, spans) for pair in ends.values()]


def _check_nesting(spans):
    """Refuse spans of one track of which one begins within another and ends after it."""
    around = []
    for start, end, event in sorted(spans, key=lambda span: (span[0], -span[1])):
        while around and around[-1] <= start + WITHIN_US:
            around.pop()
        assert not around or end <= around[-1] + WITHIN_US, f"{event} sticks out"
        around.append(end)


def _joined(pair, spans):
    """Return the spans that an arrow joins; it has two ends with the same names, in this order, each within a span."""
    start, end = pair
    assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
    assert (start["name"], start["cat"]) == (end["name"], end["cat"])
    assert start["ts"] <= end["ts"]
    found = []
    for event in pair:
        own = [span for low, high, span in spans[event["pid"], event["tid"]] if low <= event["ts"] < high]
        assert own, f"{event} is in no span"
        found.append(own[-1])
    return tuple(found)
