"""A regime map as tables: who wins where, and by how much over dense."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from s2sim.options import split_option_string
from s2sim.report.tables.grid import Column, Grid
from s2sim.report.tables.texts import UNDEFINED, factor_text
from s2sim.units import format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.study.regimes.map import Cell, RegimeMap


def short_names(reducers: Sequence[str]) -> dict[str, str]:
    """Return a name that fits into a table for each option string: with its switches, without its numbers.

    >>> short_names(["union", "s2:error=0.1,warm=true", "topk:density=0.1", "topk:density=0.01"])
    {'union': 'union', 's2:error=0.1,warm=true': 's2 (warm)', 'topk:density=0.1': 'topk:density=0.1', \
'topk:density=0.01': 'topk:density=0.01'}
    """
    short = {text: _short(text) for text in reducers}
    count = Counter(short.values())
    return {text: name if count[name] == 1 else text for text, name in short.items()}


def _short(text: str) -> str:
    name, options = split_option_string(text)
    switches = [key for key, value in options.items() if value == "true"]
    return f"{name} ({', '.join(switches)})" if switches else name


def axis_values(cells: Sequence[Cell]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the densities, overlaps, rates and latencies of a map, each in the order in which they were asked for."""
    densities = list(dict.fromkeys(cell.density for cell in cells))
    overlaps = list(dict.fromkeys(cell.overlap for cell in cells))
    rates = list(dict.fromkeys(cell.rate_Bps for cell in cells))
    latencies = list(dict.fromkeys(cell.latency_s for cell in cells))
    return densities, overlaps, rates, latencies


def regime_grids(result: RegimeMap) -> list[Grid]:
    """Return a table for each latency: a line a density and overlap, a column a rate."""
    densities, overlaps, rates, latencies = axis_values(result.cells)
    names = short_names(result.spec.reducers)
    cells = {(cell.latency_s, cell.density, cell.overlap, cell.rate_Bps): cell for cell in result.cells}
    return [
        Grid(
            f"latency of a NIC {format_seconds(latency)}: the fastest, and its speed-up over dense",
            (Column("density,\noverlap", numeric=False), *(Column(format_rate(rate)) for rate in rates)),
            tuple(
                (
                    f"{density:g}, {overlap:g}",
                    *(cell_text(cells.get((latency, density, overlap, rate)), names) for rate in rates),
                )
                for density in densities
                for overlap in overlaps
            ),
        )
        for latency in latencies
    ]


def cell_text(cell: Cell | None, names: Mapping[str, str]) -> str:
    """Return the winner, what ties with it, and its speed-up."""
    if cell is None:
        return UNDEFINED
    winners = " ~ ".join(names[reducer] for reducer in (cell.winner, *cell.ties))
    return f"{winners} {factor_text(cell.speedup_vs_dense)}"


def names_line(reducers: Sequence[str]) -> str | None:
    """Return what short names stand for, None where they leave nothing out."""
    parts = [f"{name} is {text}" for text, name in short_names(reducers).items() if name != text]
    return f"Short names: {'; '.join(parts)}." if parts else None
