"""Who sends what to whom, line by line, for schedules that a reader can follow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from s2sim.errors import OptionError
from s2sim.report.format import UNDEFINED, aligned, share_text
from s2sim.report.grid import Grid, number_column, tabulate, text_column
from s2sim.traffic.collective_result import TermRow
from s2sim.traffic.flows import FlowsResult
from s2sim.units import format_bytes, format_rate, format_seconds
from s2sim.validation.compare_log_result import TermScale

_SHOWN_TRANSFERS = 10


def flows_lines(result: FlowsResult) -> list[str]:
    """Return the cluster, how far apart the networks are if that was asked, and the transfers in one line."""
    count = len(result.finish_s)
    if not count:
        return [result.cluster, "no transfer was asked for"]
    last = format_seconds(float(result.finish_s.max()))
    median, worst = (format(float(value), ".3g") for value in (np.median(result.slowdown), result.slowdown.max()))
    sent = format_bytes(float(result.transfers.sizes_bytes.sum()))
    slowdown = f"slowdown against an idle network: median {median}x, worst {worst}x"
    lines = [f"{count} transfers of {sent} together: the last is delivered at {last}; {slowdown}"]
    return [result.cluster, *_cross_check_lines(result), *lines]


def _cross_check_lines(result: FlowsResult) -> list[str]:
    check = result.cross_check
    if check is None:
        return []
    largest, median = (f"{share:.2%}" for share in (check.largest_difference, check.median_difference))
    packets = f"{result.network} against {check.other}, packets of {format_bytes(check.packet_bytes)}"
    differ = f"times differ by at most {largest}, median {median}"
    return [f"{packets}: {differ}, after what store and forward adds to each transfer alone"]


def flows_grid(result: FlowsResult) -> Grid:
    """Return the transfers that were slowed down most, in the order of the file where they tie."""
    asked = result.transfers
    order = np.argsort(-result.slowdown, kind="stable")[:_SHOWN_TRANSFERS]
    return tabulate(
        f"the {len(order)} most slowed down",
        order.tolist(),
        number_column("line", lambda index: str(index + 2)),
        number_column("start", lambda index: format_seconds(float(asked.start_ps[index]) / 1e12)),
        number_column("from", lambda index: str(asked.src[index])),
        number_column("to", lambda index: str(asked.dst[index])),
        number_column("size", lambda index: format_bytes(float(asked.sizes_bytes[index]))),
        number_column("finish", lambda index: format_seconds(float(result.finish_s[index]))),
        number_column("slowdown", lambda index: f"{result.slowdown[index]:.3g}x"),
    )


MAX_PLACES = 32
"""Ranks and helpers of a schedule that is listed or drawn."""

MAX_LINES = 1000
"""Messages that are listed, a repeated one once."""

SHOWN_TIMES = 4
"""Repetitions of a step of which a listing says what they carry."""

_SHOWN_SPANS = 3


@dataclass(frozen=True, slots=True)
class ScheduleStepRow:
    """One step: a round, once or several times in a row."""

    times: int
    after: tuple[int, ...] = ()  # Steps that must have been delivered before, counted from 0
    after_sent: tuple[int, ...] = ()  # Steps whose last byte must have left before


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message of one round."""

    # step, time: which step, and which of its repetitions, counted from 0
    step: int
    time: int
    # src, dst: ranks, or helpers numbered after them; None for a switch that sums and multicasts
    src: int | None
    dst: int | None
    spans: tuple[tuple[int, int], ...]  # Positions [start, stop) of the buffer that it carries
    size_bytes: float  # What it counts on the network
    adds: bool  # Whether the destination adds what comes to what it has, or replaces it
    # start_s, end_s: seconds from the start of the schedule at which its round starts and it has been delivered, where
    # known
    start_s: float | None = None
    end_s: float | None = None


def check_listing(places: int, lines: int) -> None:
    """Refuse a listing that nobody could read, before it is made."""
    if places > MAX_PLACES or lines > MAX_LINES:
        raise OptionError(
            f"a listing of {lines} messages between {places} ranks was asked for: it shows at most {MAX_LINES} "
            f"between {MAX_PLACES}; take fewer workers or chunks"
        )


def place_name(place: int | None, ranks: int) -> str:
    """Return what a rank, a helper or a switch is called."""
    if place is None:
        return "switch"
    return str(place) if place < ranks else f"helper {place - ranks}"


