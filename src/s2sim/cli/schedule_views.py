"""A collective's schedule in the forms that people and other programs read: listing, picture, GOAL, timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.running import RanRound
    from s2sim.report.tables.schedule import MessageRow, StepRow
    from s2sim.study.collective.plan import PlannedCollective


def _message_rows(schedule: Schedule, index: int, time: int, ran: RanRound | None = None) -> Iterator[MessageRow]:
    """Yield a row a message of one round, with its times where it ran."""
    import numpy as np

    from s2sim.report.tables.schedule import MessageRow
    from s2sim.units import PS_PER_S

    sent = schedule.steps[index].round
    pieces = schedule.stage.pieces(index, time)
    for message, size_bytes in enumerate(sent.bytes.tolist()):
        own = np.flatnonzero(pieces.message == message)
        spans = tuple(zip(pieces.start[own].tolist(), pieces.stop[own].tolist(), strict=True))
        start_s = None if ran is None else int(ran.sent_ps[message]) / PS_PER_S
        end_s = None if ran is None else int(ran.end_ps[message]) / PS_PER_S
        adds = bool(pieces.adds[own].any())
        ends: list[tuple[int | None, int | None, bool]]
        if sent.pattern.through_switch:
            ends = [(int(rank), None, True) for rank in sent.pattern.src]
            ends += [(None, int(rank), False) for rank in sent.pattern.dst]
        else:
            ends = [(int(sent.pattern.src[message]), int(sent.pattern.dst[message]), adds)]
        for src, dst, added in ends:
            yield MessageRow(index, time, src, dst, spans, size_bytes, added, start_s, end_s)


def listing(schedule: Schedule) -> list[str]:
    """Return who sends what to whom, a line a message."""
    from s2sim.report.tables.schedule import SHOWN_TIMES, StepRow, check_listing, schedule_lines

    check_listing(schedule.places, sum(step.round.pattern.messages for step in schedule.steps))
    steps: list[StepRow] = []
    rows: list[MessageRow] = []
    for index, step in enumerate(schedule.steps):
        steps.append(StepRow(step.times, step.waits(index), step.after_sent))
        for time in range(min(step.times, SHOWN_TIMES)):
            rows += _message_rows(schedule, index, time)
    return schedule_lines(steps, rows, ranks=schedule.demand.ranks)


def draw(planned: PlannedCollective, title: str, target: str) -> None:
    """Write a picture of the messages over simulated time."""
    from s2sim.cli.output import write_bytes
    from s2sim.report.figures.schedule import check_drawing, draw_schedule
    from s2sim.study.collective.timeline import watch_rounds

    schedule = planned.timed.schedule
    check_drawing(schedule.places, sum(step.times * step.round.pattern.messages for step in schedule.steps))
    rows: list[MessageRow] = []
    watch_rounds(planned, lambda ran: rows.extend(_message_rows(schedule, ran.step, ran.time, ran)))
    picture = draw_schedule(
        rows, Path(target).suffix[1:].lower(), ranks=schedule.demand.ranks, helpers=schedule.helpers, title=title
    )
    write_bytes(picture, target)


def write_goal(planned: PlannedCollective, target: str) -> None:
    """Write the schedule as GOAL text."""
    from s2sim.cli.output import write_text
    from s2sim.collectives.schedules.goal import to_goal

    write_text(to_goal(planned.timed.schedule), target)


def write_timeline(planned: PlannedCollective, title: str, target: str) -> None:
    """Write every message and the load of every link over time in Perfetto's format."""
    from s2sim.cli.output import write_json
    from s2sim.report.perfetto import to_perfetto
    from s2sim.study.collective.timeline import timeline_of

    write_json(to_perfetto({"": timeline_of(planned)}, title), target)
