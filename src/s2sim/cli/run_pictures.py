"""``--plot``: which picture of a run is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import OptionError, S2SimError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from s2sim.study.break_even.rate_curve import RateCurves
    from s2sim.study.measuring.result import Result, Row
    from s2sim.study.spec import RunSpec

BARS, SCALING, BREAK_EVEN, ERROR = "bars", "scaling", "break-even", "error"
_PLOTS = (BARS, SCALING, BREAK_EVEN, ERROR)


def check_plot(plot: str | None, target: str | None) -> None:
    """Refuse a picture that there is not, or that goes nowhere."""
    if plot is not None and plot not in _PLOTS:
        raise OptionError(f"--plot {plot} is unknown{nearest(plot, _PLOTS)}")
    if plot is not None and target is None:
        raise OptionError(f"--plot {plot} draws into a file: add --png FILE")


def choose_plot(plot: str | None, spec: RunSpec) -> str:
    """Return which picture is drawn; refuse one that this run cannot have, before anything is computed."""
    if plot == SCALING and len(spec.workers) == 1:
        raise OptionError(f"--plot {SCALING} needs several numbers of workers, for example --workers 8,16,32")
    if plot == BREAK_EVEN and max(spec.workers) == 1:
        raise OptionError(f"--plot {BREAK_EVEN} needs 2 workers or more: no rate limits one alone")
    if plot == BREAK_EVEN and len(spec.reducers) == 1 and spec.reducers[0].partition(":")[0] == "dense":
        raise OptionError(f"--plot {BREAK_EVEN} needs a reducer beside dense, for example --reducer union")
    return plot or (BARS if len(spec.workers) == 1 else SCALING)


def rows_by_workers(result: Result) -> dict[int, list[Row]]:
    """Return the rows of each number of workers that is finished."""
    held = {count: [row for row in result.results if row.workers == count] for count in result.spec.workers}
    return {count: rows for count, rows in held.items() if rows}


def _never_winning(result: Result) -> dict[str, str]:
    """Return why reducers are out of the choice on some number of workers, however fast."""
    from s2sim.report.tables.answer import in_a_word

    judged = [(row.reducer, row.judgement) for row in result.results]
    return {name: in_a_word(of.rejected) for name, of in judged if of is not None and of.rejected is not None}


def figure_of(plot: str, result: Result, curves: Mapping[int, RateCurves]) -> Figure:
    """Return the picture of a run, of every number of workers."""
    from s2sim.report.figures.head import about

    rows, subtitle = rows_by_workers(result), about(result)
    if plot == BREAK_EVEN:
        from s2sim.report.figures.break_even import break_even_figure

        if not curves:
            raise S2SimError("nothing to draw over rates: it was interrupted too early; let it run longer")
        return break_even_figure(curves, subtitle, _never_winning(result))
    if plot == ERROR:
        from s2sim.report.figures.error import error_figure
        from s2sim.study.compare.pareto_front import fronts

        return error_figure(rows, {count: fronts(own) for count, own in rows.items()}, subtitle)
    if plot == SCALING and len(rows) > 1:
        from s2sim.report.figures.scaling import scaling_figure

        return scaling_figure(rows, subtitle, _never_winning(result))
    if all(row.iteration is not None for row in result.results):
        from s2sim.report.figures.iterations import iterations_figure

        return iterations_figure(rows, subtitle)
    from s2sim.report.figures.breakdown import breakdown_figure

    fastest_first = {count: sorted(own, key=lambda row: row.time_s.total) for count, own in rows.items()}
    return breakdown_figure(fastest_first, subtitle)
