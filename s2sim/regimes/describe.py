"""A regime map as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.experiment.notes import library_notes
from s2sim.experiment.record import RecordedReducer
from s2sim.experiment.run import hardware_inputs
from s2sim.experiment.scenario import content_hash
from s2sim.experiment.spec import PREFETCH
from s2sim.libraries.lowering_tables import IDEAL
from s2sim.provenance import run_record
from s2sim.regimes.map import LATENCY_FIELD, RATE_FIELD, Cell, RegimeSpec, Wins
from s2sim.regimes.scenario import RegimeScenario
from s2sim.units import format_bytes, format_number_of, format_rate, format_seconds

_FLOAT32_BYTES = 4


def map_notes(
    spec: RegimeSpec,
    scenario: RegimeScenario,
    recorded: Sequence[RecordedReducer],
    refusals: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the notes on a map; ``refusals`` gives by text the points at which each occurred."""
    notes = [
        "the gradients are synthetic, one row-sparse layer: real ones differ in tails and in how rows repeat",
        "communication phase only; margins under 1 % are ties",
    ]
    warm = [item.option_string for item in scenario.reducers if item.reducer.traits.warm]
    if warm:
        notes.append(
            f"{', '.join(warm)}: as in every step but the first; what a step carries over is taken from another one"
        )
    if PREFETCH in spec.reducers:
        notes.append(
            f"{PREFETCH} presumes that the batch tells the rows before forward, as for embeddings, and that "
            "forward and backward are long enough to hide the exchange of supports"
        )
    elif any(item.reducer.traits.name == "union" for item in scenario.reducers):
        notes.append("union learns the rows after backward; --prefetch adds a union that knows them from the batch")
    shape = scenario.networks[0].scenario.shape
    last = {item.option_string: item for item in recorded}
    library = scenario.machines.library
    notes += library_notes(library, shape, list(last.values()))
    if library != IDEAL and library.profile == NO_OVERHEADS:
        notes.append(
            f"{library.option_string}: the latencies asked for are those of the hardware and of the library together; "
            "timing=measured adds the library's to them"
        )
    notes += [f"{text} ({'; '.join(places)})" for text, places in refusals.items()]
    return notes


def map_headline(spec: RegimeSpec, scenario: RegimeScenario) -> str:
    """Return the cluster and the gradient in one line."""
    where = scenario.networks[0].scenario
    nodes = int(where.cluster(spec.workers).node_of_rank.max()) + 1
    size = format_bytes(spec.rows * spec.width * _FLOAT32_BYTES)
    values = "gaussian values" if spec.tail == "gaussian" else f"values with a power-law tail of exponent {spec.tail}"
    return (
        f"{where.shape.name}: {spec.workers} workers in {nodes} nodes; {scenario.machines.text}; gradient of "
        f"{spec.rows} x {spec.width} float32 ({size}), {values}"
    )


def map_provenance(spec: RegimeSpec, scenario: RegimeScenario) -> dict[str, Any]:
    """Return the run record of a map."""
    inputs = hardware_inputs(scenario.networks[0].scenario.shape, scenario.machines, (RATE_FIELD, LATENCY_FIELD))
    return run_record(
        spec={
            "networks": content_hash.sorted_hashes(
                content_hash.cluster_content(item.scenario, [spec.workers]) for item in scenario.networks
            ),
            "gradients": content_hash.sorted_hashes(map(content_hash.trace_content, scenario.traces)),
            "reducers": content_hash.reducers_content(scenario.reducers),
            "library": content_hash.library_content(scenario.machines.library),
            "gpu": content_hash.hashable_content(scenario.machines.gpu),
            "max_error": spec.max_error,
        },
        inputs={**inputs, "gradients": {"kind": "synthetic"}, "seed": spec.seed},
        measured=["bytes", "error"],
        assumed=[
            "gradients: drawn at random with the densities, overlaps and tail asked for",
            "time: simulated on the topology above at each rate and latency",
            "encode and decode: bytes over memory bandwidth and launches",
        ],
    )


# The reducers that this project asks about.
_ALWAYS_REPORTED = ("s2", "s2-exact")