def schedule_lines(steps: Sequence[ScheduleStepRow], messages: Sequence[MessageRow], *, ranks: int) -> list[str]:
    """Return the listing of a schedule: each round with its messages, and what repeats once.

    Parameters
    ----------
    messages : sequence of MessageRow
        Of every step at least those of the first `SHOWN_TIMES` repetitions.
    """
    of_step: dict[int, list[MessageRow]] = defaultdict(list)
    for message in messages:
        of_step[message.step].append(message)
    ordered = all(not row.after_sent and row.after == ((step - 1,) if step else ()) for step, row in enumerate(steps))
    lines: list[str] = []
    rounds = 0
    for step, row in enumerate(steps):
        head = _round_name(rounds, row.times) if ordered else _step_name(step, row)
        lines.append(head + _moment(of_step[step], row.times))
        lines += _message_lines(of_step[step], row.times, ranks)
        rounds += row.times
    return lines


def _round_name(first: int, times: int) -> str:
    return f"round {first + 1}" if times == 1 else f"rounds {first + 1} to {first + times} (x{times})"


def _step_name(step: int, row: ScheduleStepRow) -> str:
    name = f"step {step + 1}" + (f" (x{row.times})" if row.times > 1 else "")
    waits = [f"after {_numbers(row.after)}"] if row.after else []
    waits += [f"once {_numbers(row.after_sent)} {'has' if len(row.after_sent) == 1 else 'have'} left"] * bool(
        row.after_sent
    )
    return f"{name}, {' and '.join(waits)}" if waits else name


def _numbers(steps: tuple[int, ...]) -> str:
    return f"step{'s' * (len(steps) > 1)} {', '.join(str(step + 1) for step in steps)}"


def _moment(messages: Sequence[MessageRow], times: int) -> str:
    """Return when a step starts, and how long its first time takes."""
    first = [message for message in messages if message.time == 0]
    starts = [message.start_s for message in first if message.start_s is not None]
    ends = [message.end_s for message in first if message.end_s is not None]
    if not first or len(starts) < len(first) or len(ends) < len(first):
        return ""
    start_s, end_s = min(starts), max(ends)
    return f": at {format_seconds(start_s)}, for {format_seconds(end_s - start_s)}{' each time' if times > 1 else ''}"


def _message_lines(messages: Sequence[MessageRow], times: int, ranks: int) -> list[str]:
    """Return a line a pair: its size, what happens on arrival, and what it carries each time."""
    # A pair may have several messages a round: the first of each time belong together, the second, and so on.
    seen: Counter[tuple[int, int | None, int | None]] = Counter()
    by_pair: dict[tuple[int | None, int | None, int], list[MessageRow]] = defaultdict(list)
    for message in messages:
        key = message.time, message.src, message.dst
        by_pair[message.src, message.dst, seen[key]].append(message)
        seen[key] += 1
    rows = []
    for (src, dst, _), each in by_pair.items():
        shown = sorted(each, key=lambda message: message.time)[:SHOWN_TIMES]
        carried = [spans_text(message.spans, most=_SHOWN_SPANS) for message in shown]
        rows.append(
            [
                f"{place_name(src, ranks)} -> {place_name(dst, ranks)}",
                format_bytes(each[0].size_bytes),
                " or ".join(sorted({"add" if message.adds else "replace" for message in shown})),
                *carried,
                *(["..."] if times > SHOWN_TIMES else []),
            ]
        )
    return aligned(rows, indent="  ")


def spans_text(spans: Sequence[tuple[int, int]], *, most: int) -> str:
    """Return the positions of a message, ``most`` stretches at most.

    >>> spans_text(((0, 10), (10, 20), (40, 50)), most=1)
    '[0:20) +1'
    """
    merged: list[tuple[int, int]] = []
    for start, stop in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = merged[-1][0], stop
        else:
            merged.append((start, stop))
    shown = " ".join(f"[{start}:{stop})" for start, stop in merged[:most])
    return f"{shown} +{len(merged) - most}" if len(merged) > most else shown


_OF_BYTES = ("bytes", "limit")


def terms_grid(terms: Sequence[TermRow], time_s: float) -> Grid:
    """Return a line a term that takes time: how much of it, of what, and how long each takes."""
    return tabulate(
        "terms of the time",
        [term for term in terms if term.time_s],
        text_column("of", term_name),
        number_column("count", _count),
        number_column("each", _time_per_unit),
        number_column("time", lambda term: format_seconds(term.time_s)),
        number_column("share", lambda term: share_text(term.time_s / time_s)),
    )


def term_name(term: TermRow | TermScale) -> str:
    """Return what a term is in words."""
    if term.kind == term.of:
        return term.kind
    return f"{term.kind} {term.of}" if term.kind in ("launch", "library") else f"{term.kind}, {term.of}"


def _count(term: TermRow) -> str:
    return format_bytes(term.count) if term.kind in _OF_BYTES else f"{term.count:.4g}"


def _time_per_unit(term: TermRow) -> str:
    if not term.count:
        return UNDEFINED
    if term.kind in _OF_BYTES:
        return f"at {format_rate(term.count / term.time_s)}"
    return format_seconds(term.time_s / term.count)
