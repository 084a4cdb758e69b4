"""What ``s2sim trace`` prints."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from s2sim.gradients.read_trace import Trace
from s2sim.report.format import UNDEFINED, aligned
from s2sim.report.grid import Column, Grid
from s2sim.units import format_bytes, format_number_of

if TYPE_CHECKING:
    from s2sim.gradients.law import Forecast
    from s2sim.gradients.manifest import LayerEntry, Manifest
    from s2sim.gradients.statistics import LayerStatistics, Statistics
    from s2sim.gradients.synthetic import AnyTrace


_FLOAT32_BYTES = 4


def describe_extent(manifest: Manifest) -> str:
    """Return how many gradients there are."""
    return f"{format_number_of(manifest.world_size, 'rank')} x {format_number_of(manifest.steps, 'step')}"


def usage_line(trace: Trace, out: str) -> str:
    """Return the options of ``s2sim run`` that take a trace which was written to ``out``."""
    # A text without a slash would be looked for among the shipped names first.
    path = out if "/" in out else f"./{out}"
    return f"--topology fat-tree --workers {trace.world_size} --trace {shlex.quote(path)}"


def _stored_bytes(trace: AnyTrace) -> int | None:
    if not isinstance(trace, Trace):
        return None
    return sum((trace.directory / name).stat().st_size for name in trace.manifest.files)


def _sizes(trace: AnyTrace) -> dict[str, int | None]:
    manifest = trace.manifest
    return {
        "parameters": manifest.parameters,
        "dense_bytes_per_rank": _FLOAT32_BYTES * manifest.parameters,
        "stored_bytes": _stored_bytes(trace),
    }


def manifest_json(trace: AnyTrace, statistics: Statistics, law: Forecast | None) -> dict[str, Any]:
    """Return the manifest with its statistics, sizes and fitted law as JSON values, without the list of files."""
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
    """Return what a trace is and where it comes from, a line each."""
    manifest, sizes = trace.manifest, _sizes(trace)
    unknown = "unknown"
    facts = [
        ("kind", manifest.kind),
        ("model", manifest.model),
        (
            "extent",
            describe_extent(manifest)
            if isinstance(trace, Trace)
            else f"drawn on demand, {format_number_of(trace.steps, 'step')}",
        ),
        ("parameters", f"{manifest.parameters} ({format_bytes(sizes['dense_bytes_per_rank'] or 0)} dense in float32)"),
        ("held in training", manifest.dtype),
        ("stored", "nothing" if sizes["stored_bytes"] is None else format_bytes(sizes["stored_bytes"])),
        ("batch a rank", unknown if manifest.batch is None else str(manifest.batch)),
        ("warm-up steps", unknown if manifest.warmup_steps is None else str(manifest.warmup_steps)),
        ("seed", unknown if manifest.seed is None else str(manifest.seed)),
        ("data", manifest.origin.data),
        ("licence", manifest.origin.licence),
        ("source", manifest.origin.source),
        ("command", manifest.origin.command),
        ("training", manifest.origin.training),
        ("values", manifest.scaling),
    ]
    return [f"trace {trace.name}", *aligned(facts, indent="  ")]


def _format_figure(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3g}"


def _layer(name: str, entry: LayerEntry | None, spread: LayerStatistics) -> tuple[str, ...]:
    return (
        name,
        "" if entry is None else " x ".join(map(str, entry.shape)),
        "" if entry is None else "rows" if entry.sparse else "elements",
        f"{spread.density:.3%}",
        f"{spread.union_density[-1]:.3%}",
        UNDEFINED if spread.top_percent_energy is None else f"{spread.top_percent_energy:.1%}",
        _format_figure(spread.kurtosis),
        "" if entry is None else entry.dtype,
        "" if entry is None else _format_figure(entry.storage_error),
    )


def layer_grid(manifest: Manifest, statistics: Statistics) -> Grid:
    """Return shape, density, tail and storage of each layer and of the whole gradient."""
    columns = (
        Column("layer", numeric=False),
        Column("shape"),
        Column("counted\nin", numeric=False),
        Column("density\nof a rank"),
        Column(f"union of\n{format_number_of(statistics.union_ranks[-1], 'rank')}"),
        Column("energy in\ntop 1 %"),
        Column("kurtosis"),
        Column("stored as", numeric=False),
        Column("storage\nerror"),
    )
    rows = [_layer(entry.name, entry, statistics.layers[entry.name]) for entry in manifest.layers]
    return Grid("layers", columns, (*rows, _layer("whole gradient", None, statistics.whole)))


def union_grid(statistics: Statistics) -> Grid:
    """Return how the union of the ranks' supports grows with their number."""
    return Grid(
        "density of the union of the first ranks",
        (
            Column("layer", numeric=False),
            *(Column(format_number_of(ranks, "rank")) for ranks in statistics.union_ranks),
        ),
        tuple(
            (name, *(f"{density:.3%}" for density in spread.union_density))
            for name, spread in (*statistics.layers.items(), ("whole gradient", statistics.whole))
        ),
    )


def law_grid(law: Forecast) -> Grid:
    """Return what the fitted law says of more ranks, and how far off it is where the recorded ranks tell."""
    first = next(iter(law.layers.values()))
    columns = (
        Column("layer", numeric=False),
        *(Column(f"union of\n{format_number_of(ranks, 'rank')}") for ranks in first.union_density),
        *(Column(f"error\nfrom {few}") for few in first.errors),
    )
    rows = tuple(
        (
            name,
            *(f"{density:.3%}" for density in layer.union_density.values()),
            *(f"{error:+.1%}" for error in layer.errors.values()),
        )
        for name, layer in law.layers.items()
    )
    title = (
        f"law for more ranks, fitted to {law.ranks}; error: of the union of all {law.ranks}, predicted by a law fitted "
        "to the first ranks alone"
    )
    return Grid(title, columns, rows)
