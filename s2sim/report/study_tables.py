"""Screens of several topologies, advice, rebuilt papers, regime maps and training; reducers as a table or a page."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import inf
from textwrap import wrap

from s2sim.advice.advise import Advice
from s2sim.claims.paper import PapersResult, Rebuilt, Table
from s2sim.experiment.reducer_facts import OptionDoc, ReducerFacts
from s2sim.experiment.topologies import TopologiesResult
from s2sim.files import own_tables
from s2sim.options import split_option_string
from s2sim.regimes.map import Cell, RegimeMap
from s2sim.report import format as fmt
from s2sim.report import grid as grids
from s2sim.report.answer import alternative_lines, price_lines, verdict_lines
from s2sim.report.run_tables import time_scope_text
from s2sim.training.curve import Interval
from s2sim.training.result import TrainResult
from s2sim.units import format_money, format_number_of, format_rate, format_seconds

_TEXTS = own_tables(__file__, "texts.toml")
LEGEND: str = _TEXTS["legends"]["reducers"]
# Characters of the columns of claims.
_WIDTHS = (30, 12, 18, 14)
_SAMPLES = "samples\n/s"


def paper_head(paper: Rebuilt) -> list[str]:
    """Return the name, title and source of a paper."""
    return [f"{paper.name}: {paper.title}", paper.source]


def claims_grid(paper: Rebuilt) -> grids.Grid:
    """Return claims with published and simulated values and judgements; those not reproduced stand out."""
    grid = grids.tabulate(
        f"Claims of {paper.name}",
        enumerate(paper.claims, 1),
        *grids.columns_of("claims"),
        strong=lambda item: item[1].judgement == "not reproduced",
    )
    # Long texts continue in further rows, so that the table fits a terminal.
    return grids.continue_cells(
        grid, lambda column, cell: wrap(cell, _WIDTHS[column], break_long_words=False, break_on_hyphens=False)
    )


def why_lines(paper: Rebuilt) -> list[str]:
    """Return for each claim its judgement, the reason, its source and the rule of judgement."""
    return [
        f"{number}. {claim.judgement[0].upper()}{claim.judgement[1:]}: {claim.why} ({claim.source}; {claim.rule})"
        for number, claim in enumerate(paper.claims, 1)
    ]


def setup_lines(paper: Rebuilt) -> list[tuple[str, str]]:
    """Return set-up and assumptions as (label, text)."""
    return [
        ("" if number else label, text)
        for label, texts in (("set-up", paper.setup), ("assumed", paper.assumed))
        for number, text in enumerate(texts)
    ]


def numbers_grid(table: Table) -> grids.Grid:
    """Return a table of the numbers behind claims; columns of numbers are aligned at the right."""

    def numeric(column: int) -> bool:
        cells = [row[column] for row in table.rows]
        return column > 0 and all(not cell or cell[0].isdigit() or cell[0] in "-+<>" for cell in cells)

    columns = tuple(grids.Column(title, numeric=numeric(column)) for column, title in enumerate(table.columns))
    return grids.Grid(table.title, columns, table.rows)


def papers_lines(result: PapersResult) -> list[str]:
    """Return the number of claims by judgement, and notes."""
    return [result.headline, *fmt.note_lines(result.notes)]


def short_names(reducers: Sequence[str]) -> dict[str, str]:
    """Return a short name per option string, with its switches and without its numbers, unless it is ambiguous.

    >>> short_names(["union", "s2:error=0.1,warm=true", "topk:density=0.1", "topk:density=0.01"])
    {'union': 'union', 's2:error=0.1,warm=true': 's2 (warm)', 'topk:density=0.1': 'topk:density=0.1', \
'topk:density=0.01': 'topk:density=0.01'}
    """
    short = {}
    for text in reducers:
        name, options = split_option_string(text)
        switches = [key for key, value in options.items() if value == "true"]
        short[text] = f"{name} ({', '.join(switches)})" if switches else name
    count = Counter(short.values())
    return {text: name if count[name] == 1 else text for text, name in short.items()}


def axis_values(cells: Sequence[Cell]) -> list[list[float]]:
    """Return the densities, overlaps, rates and latencies of a map, in the requested order."""
    names = ("density", "overlap", "rate_Bps", "latency_s")
    return [list(dict.fromkeys(getattr(cell, name) for cell in cells)) for name in names]


def regime_grids(result: RegimeMap) -> list[grids.Grid]:
    """Return a table per latency: a row per density and overlap, a column per rate."""
    densities, overlaps, rates, latencies = axis_values(result.cells)
    names = short_names(result.spec.reducers)
    cells = {(cell.latency_s, cell.density, cell.overlap, cell.rate_Bps): cell for cell in result.cells}

    def of_rate(latency: float, rate: float) -> grids.TableColumn[tuple[float, float]]:
        return grids.number_column(
            format_rate(rate), lambda point: cell_text(cells.get((latency, *point, rate)), names)
        )

    return [
        grids.tabulate(
            f"latency of a NIC {format_seconds(latency)}: the fastest, and its speed-up over dense",
            list(product(densities, overlaps)),
            grids.text_column("density,\noverlap", lambda point: f"{point[0]:g}, {point[1]:g}"),
            *(of_rate(latency, rate) for rate in rates),
        )
        for latency in latencies
    ]


def cell_text(cell: Cell | None, names: Mapping[str, str]) -> str:
    """Return the winner, the reducers that tie with it, and its speed-up."""
    if cell is None:
        return fmt.UNDEFINED
    winners = " ~ ".join(names[reducer] for reducer in (cell.winner, *cell.ties))
    return f"{winners} {fmt.factor_text(cell.speedup_vs_dense)}"


def names_line(reducers: Sequence[str]) -> str | None:
    """Return the long forms of short names; None if no name is shortened."""
    parts = [f"{name} is {text}" for text, name in short_names(reducers).items() if name != text]
    return f"Short names: {'; '.join(parts)}." if parts else None


def regimes_screen(result: RegimeMap) -> grids.Screen:
    """Return the winners by rate, latency, density and overlap."""
    after = ["", *filter(None, [names_line(result.spec.reducers)]), *fmt.note_lines(result.notes), "", result.summary]
    return grids.Screen([result.cluster], regime_grids(result), after, [result.summary])


def papers_screen(result: PapersResult) -> grids.Screen:
    """Return the claims of papers with judgements and reasons."""
    why = [line for paper in result.papers for line in ("", *paper_head(paper), *why_lines(paper))]
    lines = papers_lines(result)
    return grids.Screen(lines, [claims_grid(paper) for paper in result.papers], why, lines)


def topologies_screen(result: TopologiesResult) -> grids.Screen:
    """Return which topology is fastest and cheapest, a row for each, and what to do on it."""
    from s2sim.experiment.topologies import cost_unit, topology_name

    rows, compared = result.topologies, result.results[0].results
    several = len({row.workers for row in rows}) > 1
    scope = time_scope_text(compared)
    cost_title = f"cost of {cost_unit(compared[0])}".replace(" of ", "\nof ").replace(" s", "\ns")
    known = {_SAMPLES: any(row.samples_per_s for row in rows), "{cost}": any(row.cost is not None for row in rows)}
    grid = grids.tabulate(
        f"time of {scope} with the best reducer"
        if several
        else f"{fmt.workers_text(rows[0].workers)}: time of {scope}",
        rows,
        *grids.columns_of(
            "topologies",
            {"cost": cost_title},
            where=known | {"workers": several},
            cost=lambda row: fmt.UNDEFINED if row.cost is None else format_money(row.cost, str(row.currency)),
        ),
    )
    says: dict[str, list[str]] = {}
    for each in result.results:
        for line in (
            *verdict_lines(each)[: len(each.verdicts)],
            *alternative_lines(each),
            *price_lines(each),
            *fmt.note_lines(each.caveats),
        ):
            says.setdefault(line, []).append(topology_name(each.spec.topology))
    of_all = [line for line, names in says.items() if len(names) == len(result.results)]
    of_some = [f"{', '.join(names)}: {line}" for line, names in says.items() if line not in of_all]
    return grids.Screen(result.lines, [grid], [*of_some, *of_all], result.lines)


def advice_screen(result: Advice) -> grids.Screen:
    """Return the answer, the cells that it rests on, and how many were looked at."""
    cells = result.cells
    several = {name: len({getattr(cell, name) for cell in cells}) > 1 for name in ("changes", "workers")}
    known = {_SAMPLES: any(cell.samples_per_s for cell in cells), "price": bool(result.currency)}
    known["efficiency"] = any(cell.efficiency is not None for cell in cells)
    columns = grids.columns_of(
        "advice",
        where=several | known,
        speedup=lambda cell: fmt.factor_text(inf if cell.speedup_vs_dense is None else cell.speedup_vs_dense),
        loss=lambda cell: fmt.loss_text(cell.relative_l2, cell.error_range, exact=cell.exact),
        money=lambda price: format_money(price, str(result.currency)),
    )
    grid = grids.tabulate(f"{result.question}: the runs that this rests on", cells, *columns)
    looked = f"{format_number_of(result.runs, 'run')} for {format_number_of(result.combinations, 'combination')}."
    script = ["", "Lines for the script that was recorded:", "", *result.script] * bool(result.script)
    return grids.Screen(result.lines, [grid], [looked, *fmt.note_lines(result.notes)], result.lines, script)


def train_screen(result: TrainResult) -> grids.Screen:
    """Return the target, the parts of a step's time, a line per reducer on what it takes to the target, the verdict."""
    from s2sim.training.result import interval_text, target_text  # it knows of training, which most tables do not need

    goal = f"{'none' if result.target is None else target_text(result.target)}, {result.target_why}"
    seeds = format_number_of(result.spec.seeds, "seed")
    means = f"; plus or minus is the 95 % interval of the mean over {seeds}" if result.spec.seeds > 1 else ""
    step = f"its scripts replayed on the cluster, and compute without overlap ({result.compute_why})"
    currency = "" if result.price is None else result.price.currency
    titles = {
        "steps": format_number_of(result.spec.steps, "step"),
        "score": result.score,
        "target": "target" if result.target is None else target_text(result.target),
    }
    columns = grids.columns_of(
        "training",
        titles,
        where={"cost\nto it": result.price is not None},
        loss=_interval_form("{:.4g}".format),
        accuracy=_interval_form(lambda value: f"{100 * value:.3g}"),
        iterations=_interval_form("{:.3g}".format),
        time=_interval_form(format_seconds),
        money=lambda amount: format_money(amount, currency),
        ratio=interval_text,
    )
    grid = grids.tabulate("on held-out data, by reducer", result.rows, *columns)
    before = [result.headline, f"Target: {goal}. A step: {step}{means}."]
    return grids.Screen(before, [grid], ["", *fmt.note_lines(result.notes), "", *result.verdict], result.verdict)


