"""Screens of collectives and of transfers: lines, tables, and the listing of a schedule."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError
from s2sim.report import format as fmt
from s2sim.report.grid import Grid, Screen, columns_of, filled, tabulate
from s2sim.tables import group_by
from s2sim.uncertainty.interval import format_interval
from s2sim.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from s2sim.simulation.faults.fault import Effect
    from s2sim.traffic.collective_result import CollectiveResult, OtherAlgorithm, TermRow
    from s2sim.traffic.flows import FlowsResult
    from s2sim.traffic.networks import FlowShare, LinkLoad
    from s2sim.validation.compare_log_result import TermScale

_SHOWN_TRANSFERS, _NAMED_FLOWS = 10, 3


def flows_screen(result: FlowsResult) -> Screen:
    """Return the answer, the cross-check of networks if there is one, what waited most, and the busiest links."""
    count, check = len(result.finish_s), result.cross_check
    lines = [result.cluster]
    answer = "no transfer was asked for"
    if count:
        if check is not None:
            largest, median = (f"{share:.2%}" for share in (check.largest_difference, check.median_difference))
            packets = f"{result.network} against {check.other}, packets of {format_bytes(check.packet_bytes)}"
            differ = f"times differ by at most {largest}, median {median}"
            lines.append(f"{packets}: {differ}, after what store and forward adds to each transfer alone")
        last = format_seconds(float(result.finish_s.max()))
        median, worst = (format(float(value), ".3g") for value in (np.median(result.slowdown), result.slowdown.max()))
        sent = format_bytes(float(result.transfers.sizes_bytes.sum()))
        slowdown = f"slowdown against an idle network: median {median}x, worst {worst}x"
        answer = f"{count} transfers of {sent} together: the last is delivered at {last}; {slowdown}"
    transfers = result.transfers
    # Those with the largest slowdown, ties in the order of the file.
    order = np.argsort(-result.slowdown, kind="stable")[:_SHOWN_TRANSFERS]
    asked = transfers.start_ps / 1e12, transfers.src, transfers.dst, transfers.sizes_bytes
    columns = (each[order].tolist() for each in (*asked, result.finish_s, result.slowdown))
    rows = zip((order + 2).tolist(), *columns, strict=True)
    slowest = tabulate(f"the {len(order)} most slowed down", rows, *columns_of("slowed down"))
    grids = filled(slowest, links_grid(result.bottlenecks))
    return Screen([*lines, answer, *fault_lines(result.effects)], grids, [], [answer])


# Limits of listings: ranks with helpers, messages without repetitions, repetitions of a step, spans of a message.
MAX_PLACES, MAX_LINES, SHOWN_TIMES, _SHOWN_SPANS = 32, 1000, 4, 3


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


def check_listing(places: int, lines: int, what: str = "listing") -> None:
    """Raise `OptionError` for a listing, or a picture, that would be too long to read."""
    if places > MAX_PLACES or lines > MAX_LINES:
        raise OptionError(
            f"a {what} of {lines} messages between {places} ranks was asked for: it shows at most {MAX_LINES} "
            f"between {MAX_PLACES}; take fewer workers or chunks"
        )


def place_name(place: int | None, ranks: int) -> str:
    """Return the name of a rank, a helper or a switch."""
    return "switch" if place is None else str(place) if place < ranks else f"helper {place - ranks}"


def schedule_lines(steps: Sequence[ScheduleStepRow], messages: Sequence[MessageRow], *, ranks: int) -> list[str]:
    """Return a schedule's listing, repeated rounds once: ``messages`` of at least the first `SHOWN_TIMES` of a step."""
    of_step = group_by(messages, lambda message: message.step)
    ordered = all(not row.after_sent and row.after == ((step - 1,) if step else ()) for step, row in enumerate(steps))
    lines: list[str] = []
    rounds = 0
    for step, row in enumerate(steps):
        repeated = f"rounds {rounds + 1} to {rounds + row.times} (x{row.times})"
        head = _step_name(step, row) if not ordered else f"round {rounds + 1}" if row.times == 1 else repeated
        lines += [head, *_message_lines(of_step.get(step, []), row.times, ranks)]
        rounds += row.times
    return lines


