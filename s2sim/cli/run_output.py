"""A run as the terminal shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from s2sim.cli import COLLECTIVES, DETAILS, LAYERS, LOWERING, PARETO
from s2sim.cli.output import show_grids, show_lines, show_paragraph, show_paragraphs
from s2sim.libraries.lowering_tables import IDEAL, LIBRARIES
from s2sim.report import run_tables as rows
from s2sim.report.answer import about_lines, break_even_grids, pareto_grids, result_table, verdict_lines
from s2sim.report.format import bottleneck_lines, lowering_lines, note_lines
from s2sim.report.iteration_tables import iteration_grids

if TYPE_CHECKING:
    from s2sim.experiment.rows import Result


def defaults_line(result: Result, given: Sequence[str]) -> str | None:
    """Return the line with the defaults that were used, or None."""
    chosen = {
        "--reducer": f"reducers {', '.join(result.spec.reducers)}",
        "--trace": f"gradients of {result.spec.trace}",
    }
    parts = [text for option, text in chosen.items() if option not in given]
    return f"By default: {'; '.join(parts)}." if parts else None


def show_result(result: Result, defaults: str | None, shown: frozenset[str], *, quiet: bool, saved: str | None) -> None:
    """Print a result; ``shown`` are requested additions, ``saved`` is the file of its JSON."""
    details = DETAILS in shown
    show_paragraphs(verdict_lines(result))
    if quiet:
        return
    grid, below = result_table(result)
    show_grids(pareto_grids(result) if PARETO in shown else [grid])
    show_paragraphs([*below, *about_lines(result, details=details)])
    show_paragraphs(note_lines(result.notes if details else result.caveats))
    if details:
        _show_details(result, defaults)
    _show_more(result, shown)
    if saved is not None:
        show_lines(["", f"Saved to {saved}; again with: s2sim run --spec {saved}"])
    elif not details:
        show_paragraph("More: --show details has phases, bounds, break-even and notes; --help the rest.")


def _show_more(result: Result, shown: frozenset[str]) -> None:
    if COLLECTIVES in shown:
        show_grids(rows.collectives_grids(result))
        show_lines(["", *bottleneck_lines(result)])
    if LOWERING in shown and result.library == IDEAL.name:
        others = ", ".join(name for name in LIBRARIES if name != IDEAL.name)
        show_lines(["", f"Lowering: {IDEAL.name} executes everything as asked; --library {others} would differ."])
    elif LOWERING in shown:
        show_grids(rows.lowering_grids(result))
        show_lines(["", *lowering_lines(result)])
    if LAYERS in shown:
        show_grids(rows.layers_grids(result))


def _show_details(result: Result, defaults: str | None) -> None:
    if defaults:
        show_paragraph(defaults)
    for grids in (iteration_grids, rows.comparison_grids, rows.mechanics_grids, rows.errors_grids, rows.bounds_grids):
        show_grids(grids(result))
    if result.spec.steps > 1:
        show_grids([*rows.residual_grids(result), *rows.steps_grids(result)])
    show_grids(break_even_grids(result))
    show_lines([""])
    show_paragraph(f"In dense, {result.verdict.bottleneck}.")