def _interval_form(text: Callable[[float], str]) -> Callable[[Interval], str]:
    """Return what writes a mean by ``text``, and how far the interval reaches to either side of it."""

    def write(interval: Interval) -> str:
        mean = text(interval.mean)
        return mean if interval.high is None else f"{mean} ±{text(interval.high - interval.mean)}"

    return write


# With these widths a table of 80 columns has all columns but bytes, and another has bytes. No line ends after a number.
_CELL_WIDTHS, _STAYS = {"collectives": 22, "bytes": 51}, "\N{NO-BREAK SPACE}"


def reducers_grid(facts: Sequence[ReducerFacts]) -> grids.Grid:
    """Return the properties of all reducers; many collectives and long formulas continue in further rows."""
    grid = facts_grid(facts)

    def wrapped(column: int, text: str) -> list[str]:
        width = _CELL_WIDTHS.get(grid.columns[column].title)
        if width is None:
            return [text]
        kept = re.sub(r"(\d) (?=[a-z])", rf"\1{_STAYS}", text)
        return [line.replace(_STAYS, " ") for line in wrap(kept, width, break_on_hyphens=False)] or [""]

    return grids.continue_cells(grid, wrapped)


# Columns of `ReducerFacts`.
_columns_of = partial(
    grids.columns_of,
    ends=lambda facts: _TEXTS["ends_with"][facts.estimates] + ("" if facts.agrees else ", not all with the same"),
    loses=lambda lossless: f"{'nothing but' if lossless else 'more than'} rounding",
    scope=_TEXTS["in_buckets"].__getitem__,
    joined=lambda collectives: ", ".join(collectives) or "none",
    rounds=lambda measured: f"{measured.rounds}{'+' * measured.rounds_grow}",
)


def facts_grid(facts: Sequence[ReducerFacts]) -> grids.Grid:
    """Return the properties of all reducers, a row each."""
    return grids.tabulate("reducers", facts, *_columns_of("reducers"))


def properties_of(facts: ReducerFacts) -> list[tuple[str, str]]:
    """Return the known properties of one reducer as (label, text)."""
    properties = [(column.title, cell(facts)) for column, cell in _columns_of("properties of a reducer")]
    return [(label, text) for label, text in properties if text]


def option_text(option: OptionDoc) -> str:
    """Return an option in a line.

    >>> from s2sim.experiment.reducer_facts import OptionDoc
    >>> option_text(OptionDoc("density", "float", "0.01", "Fraction that is kept."))
    'density=0.01 (float): Fraction that is kept.'
    """
    if not option.text:
        return f"{option.name}={option.default}"
    kind = option.type.removesuffix(", optional").replace('"', "").strip("{}").replace(", ", "|")
    return f"{option.name}={option.default} ({kind}): {option.text}"