def _step_name(step: int, row: ScheduleStepRow) -> str:
    def numbers(steps: tuple[int, ...]) -> str:
        return f"step{'s' * (len(steps) > 1)} {', '.join(str(step + 1) for step in steps)}"

    name = f"step {step + 1}" + (f" (x{row.times})" if row.times > 1 else "")
    waits = [f"after {numbers(row.after)}"] if row.after else []
    if row.after_sent:
        waits.append(f"once {numbers(row.after_sent)} {'has' if len(row.after_sent) == 1 else 'have'} left")
    return f"{name}, {' and '.join(waits)}" if waits else name


def _message_lines(messages: Sequence[MessageRow], times: int, ranks: int) -> list[str]:
    """Return a line per pair: its size, the operation on arrival, and the positions carried in each repetition."""
    # A pair may have several messages per round: the first ones of all repetitions share a line, and so on.
    seen: Counter[tuple[int, int | None, int | None]] = Counter()
    by_pair: dict[tuple[int | None, int | None, int], list[MessageRow]] = defaultdict(list)
    for message in messages:
        key = message.time, message.src, message.dst
        by_pair[message.src, message.dst, seen[key]].append(message)
        seen[key] += 1
    rows = []
    for (src, dst, _), each in by_pair.items():
        shown = sorted(each, key=lambda message: message.time)[:SHOWN_TIMES]
        rows.append(
            [
                f"{place_name(src, ranks)} -> {place_name(dst, ranks)}",
                format_bytes(each[0].size_bytes),
                " or ".join(sorted({"add" if message.adds else "replace" for message in shown})),
                *[spans_text(message.spans, most=_SHOWN_SPANS) for message in shown],
                *(["..."] if times > SHOWN_TIMES else []),
            ]
        )
    return fmt.aligned(rows, indent="  ")