def summarise_map(
    cells: Sequence[Cell], max_error: float, wins: Mapping[str, Wins], estimates: Mapping[str, tuple[str, str]]
) -> str:
    """Return the number of cells that each wins, the regions of S2, and faster reducers with too large an error.

    ``estimates`` are the ranges of estimated constants, over which the numbers of cells vary.
    """
    ties = sum(bool(cell.ties) for cell in cells)
    idle = sum(not cell.compress for cell in cells)
    most_first = sorted(wins.items(), key=lambda item: -item[1].cells)
    won = ", ".join(f"{reducer} {each.cells}" for reducer, each in most_first if each.cells)
    sentences = [f"Of {format_number_of(len(cells), 'cell')}, fastest with an error of at most {max_error:g}: {won}."]
    if estimates and cells:
        ranges = ", ".join(f"{reducer} {each.least} to {each.most}" for reducer, each in most_first)
        constants = ", ".join(f"{name.replace('_', ' ')} {low} to {high}" for name, (low, high) in estimates.items())
        sentences.append(f"Over what estimated constants may be ({constants}): {ranges}.")
    if ties:
        sentences.append(f"{format_number_of(ties, 'cell')} {'are ties' if ties > 1 else 'is a tie'} within 1 %.")
    sentences.append(
        f"Do not compress in {format_number_of(idle, 'cell')}: there nothing gains 1 % over dense."
        if idle
        else "Some reducer always pays."
    )
    reducers = dict.fromkeys(each.reducer for cell in cells for each in cell.reducers)
    sentences += [
        _winning_regions(reducer, cells) for reducer in reducers if reducer.partition(":")[0] in _ALWAYS_REPORTED
    ]
    sentences += [text for reducer in reducers if (text := _rejected_regions(reducer, cells))]
    return " ".join(sentences)


def describe_cell(*cells: Cell) -> str:
    """Return the coordinates of a cell, or the least and the largest ones of several."""

    def span(name: str, write: Callable[[float], str]) -> str:
        values = [getattr(cell, name) for cell in cells]
        return " to ".join(map(write, sorted({min(values), max(values)})))

    number = "{:g}".format
    return (
        f"density {span('density', number)}, overlap {span('overlap', number)}, {span('rate_Bps', format_rate)}, "
        f"{span('latency_s', format_seconds)}"
    )


def _winning_regions(reducer: str, cells: Sequence[Cell]) -> str:
    won = [cell for cell in cells if cell.winner == reducer]
    if won:
        lead = max(cell.margin or 0.0 for cell in won)
        count, where = format_number_of(len(won), "cell"), describe_cell(*won)
        return f"{reducer} wins {count}, where the next takes up to {lead:.0%} longer ({where})."
    ran = [(each, cell) for cell in cells for each in cell.reducers if each.reducer == reducer]
    found = [(cell.slower(each), cell) for each, cell in ran if each.acceptable]
    if not found:
        known = [each.error_relative_l2 for each, _ in ran if each.error_relative_l2 is not None]
        why = f"its error is at least {min(known):.3g}" if known else "it refuses these gradients"
        return f"{reducer} wins nowhere: {why} in every cell."
    factor, cell = min(found, key=lambda item: item[0])
    return (
        f"{reducer} wins nowhere: at best it takes {factor:.3g} times as long as {cell.winner} ({describe_cell(cell)})."
    )


def _rejected_regions(reducer: str, cells: Sequence[Cell]) -> str:
    tempting = [
        each
        for cell in cells
        for each in cell.reducers
        if each.reducer == reducer and not each.acceptable and each.total_ps < cell.fastest.total_ps
    ]
    if not tempting:
        return ""
    errors = [each.error_relative_l2 for each in tempting if each.error_relative_l2 is not None]
    low, high = (f"{error:.3g}" for error in (min(errors, default=0.0), max(errors, default=0.0)))
    error = "undefined" if not errors else low if low == high else f"{low} to {high}"
    count = format_number_of(len(tempting), "cell")
    return f"{reducer} is faster in {count}, but too far from the exact mean (error {error})."
