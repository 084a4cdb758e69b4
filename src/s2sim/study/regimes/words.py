"""A regime map in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.units import format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s2sim.study.regimes.map import Cell, Contender, Wins

# The reducers that this project asks about.
_ASKED_ABOUT = ("s2", "s2-exact")


def summarise(
    cells: Sequence[Cell], max_error: float, wins: Mapping[str, Wins], estimates: Mapping[str, tuple[str, str]]
) -> str:
    """Return who wins how many cells, where S2 does, and what is faster but too far from the exact mean.

    ``estimates`` are the ends of what constants may be that are only estimated, over which wins range.
    """
    ties = sum(bool(cell.ties) for cell in cells)
    idle = sum(not cell.compress for cell in cells)
    most_first = sorted(wins.items(), key=lambda item: -item[1].cells)
    won = ", ".join(f"{reducer} {each.cells}" for reducer, each in most_first if each.cells)
    sentences = [f"Of {_cells(len(cells))}, fastest with an error of at most {max_error:g}: {won}."]
    if estimates and cells:
        ranges = ", ".join(f"{reducer} {each.least} to {each.most}" for reducer, each in most_first)
        constants = ", ".join(f"{name.replace('_', ' ')} {low} to {high}" for name, (low, high) in estimates.items())
        sentences.append(f"Over what estimated constants may be ({constants}): {ranges}.")
    if ties:
        sentences.append(f"{_cells(ties)} {'are ties' if ties > 1 else 'is a tie'} within 1 %.")
    sentences.append(
        f"Do not compress in {_cells(idle)}: there nothing gains 1 % over dense."
        if idle
        else "Some reducer always pays."
    )
    reducers = dict.fromkeys(each.reducer for cell in cells for each in cell.reducers)
    sentences += [_where(reducer, cells) for reducer in reducers if reducer.partition(":")[0] in _ASKED_ABOUT]
    sentences += [text for reducer in reducers if (text := _rejected(reducer, cells))]
    return " ".join(sentences)


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def place_text(cell: Cell) -> str:
    """Return where a cell lies."""
    return (
        f"density {cell.density:g}, overlap {cell.overlap:g}, {format_rate(cell.rate_Bps)}, "
        f"{format_seconds(cell.latency_s)}"
    )


def _spans(cells: Sequence[Cell]) -> str:
    """Return between which coordinates cells lie."""

    def span(values: set[float], write: Callable[[float], str]) -> str:
        low, high = min(values), max(values)
        return write(low) if low == high else f"{write(low)} to {write(high)}"

    return (
        f"density {span({cell.density for cell in cells}, '{:g}'.format)}, "
        f"overlap {span({cell.overlap for cell in cells}, '{:g}'.format)}, "
        f"{span({cell.rate_Bps for cell in cells}, format_rate)}, "
        f"{span({cell.latency_s for cell in cells}, format_seconds)}"
    )


def _find(reducer: str, cell: Cell) -> Contender | None:
    return next((each for each in cell.reducers if each.reducer == reducer), None)


def _where(reducer: str, cells: Sequence[Cell]) -> str:
    """Return where a reducer wins, or how close it comes."""
    won = [cell for cell in cells if cell.winner == reducer]
    if won:
        lead = max(cell.margin or 0.0 for cell in won)
        return f"{reducer} wins {_cells(len(won))}, where the next takes up to {lead:.0%} longer ({_spans(won)})."
    found = [(cell.slower(each), cell) for cell in cells if (each := _find(reducer, cell)) and each.acceptable]
    if not found:
        errors = [each.error_relative_l2 for cell in cells if (each := _find(reducer, cell))]
        known = [error for error in errors if error is not None]
        why = f"its error is at least {min(known):.3g}" if known else "it refuses these gradients"
        return f"{reducer} wins nowhere: {why} in every cell."
    factor, cell = min(found, key=lambda item: item[0])
    return f"{reducer} wins nowhere: at best it takes {factor:.3g} times as long as {cell.winner} ({place_text(cell)})."


def _rejected(reducer: str, cells: Sequence[Cell]) -> str:
    """Return where a reducer would win but for its error, nothing where it would not."""
    tempting = [
        each
        for cell in cells
        if (each := _find(reducer, cell)) and not each.acceptable and each.total_ps < cell.fastest.total_ps
    ]
    if not tempting:
        return ""
    errors = [each.error_relative_l2 for each in tempting if each.error_relative_l2 is not None]
    low, high = (f"{error:.3g}" for error in (min(errors, default=0.0), max(errors, default=0.0)))
    error = "undefined" if not errors else low if low == high else f"{low} to {high}"
    return f"{reducer} is faster in {_cells(len(tempting))}, but too far from the exact mean (error {error})."
