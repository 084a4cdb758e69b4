"""Output of ``s2sim collective``: result, schedule and timeline, tables of sizes and of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from s2sim.cli.output import (
    STDOUT,
    printable,
    show_grids,
    show_line,
    show_lines,
    show_result,
    watching,
    write_bytes,
    write_json,
    write_result,
    write_tables,
    write_text,
)
from s2sim.collectives.schedules.goal import to_goal
from s2sim.experiment.cluster_spec import parse_workers
from s2sim.report import format as text
from s2sim.report.screens import collective_screen, log_comparison_screen
from s2sim.report.traffic_tables import (
    SHOWN_TIMES,
    MessageRow,
    ScheduleStepRow,
    check_listing,
    schedule_lines,
    terms_grid,
)
from s2sim.traffic.collective_run import (
    PlannedCollective,
    collective_result,
    collective_timeline,
    plan_collective,
    planned_terms,
    watch_rounds,
)
from s2sim.traffic.nccl_tests import read_nccl_tests
from s2sim.traffic.size_sweep import simulated_table, size_table, time_sizes
from s2sim.units import PS_PER_S
from s2sim.validation.compare_log import ChosenTables, choose_tables, compare_log

if TYPE_CHECKING:
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.collective_run import CompletedRound
    from s2sim.traffic.spec import CollectiveSpec


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
    planned = plan_collective(spec)
    listed = _listing(planned.timed.schedule) if show else []
    made_of = planned_terms(planned) if terms else ()
    with watching(quiet=quiet) as progress:
        result = replace(collective_result(planned, progress), terms=made_of)
    summary = text.collective_summary(result)
    if png is not None:
        _draw(planned, summary, png)
    if goal is not None:
        write_text(to_goal(planned.timed.schedule), goal)
    if timeline is not None:
        from s2sim.report.perfetto import to_perfetto

        write_json(to_perfetto({"": collective_timeline(planned)}, summary), timeline)
    if not write_result(result, json) or goal == STDOUT:
        return
    if quiet:
        show_lines([summary, *listed])
        show_grids([terms_grid(result.terms, result.time_s)] if result.terms else [])
        return
    screen = collective_screen(result)
    show_lines(screen.before)
    if listed:
        show_lines(["", *listed])
    show_grids(screen.grids)


def show_table(spec: CollectiveSpec, sizes: Sequence[int], factor: int, *, quiet: bool) -> None:
    """Print simulated times in the format of nccl-tests."""
    with watching(quiet=quiet) as progress:
        swept = time_sizes(spec, sizes, progress)
    if write_tables(lambda: size_table(spec, swept)):
        # What reads tables of nccl-tests needs their lines whole.
        write_text("".join(f"{printable(line)}\n" for line in simulated_table(spec, swept, factor)), STDOUT)


def tables_of_log(path: str, kind: str | None, workers: str | None) -> ChosenTables:
    """Return the tables of a log to compare, of the requested kind and number of workers."""
    ranks = None if workers is None else parse_workers(workers)
    return choose_tables(read_nccl_tests(Path(path)), path, kind and kind.replace("-", "_"), ranks)


def show_against(spec: CollectiveSpec, chosen: ChosenTables, json: str | None, *, quiet: bool) -> None:
    """Print or write simulated times compared with those of a log."""
    with watching(quiet=quiet) as progress:
        result = compare_log(spec, chosen, progress)
    show_result(
        result, json, log_comparison_screen, lambda result: log_comparison_screen(result).before, show_line, quiet=quiet
    )


def _message_rows(schedule: Schedule, index: int, time: int, ran: CompletedRound | None = None) -> Iterator[MessageRow]:
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
            yield MessageRow(index, time, src, dst, spans, size_bytes, added, start_s, end_s)


def _listing(schedule: Schedule) -> list[str]:
    check_listing(schedule.places, sum(step.round.pattern.messages for step in schedule.steps))
    steps: list[ScheduleStepRow] = []
    rows: list[MessageRow] = []
    for index, step in enumerate(schedule.steps):
        steps.append(ScheduleStepRow(step.times, step.waits(index), step.after_sent))
        for time in range(min(step.times, SHOWN_TIMES)):
            rows += _message_rows(schedule, index, time)
    return schedule_lines(steps, rows, ranks=schedule.demand.ranks)


def _draw(planned: PlannedCollective, title: str, target: str) -> None:
    from s2sim.report.figures.schedule import check_drawing, draw_schedule

    schedule = planned.timed.schedule
    check_drawing(schedule.places, sum(step.times * step.round.pattern.messages for step in schedule.steps))
    rows: list[MessageRow] = []
    watch_rounds(planned, lambda ran: rows.extend(_message_rows(schedule, ran.step, ran.time, ran)))
    picture = draw_schedule(
        rows, Path(target).suffix[1:].lower(), ranks=schedule.demand.ranks, helpers=schedule.helpers, title=title
    )
    write_bytes(picture, target)
