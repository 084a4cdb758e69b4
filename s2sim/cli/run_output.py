"""A run as the terminal shows it, its figures by ``--plot``, and graphs of clusters for figures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.cli import COLLECTIVES, DETAILS, LAYERS, LOWERING, PARETO
from s2sim.cli.output import show_grids, show_lines, show_paragraph, show_paragraphs
from s2sim.errors import OptionError, S2SimError, suggest_nearest
from s2sim.experiment.rate_curve import RateCurves
from s2sim.experiment.rows import Result
from s2sim.experiment.spec import RunSpec
from s2sim.libraries.lowering import IDEAL, LIBRARIES
from s2sim.report import answer
from s2sim.report import run_tables as rows
from s2sim.report.figures.cluster_sizes import ClusterGraph
from s2sim.report.format import bottleneck_lines, group_by_workers, lowering_lines, note_lines
from s2sim.topology.cluster import Cluster

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def defaults_line(result: Result, given: Sequence[str]) -> str | None:
    """Return the line with the defaults that were used, or None."""
    used = {"--reducer": f"reducers {', '.join(result.spec.reducers)}", "--trace": f"gradients of {result.spec.trace}"}
    parts = [text for option, text in used.items() if option not in given]
    return f"By default: {'; '.join(parts)}." if parts else None


def show_run(result: Result, defaults: str | None, shown: frozenset[str], *, quiet: bool, saved: str | None) -> None:
    """Print a result; ``shown`` are requested additions, ``saved`` is the file of its JSON."""
    details = DETAILS in shown
    show_paragraphs(answer.verdict_lines(result))
    if quiet:
        return
    grid, below = answer.result_table(result)
    show_grids(answer.pareto_grids(result) if PARETO in shown else [grid])
    show_paragraphs([*below, *answer.about_lines(result, details=details)])
    show_paragraphs(note_lines(result.notes if details else result.caveats))
    if details:
        show_paragraphs([defaults] if defaults else [])
        show_grids(answer.details_grids(result))
        show_paragraphs(["", f"In dense, {result.verdict.bottleneck}."])
    if COLLECTIVES in shown:
        show_grids(rows.collectives_grids(result))
        show_lines(["", *bottleneck_lines(result)])
    if LOWERING in shown and result.library == IDEAL.name:
        others = ", ".join(name for name in LIBRARIES.names() if name != IDEAL.name)
        show_lines(["", f"Lowering: {IDEAL.name} executes everything as asked; --library {others} would differ."])
    elif LOWERING in shown:
        show_grids(rows.lowering_grids(result))
        show_lines(["", *lowering_lines(result)])
    if LAYERS in shown:
        show_grids(rows.layers_grids(result))
    if saved is not None:
        show_lines(["", f"Saved to {saved}; again with: s2sim run --spec {saved}"])
    elif not details:
        show_paragraph("More: --show details has phases, bounds, break-even and notes; --help the rest.")


# Names of the switches of each level, by the number of levels.
_SWITCH_NAMES = {1: ("switch",), 2: ("leaf", "spine"), 3: ("leaf", "aggregation", "core")}
# Arrangements by the number of dimensions of a grid; others are drawn on a circle.
_ARRANGEMENTS = {1: "ring", 2: "grid", 3: "grid"}


def _hints(cluster: Cluster, described: dict[str, Any]) -> dict[str, Any]:
    """Return names of switches, and the arrangement of those without levels."""
    kind = cluster.shape.kind
    if kind == "ring":
        return {"switch_names": ("",), "arrangement": "ring"}
    if kind == "torus":
        size = tuple(described["size"])
        return {"switch_names": ("",), "arrangement": _ARRANGEMENTS.get(len(size), "circle"), "grid": size}
    if kind == "dragonfly":
        return {"switch_names": ("router",), "arrangement": "circle", "between_groups": ("global",)}
    return {"switch_names": _SWITCH_NAMES.get(cluster.shape.levels, ())}


def graph_of(cluster: Cluster, described: dict[str, Any]) -> ClusterGraph:
    """Return a cluster's graph for a figure, with PCIe and host bridges in their node, and no link from GPU to GPU."""
    fabric, vertex = cluster.fabric, cluster.layout.drawn_vertices()
    tail, head = vertex[fabric.tail], vertex[fabric.head]
    # NVSwitches of several nodes have no box: their links end at the nodes.
    gpu_of_link = np.minimum(fabric.tail, fabric.head)
    for end in (tail, head):
        above = end >= cluster.layout.first_domain
        end[above] = fabric.gpus + cluster.layout.node_set.node_of_gpu[gpu_of_link[above]]
    drawn = (tail != head) & (np.maximum(tail, head) >= fabric.gpus)
    used, codes = np.unique(fabric.link_class[drawn], return_inverse=True)
    node_of_gpu, rank_of_gpu = np.empty((2, cluster.workers), np.int64)
    node_of_gpu[cluster.gpu_of_rank] = cluster.host_of_rank
    rank_of_gpu[cluster.gpu_of_rank] = np.arange(cluster.workers)
    return ClusterGraph(
        tail=tail[drawn],
        head=head[drawn],
        link_class=codes,
        class_names=tuple(fabric.class_names[code] for code in used),
        rate_Bps=fabric.rate_Bps[drawn],
        latency_ps=fabric.latency_ps[drawn],
        node_of_gpu=node_of_gpu,
        rank_of_gpu=rank_of_gpu,
        nodes=fabric.nodes,
        **_hints(cluster, described),
    )


