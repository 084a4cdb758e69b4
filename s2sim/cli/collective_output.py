"""Listing and picture of the messages of ``s2sim collective``."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from s2sim.cli.output import write_bytes, write_json, write_text
from s2sim.collectives.schedules.check import to_goal
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.collective_run import CompletedRound
from s2sim.report import traffic_tables
from s2sim.traffic import collective_run
from s2sim.units import PS_PER_S


def _message_rows(
    schedule: Schedule, index: int, time: int, ran: CompletedRound | None = None
) -> Iterator[traffic_tables.MessageRow]:
    """Yield a row per message of one round, with its times if it was executed."""
    sent = schedule.steps[index].round
    pieces = schedule.stage.pieces(index, time)
    for message, size_bytes in enumerate(sent.bytes.tolist()):
        carried = np.flatnonzero(pieces.message == message)
        spans = tuple(zip(pieces.start[carried].tolist(), pieces.stop[carried].tolist(), strict=True))
        start_s = None if ran is None else int(ran.sent_ps[message]) / PS_PER_S
        end_s = None if ran is None else int(ran.end_ps[message]) / PS_PER_S
        adds = bool(pieces.adds[carried].any())
        ends: list[tuple[int | None, int | None, bool]]
        if sent.pattern.through_switch:
            ends = [(int(rank), None, True) for rank in sent.pattern.src]
            ends += [(None, int(rank), False) for rank in sent.pattern.dst]
        else:
            ends = [(int(sent.pattern.src[message]), int(sent.pattern.dst[message]), adds)]
        for src, dst, added in ends:
            yield traffic_tables.MessageRow(index, time, src, dst, spans, size_bytes, added, start_s, end_s)


def listing(schedule: Schedule) -> list[str]:
    """Return the lines of a schedule's steps and messages."""
    traffic_tables.check_listing(schedule.places, sum(step.round.pattern.messages for step in schedule.steps))
    steps: list[traffic_tables.ScheduleStepRow] = []
    rows: list[traffic_tables.MessageRow] = []
    for index, step in enumerate(schedule.steps):
        steps.append(traffic_tables.ScheduleStepRow(step.times, step.waits(index), step.after_sent))
        for time in range(min(step.times, traffic_tables.SHOWN_TIMES)):
            rows += _message_rows(schedule, index, time)
    return traffic_tables.schedule_lines(steps, rows, ranks=schedule.demand.ranks)


def write_messages(
    planned: collective_run.PlannedCollective, title: str, *, png: str | None, goal: str | None, timeline: str | None
) -> None:
    """Write a collective's messages to the files that are named: over time as a picture, and as programs read them."""
    schedule = planned.timed.schedule
    if png is not None:
        messages = sum(step.times * step.round.pattern.messages for step in schedule.steps)
        traffic_tables.check_listing(schedule.places, messages, "picture")
        from s2sim.report.figures.charts import draw_schedule

        rows: list[traffic_tables.MessageRow] = []
        collective_run.watch_rounds(planned, lambda ran: rows.extend(_message_rows(schedule, ran.step, ran.time, ran)))
        form, ranks = Path(png).suffix[1:].lower(), schedule.demand.ranks
        write_bytes(draw_schedule(rows, form, ranks=ranks, helpers=schedule.helpers, title=title), png)
    if goal is not None:
        write_text(to_goal(schedule), goal)
    if timeline is not None:
        from s2sim.report.perfetto import to_perfetto

        write_json(to_perfetto({"": collective_run.collective_timeline(planned)}, title), timeline)
