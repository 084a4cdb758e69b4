"""Texts and tables of ``s2sim trace``."""

import dataclasses
from operator import itemgetter
from typing import Any, TypeAlias

from s2sim.gradients.law import Forecast, LayerForecast
from s2sim.gradients.manifest import LayerEntry, Manifest
from s2sim.gradients.read_trace import Trace
from s2sim.gradients.statistics import LayerStatistics, Statistics
from s2sim.gradients.synthetic import AnyTrace
from s2sim.report.format import aligned, optional_text
from s2sim.report.grid import Column, Grid, TableColumn, columns_of, number_column, tabulate, text_column
from s2sim.units import format_bytes, format_number_of

_Layer: TypeAlias = tuple[str, LayerStatistics, LayerEntry | None]


def describe_extent(manifest: Manifest) -> str:
    """Return the numbers of ranks and steps."""
    return f"{format_number_of(manifest.world_size, 'rank')} x {format_number_of(manifest.steps, 'step')}"


def _sizes(trace: AnyTrace) -> dict[str, int | None]:
    manifest, stored_bytes = trace.manifest, None
    if isinstance(trace, Trace):
        stored_bytes = sum((trace.directory / name).stat().st_size for name in manifest.files)
    dense_bytes = 4 * manifest.parameters
    return {"parameters": manifest.parameters, "dense_bytes_per_rank": dense_bytes, "stored_bytes": stored_bytes}


def manifest_json(trace: AnyTrace, statistics: Statistics, law: Forecast | None) -> dict[str, Any]:
    """Return the manifest without its list of files, with statistics, sizes and fitted law, as JSON values."""
    manifest = dataclasses.asdict(trace.manifest)
    files = len(manifest.pop("files"))
    return {
        "name": trace.name,
        **manifest,
        "statistics": dataclasses.asdict(statistics),
        "sizes": _sizes(trace) | {"files": files},
        "law": None if law is None else dataclasses.asdict(law),
    }


def manifest_lines(trace: AnyTrace) -> list[str]:
    """Return the properties and the origin of a trace."""
    manifest, sizes = trace.manifest, _sizes(trace)
    drawn = f"drawn on demand, {format_number_of(trace.steps, 'step')}"

    def known(value: int | None) -> str:
        return "unknown" if value is None else str(value)

    facts = [
        ("kind", manifest.kind),
        ("model", manifest.model),
        ("extent", describe_extent(manifest) if isinstance(trace, Trace) else drawn),
        ("parameters", f"{manifest.parameters} ({format_bytes(sizes['dense_bytes_per_rank'] or 0)} dense in float32)"),
        ("held in training", manifest.dtype),
        ("stored", "nothing" if sizes["stored_bytes"] is None else format_bytes(sizes["stored_bytes"])),
        ("batch a rank", known(manifest.batch)),
        ("warm-up steps", known(manifest.warmup_steps)),
        ("seed", known(manifest.seed)),
        ("data", manifest.origin.data),
        ("licence", manifest.origin.licence),
        ("source", manifest.origin.source),
        ("command", manifest.origin.command),
        ("training", manifest.origin.training),
        ("values", manifest.scaling),
    ]
    return [f"trace {trace.name}", *aligned(facts, indent="  ")]


def layer_grid(manifest: Manifest, statistics: Statistics) -> Grid:
    """Return shape, density, tail and storage of each layer and of the whole gradient."""
    storage = optional_text("{:.3g}".format)
    rows: list[_Layer] = [(entry.name, statistics.layers[entry.name], entry) for entry in manifest.layers]
    columns = columns_of(
        "layers of a trace",
        {"ranks": format_number_of(statistics.union_ranks[-1], "rank")},
        shape=lambda shape: " x ".join(map(str, shape)),
        counted=lambda sparse: "rows" if sparse else "elements",
        stored=lambda entry: storage(entry.storage_error),
    )
    return tabulate("layers", [*rows, ("whole gradient", statistics.whole, None)], *columns)


def union_grid(statistics: Statistics) -> Grid:
    """Return the density of the union of the supports of the first ranks, by number of ranks."""
    counts = (format_number_of(ranks, "rank") for ranks in statistics.union_ranks)
    return Grid(
        "density of the union of the first ranks",
        (Column("layer", numeric=False), *map(Column, counts)),
        tuple(
            (name, *(f"{density:.3%}" for density in spread.union_density))
            for name, spread in (*statistics.layers.items(), ("whole gradient", statistics.whole))
        ),
    )


def law_grid(law: Forecast) -> Grid:
    """Return the predictions of the fitted law for more ranks, and its errors for recorded ranks."""
    first = next(iter(law.layers.values()))

    def union(ranks: int) -> TableColumn[tuple[str, LayerForecast]]:
        title = f"union of\n{format_number_of(ranks, 'rank')}"
        return number_column(title, lambda row: f"{row[1].union_density[ranks]:.3%}")

    def error(few: int) -> TableColumn[tuple[str, LayerForecast]]:
        return number_column(f"error\nfrom {few}", lambda row: f"{row[1].errors[few]:+.1%}")

    error_of = f"of the union of all {law.ranks}, predicted by a law fitted to the first ranks alone"
    title, name = f"law for more ranks, fitted to {law.ranks}; error: {error_of}", text_column("layer", itemgetter(0))
    return tabulate(title, law.layers.items(), name, *map(union, first.union_density), *map(error, first.errors))
