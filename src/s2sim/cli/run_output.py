"""A run as the terminal shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.cli.output import show_grids, show_lines, show_paragraph
from s2sim.collectives.libraries.tables import IDEAL, LIBRARIES
from s2sim.report.tables import rows
from s2sim.report.tables.text import bottleneck_lines, lowering_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.result import Result


def defaults_line(result: Result, given: Sequence[str]) -> str | None:
    """Return which choices nobody made, or None."""
    chosen = {
        "--reducer": f"reducers {', '.join(result.spec.reducers)}",
        "--trace": f"gradients of {result.spec.trace}",
    }
    parts = [text for option, text in chosen.items() if option not in given]
    return f"By default: {'; '.join(parts)}." if parts else None


def machines_line(result: Result) -> str:
    """Return which library and GPU were taken, and who chose them."""
    return f"{result.machines[0].upper()}{result.machines[1:]}."


def show_result(
    result: Result,
    defaults: str | None,
    shown: frozenset[str],
    *,
    quiet: bool,
    per_layer: bool,
    saved: str | None,
) -> None:
    """Print a result; ``shown`` names what more is asked for, ``saved`` where its JSON is."""
    if quiet:
        show_lines([result.verdict.text])
        return
    show_lines([result.headline])
    show_paragraph(machines_line(result))
    if defaults:
        show_paragraph(defaults)
    show_paragraph(result.gradients.sentence())
    show_grids(rows.comparison_grids(result))
    show_grids(rows.mechanics_grids(result))
    show_lines(["", *(f"Note: {note}." for note in result.notes)])
    if "collectives" in shown:
        show_grids(rows.collectives_grids(result))
        show_lines(["", *bottleneck_lines(result)])
    if "lowering" in shown:
        _print_lowering(result)
    if result.spec.steps > 1:
        show_grids(rows.residual_grids(result))
        show_grids(rows.steps_grids(result))
    if per_layer:
        show_grids(rows.layers_grids(result))
    if len(result.spec.workers) > 1:
        show_grids([rows.scaling_grid(result)])
    show_lines([""])
    show_paragraph(result.verdict.text)
    if saved is not None:
        show_lines(["", f"Saved to {saved}; again with: s2sim run --spec {saved}"])


def _print_lowering(result: Result) -> None:
    if result.library == IDEAL.name:
        others = ", ".join(name for name in LIBRARIES if name != IDEAL.name)
        show_lines(["", f"Lowering: {IDEAL.name} executes everything as asked; --library {others} would differ."])
        return
    show_grids(rows.lowering_grids(result))
    show_lines(["", *lowering_lines(result)])
