"""A regime map as tables: who wins where, and by how much over dense."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap

from s2sim.claims.paper import Claim, PapersResult, Rebuilt, Table
from s2sim.experiment.rows import Row
from s2sim.options import split_option_string
from s2sim.regimes.map import Cell, RegimeMap
from s2sim.report.format import UNDEFINED, error_text, factor_text, rounds_text, seconds_text, workers_with_mark
from s2sim.report.grid import Column, Grid, number_column, tabulate, text_column
from s2sim.units import format_bytes, format_rate, format_seconds


def compare_grid(rows: Sequence[Row], by_bytes: frozenset[str], by_time: frozenset[str]) -> Grid:
    """Return the table of one number of workers, with a star where nothing else has less error for as little."""
    alone, library = rows[0].workers == 1, rows[0].real_library
    # Stars stand where the time is that of the library asked for.
    ideal = all(row.time_s.total == row.total_ideal_s for row in rows)
    by_ideal, by_real = (by_time, frozenset[str]()) if ideal else (frozenset[str](), by_time)
    return tabulate(
        f"{workers_with_mark(rows[0])}; *: none has a smaller error for as little; errors over L2 norms",
        rows,
        text_column("reducer", lambda row: row.reducer),
        number_column("relative\nL2 error", lambda row: error_text(row.error.relative_l2)),
        number_column("error of\ncom-\npressed", lambda row: error_text(row.error_compressed.relative_l2)),
        number_column("its\nlargest\nelement", lambda row: error_text(row.error_compressed_largest)),
        number_column(
            "bound on\nmost\nelements", lambda row: error_text(row.error_bound.element if row.error_bound else None)
        ),
        number_column(
            "payload\na rank" if alone else "sent\na rank",
            lambda row: _starred(
                format_bytes(row.payload_bytes_per_rank if alone else row.bytes_sent_per_rank), row, by_bytes
            ),
        ),
        number_column("total,\nideal", lambda row: _starred(seconds_text(row.total_ideal_s), row, by_ideal)),
        number_column(f"total,\n{library}", lambda row: _starred(seconds_text(row.total_real_s), row, by_real)),
        number_column("speed-\nup", lambda row: factor_text(row.speedup_vs_dense)),
        number_column("rounds", rounds_text),
        number_column("host\nsyncs", lambda row: str(row.host_syncs)),
    )


def _starred(text: str, row: Row, best: frozenset[str]) -> str:
    return f"* {text}" if row.reducer in best else text


# Characters of a claim, what was published, what came out, and the judgement.
_WIDTHS = (30, 12, 18, 14)


def paper_head(paper: Rebuilt) -> list[str]:
    """Return what a paper is."""
    return [f"{paper.name}: {paper.title}", paper.source]


def claims_grid(paper: Rebuilt) -> Grid:
    """Return claim, published figure, ours and judgement; what was not reproduced stands out."""
    rows: list[tuple[str, ...]] = []
    strong: set[int] = set()
    for number, claim in enumerate(paper.claims, 1):
        cells = (f"{number}. {claim.text}", claim.published, claim.ours, claim.judgement)
        # Long texts go on in rows of their own, so that a table fits a terminal.
        lines = list(zip_longest(*map(_folded, cells, _WIDTHS), fillvalue=""))
        if claim.judgement == "not reproduced":
            strong |= set(range(len(rows), len(rows) + len(lines)))
        rows += lines
    columns = tuple(Column(title, numeric=False) for title in ("claim", "published", "ours", "judgement"))
    return Grid(f"Claims of {paper.name}", columns, tuple(rows), strong=frozenset(strong))


def _folded(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def why_lines(paper: Rebuilt) -> list[str]:
    """Return for every claim where it stands, by which rule it was judged, and why it came out so."""
    return [f"{number}. {_why_text(claim)}" for number, claim in enumerate(paper.claims, 1)]


def _why_text(claim: Claim) -> str:
    head = f"{claim.judgement[0].upper()}{claim.judgement[1:]}"
    return f"{head}: {claim.why} ({claim.source}; {claim.rule})"


def setup_lines(paper: Rebuilt) -> list[tuple[str, str]]:
    """Return what was computed and what was assumed, as (label, text)."""
    return [
        *(("set-up" if number == 0 else "", text) for number, text in enumerate(paper.setup)),
        *(("assumed" if number == 0 else "", text) for number, text in enumerate(paper.assumed)),
    ]


def numbers_grid(table: Table) -> Grid:
    """Return a table of the numbers behind claims; columns of figures stand at the right."""
    columns = tuple(
        Column(title, numeric=place > 0 and _figures([row[place] for row in table.rows]))
        for place, title in enumerate(table.columns)
    )
    return Grid(table.title, columns, table.rows)


def _figures(cells: Sequence[str]) -> bool:
    return all(not cell or cell[0].isdigit() or cell[0] in "-+<>" for cell in cells)


def papers_lines(result: PapersResult) -> list[str]:
    """Return how many claims were judged how, and what there is to know."""
    return [result.headline, *(f"Note: {note}." for note in result.notes)]


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