def spans_text(spans: Sequence[tuple[int, int]], *, most: int) -> str:
    """Return the positions of a message, up to ``most`` ranges.

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
    """Return a line per term that takes time: its kind, count and duration."""

    def unit_time(term: TermRow) -> str:
        if not term.count:
            return fmt.UNDEFINED
        if term.kind in _OF_BYTES:
            return f"at {format_rate(term.count / term.time_s)}"
        return format_seconds(term.time_s / term.count)

    return tabulate(
        "terms of the time",
        [term for term in terms if term.time_s],
        *columns_of(
            "terms",
            term=term_name,
            count=lambda term: format_bytes(term.count) if term.kind in _OF_BYTES else f"{term.count:.4g}",
            each=unit_time,
            of_all=lambda each_s: fmt.share_text(each_s / time_s),
        ),
    )


def term_name(term: TermRow | TermScale) -> str:
    """Return a term as text."""
    if term.kind == term.of:
        return term.kind
    return f"{term.kind} {term.of}" if term.kind in ("launch", "library") else f"{term.kind}, {term.of}"


def fault_lines(effects: Sequence[Effect]) -> list[str]:
    """Return a line per fault: its option string and its effect."""
    return fmt.aligned([(effect.fault, effect.description) for effect in effects], indent="  fault ")


def links_grid(loads: Sequence[LinkLoad]) -> Grid:
    """Return the busiest links of a collective."""

    def pairs(flows: Sequence[FlowShare]) -> str:
        named = ", ".join(f"{flow.src} to {flow.dst}" for flow in flows[:_NAMED_FLOWS])
        return named or "all, by switches that reduce"

    return tabulate("busiest links (one direction each)", loads, *columns_of("links", pairs=pairs))


def collective_summary(result: CollectiveResult) -> str:
    """Return the answer in one line."""
    answer = f"{_time(result)}, bus bandwidth {fmt.rates_text(result.busbw_Bps)}"
    return f"{_request_text(result)} by {result.algorithm}: {answer}"


def collective_screen(result: CollectiveResult) -> Screen:
    """Return the answer and its explanation, its terms if there are any, and the busiest links."""
    lines = [result.cluster, *collective_lines(result), *fault_lines(result.effects), *fmt.note_lines(result.notes)]
    grids = filled(terms_grid(result.terms, result.time_s), links_grid(result.bottlenecks))
    return Screen(lines, grids, [], [collective_summary(result)])


def collective_lines(result: CollectiveResult) -> list[str]:
    """Return the answer and its explanation, a line per number, and what was simulated beside it."""
    added = "launches, protocols and switches that reduce"
    wire = "" if result.spec.library else f", on the wire alone: --library adds {added}"
    facts = [("time", _time(result) + wire)]
    if result.clocked_s is not None:
        difference = (result.time_s - result.clocked_s) / (result.clocked_s or 1)
        # 0.05 % rounds to a tenth of a per cent.
        takes = f"{difference:+.1%}" if abs(difference) >= 0.0005 else "the same"
        clocked = f"{format_seconds(result.clocked_s)} where all ranks wait for whole rounds"
        facts.append(("in rounds", f"{clocked}: by message it takes {takes}"))
    if (check := result.cross_check) is not None:
        packets = f" with packets of {format_bytes(check.packet_bytes)}" if check.other == "packet" else ""
        fill = "" if check.fill_s is None else f", fill of {format_seconds(check.fill_s)} subtracted"
        differs = f"{check.difference:+.2%} from packets to fluid{fill}"
        facts.append(("cross-check", f"{format_seconds(check.time_s)} by {check.other}{packets}: {differs}"))
    if (groups := result.groups) is not None:
        factor = "no time" if groups.contention is None else fmt.factor_text(groups.contention)
        alone = f"{format_seconds(groups.alone_s)}: all {groups.groups} at once take {factor}"
        facts.append(("one group alone", alone))
    over = fmt.factor_text(result.time_s / result.lower_bound_s) if result.lower_bound_s else "undefined"
    meanwhile = "things happen meanwhile, or " if result.effects else ""
    closed_form = f"none, or none that holds: {meanwhile}messages share links, or ways differ"
    if result.closed_form_s is not None:
        closed_form = f"{format_seconds(result.closed_form_s)}, without simulation"
    facts += [
        ("algbw", f"{fmt.rates_text(result.algbw_Bps)}: size over time"),
        ("busbw", f"{fmt.rates_text(result.busbw_Bps)}: as nccl-tests defines it"),
        ("lower bound", f"{format_seconds(result.lower_bound_s)}: {result.lower_bound_why}"),
        ("time / bound", over),
        ("closed form", closed_form),
        ("algorithm", f"{result.algorithm} ({result.why})"),
    ]
    if result.alternatives:
        close = " or ".join(_other_text(each) for each in result.alternatives)
        facts.append(("may also run", f"{close}: the library's estimates lie within the 15% that they scatter"))
    if result.faster is not None:
        how = f"which auto does not choose (--algorithm {result.faster.algorithm})"
        facts.append(("faster", f"{_other_text(result.faster)}, {how}"))
    facts.append(("sent per rank", format_bytes(result.bytes_per_rank)))
    return [_request_text(result), *fmt.aligned(facts, indent="  ")]


def _other_text(other: OtherAlgorithm) -> str:
    protocol = f" ({other.protocol})" if other.protocol else ""
    return f"{format_seconds(other.time_s)} by {other.algorithm}{protocol}"


def _request_text(result: CollectiveResult) -> str:
    request, groups = f"{result.kind} of {format_bytes(result.size_bytes)} over", result.groups
    if groups is None:
        return f"{request} {fmt.workers_text(result.workers)}"
    return f"{request} {fmt.workers_text(groups.dp)} in each of {groups.groups} groups (tp={groups.tp}, pp={groups.pp})"


def _time(result: CollectiveResult) -> str:
    text = format_seconds(result.time_s) + (" as packets" if result.network == "packet" else "")
    band = result.band
    return text if band is None else f"{text} ({format_interval(band.low_s, result.time_s, band.high_s)})"
