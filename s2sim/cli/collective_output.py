"""Output of ``s2sim collective``: result, schedule and timeline."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from s2sim.cli.output import STDOUT, show_grids, show_lines, watching, write_bytes, write_json, write_result, write_text
from s2sim.collectives.schedules.check import to_goal
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.collective_run import CompletedRound
from s2sim.report import traffic_tables
from s2sim.report.grid import filled
from s2sim.traffic import collective_run
from s2sim.traffic.spec import CollectiveSpec
from s2sim.units import PS_PER_S


def show_collective(
    spec: CollectiveSpec,
    *,
    show: bool,
    terms: bool,
    png: str | None,
    goal: str | None,
    timeline: str | None,
    json: str | None,
    quiet: bool,
) -> None:
    """Run one collective, and print or write it in all requested forms."""
    planned = collective_run.plan_collective(spec)
    listed = _listing(planned.timed.schedule) if show else []
    made_of = collective_run.planned_terms(planned) if terms else ()
    with watching(quiet=quiet) as progress:
        result = replace(collective_run.collective_result(planned, progress), terms=made_of)
    summary = traffic_tables.collective_summary(result)
    if png is not None:
        _draw(planned, summary, png)
    if goal is not None:
        write_text(to_goal(planned.timed.schedule), goal)
    if timeline is not None:
        from s2sim.report.perfetto import to_perfetto

        write_json(to_perfetto({"": collective_run.collective_timeline(planned)}, summary), timeline)
    if not write_result(result, json) or goal == STDOUT:
        return
    if quiet:
        show_lines([summary, *listed])
        show_grids(filled(traffic_tables.terms_grid(result.terms, result.time_s)))
        return
    screen = traffic_tables.collective_screen(result)
    show_lines(screen.before)
    if listed:
        show_lines(["", *listed])
    show_grids(screen.grids)


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


def _listing(schedule: Schedule) -> list[str]:
    traffic_tables.check_listing(schedule.places, sum(step.round.pattern.messages for step in schedule.steps))
    steps: list[traffic_tables.ScheduleStepRow] = []
    rows: list[traffic_tables.MessageRow] = []
    for index, step in enumerate(schedule.steps):
        steps.append(traffic_tables.ScheduleStepRow(step.times, step.waits(index), step.after_sent))
        for time in range(min(step.times, traffic_tables.SHOWN_TIMES)):
            rows += _message_rows(schedule, index, time)
    return traffic_tables.schedule_lines(steps, rows, ranks=schedule.demand.ranks)


def _draw(planned: collective_run.PlannedCollective, title: str, target: str) -> None:
    schedule = planned.timed.schedule
    messages = sum(step.times * step.round.pattern.messages for step in schedule.steps)
    traffic_tables.check_listing(schedule.places, messages, "picture")
    from s2sim.report.figures.charts import draw_schedule

    rows: list[traffic_tables.MessageRow] = []
    collective_run.watch_rounds(planned, lambda ran: rows.extend(_message_rows(schedule, ran.step, ran.time, ran)))
    form, ranks = Path(target).suffix[1:].lower(), schedule.demand.ranks
    picture = draw_schedule(rows, form, ranks=ranks, helpers=schedule.helpers, title=title)
    write_bytes(picture, target)