BARS, SCALING, BREAK_EVEN, ERROR = "bars", "scaling", "break-even", "error"
_PLOTS = (BARS, SCALING, BREAK_EVEN, ERROR)


def check_plot(plot: str | None, target: str | None) -> None:
    """Raise `OptionError` for an unknown figure, or one without a file."""
    if plot is not None and plot not in _PLOTS:
        raise OptionError(f"--plot {plot} is unknown{suggest_nearest(plot, _PLOTS)}")
    if plot is not None and target is None:
        raise OptionError(f"--plot {plot} draws into a file: add --png FILE")


def choose_plot(plot: str | None, spec: RunSpec) -> str:
    """Return the name of the figure; `OptionError` for one that a run of this spec cannot have."""
    if plot == SCALING and len(spec.workers) == 1:
        raise OptionError(f"--plot {SCALING} needs several numbers of workers, for example --workers 8,16,32")
    if plot == BREAK_EVEN and max(spec.workers) == 1:
        raise OptionError(f"--plot {BREAK_EVEN} needs 2 workers or more: no rate limits one alone")
    if plot == BREAK_EVEN and len(spec.reducers) == 1 and spec.reducers[0].partition(":")[0] == "dense":
        raise OptionError(f"--plot {BREAK_EVEN} needs a reducer beside dense, for example --reducer union")
    return plot or (BARS if len(spec.workers) == 1 else SCALING)


def figure_of(plot: str, result: Result, curves: Mapping[int, RateCurves]) -> "Figure":
    """Return a figure of a run, with all numbers of workers."""
    from s2sim.experiment.judgement import pareto_fronts
    from s2sim.report.figures import reducers, sweeps
    from s2sim.report.figures.labels import describe_setup

    rows, subtitle = group_by_workers(result.results), describe_setup(result)
    judged = [(row.reducer, row.judgement.rejected) for row in result.results if row.judgement is not None]
    # Why reducers are rejected with some number of workers.
    reasons = {name: answer.short_rejection(rejected) for name, rejected in judged if rejected is not None}
    if plot == BREAK_EVEN:
        if not curves:
            raise S2SimError("nothing to draw over rates: none limits these workers, or it was interrupted too early")
        return sweeps.break_even_figure(curves, subtitle, reasons)
    if plot == ERROR:
        return reducers.error_figure(rows, {count: pareto_fronts(own) for count, own in rows.items()}, subtitle)
    if plot == SCALING and len(rows) > 1:
        return sweeps.scaling_figure(rows, subtitle, reasons)
    if all(row.iteration is not None for row in result.results):
        return reducers.iterations_figure(rows, subtitle)
    fastest_first = {count: sorted(own, key=lambda row: row.time_s.total) for count, own in rows.items()}
    return reducers.breakdown_figure(fastest_first, subtitle)
