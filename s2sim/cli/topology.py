"""``s2sim topology``: look at a cluster description."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s2sim.cli.options import (
    Experiment,
    JsonOption,
    PngOption,
    argument,
    check_targets,
    examples,
    group,
    option,
    options_from,
)
from s2sim.cli.output import STDOUT, show_lines, write_bytes, write_json
from s2sim.errors import S2SimWarning
from s2sim.experiment.cluster_spec import TOPOLOGY, ClusterSpec, parse_workers

if TYPE_CHECKING:
    from s2sim.topology.cluster import Cluster


EXAMPLES = examples(
    "s2sim topology show fat-tree",
    "s2sim topology show leaf-spine --workers 128 --set nic.rate=25Gbps",
    "s2sim topology show single-switch --json -",
    "s2sim topology show fat-tree --workers 1024 --png fat-tree.png",
    "s2sim topology show leaf-spine --workers 32 --placement random --seed 1 --png placed.svg",
)

# Shown above the numbers, or nothing but words.
_TEXTS = ("name", "description", "source")
_RANKS_SHOWN = 16
_PAIRS_SHOWN = 4

app = group(help="Look at a cluster description.", epilog=EXAMPLES)


@app.command("show", epilog=EXAMPLES, short_help="Show what a cluster looks like.")
@options_from(ClusterSpec, only=("overrides", "placement"))
def show_command(
    experiment: Experiment[ClusterSpec],
    topology: Annotated[str, argument("TOPOLOGY", TOPOLOGY["text"])],
    workers: Annotated[str, option("N", "Number of workers (ranks, GPUs).")] = "64",
    seed: Annotated[int, typer.Option(min=0, help="Seed of random placement, a whole number.")] = 0,
    png: PngOption = None,
    json: JsonOption = None,
) -> None:
    """Show what a cluster of N workers looks like, and every number of its description with kind and source."""
    from s2sim.report.format import aligned

    count, placement = parse_workers(workers), experiment.values["placement"]
    check_targets(json=json, png=png)
    if seed and placement != "random":
        warnings.warn(f"--seed {seed} changes nothing here: only placement random draws", S2SimWarning, stacklevel=2)

    from s2sim.experiment.scenario.cluster import resolve_machines
    from s2sim.topology.cluster import build_cluster
    from s2sim.topology.describe import describe_cluster, summary_line
    from s2sim.topology.read_file import load_shape

    shape = load_shape(topology, tuple(experiment.values["overrides"] or ()))
    # What has no name is told here already.
    resolve_machines(shape, ())
    cluster = build_cluster(shape, count, placement=placement, seed=seed)
    described = describe_cluster(cluster)
    if png is not None:
        _draw(cluster, described, png)
    if json is not None:
        write_json(described, json)
    if json == STDOUT:
        return
    numbers = [
        (item["field"], _value_text(item["value"]), item["kind"], item["source"] or "no source given")
        for item in described["quantities"]
        if item["field"] not in _TEXTS
    ]
    show_lines(
        [
            summary_line(cluster),
            described["description"] or "no description",
            "",
            *aligned([*_facts(described), ("GPUs of the ranks", _places(cluster))], indent="  "),
            "",
            "Numbers of the description (field, value, kind, source):",
            *aligned(numbers, indent="  "),
        ]
    )


def _draw(cluster: Cluster, described: dict[str, Any], target: str) -> None:
    """Write the picture of a cluster."""
    from s2sim.cli.pictures import graph_of
    from s2sim.report.figures.cluster import draw_cluster
    from s2sim.report.format import rates_text, workers_text
    from s2sim.topology.describe import summary_line

    facts = [f"{workers_text(cluster.workers)}, placement {cluster.placement}"]
    if cluster.placement == "random":
        facts.append(f"seed {cluster.seed}")
    if described["bisection_Bps"] is not None:
        facts.append(f"bisection {rates_text(described['bisection_Bps'])} one way")
        facts.append(f"diameter {described['diameter_hops']} links")
    graph = graph_of(cluster, described)
    picture = draw_cluster(
        graph, Path(target).suffix[1:].lower(), title=summary_line(cluster), facts=[", ".join(facts)]
    )
    write_bytes(picture, target)


def _value_text(value: Any) -> str:
    """Return a value of a description as it is written, or of a list of links how many there are and the first."""
    if not isinstance(value, list) or not all(isinstance(pair, list) for pair in value):
        return str(value)
    numbers = Counter("-".join(map(str, pair)) for pair in value)
    texts = [pair if number == 1 else f"{pair} x{number}" for pair, number in numbers.items()]
    return f"{len(value)} links: {', '.join(texts[:_PAIRS_SHOWN])}{' ...' if len(texts) > _PAIRS_SHOWN else ''}"


def _places(cluster: Cluster) -> str:
    """Return the GPUs of the first ranks."""
    shown = cluster.gpu_of_rank[:_RANKS_SHOWN].tolist()
    return " ".join(map(str, shown)) + (" ..." if cluster.workers > _RANKS_SHOWN else "")


def _facts(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known of the cluster, with units, as (what, value)."""
    from s2sim.report.format import rates_text
    from s2sim.units import PS_PER_S, format_seconds

    def count(value: Any) -> str:
        return str(value)

    def time(value: int) -> str:
        return format_seconds(value / PS_PER_S)

    def by_class(value: dict[str, int]) -> str:
        return ", ".join(f"{number} {name}" for name, number in value.items())

    facts: list[tuple[str, str, Callable[[Any], str]]] = [
        ("fabric", "kind", count),
        ("GPU", "gpu", count),
        ("library", "library", count),
        ("workers", "workers", count),
        ("placement", "placement", count),
        ("nodes", "nodes", count),
        ("GPUs a node", "gpus_per_node", count),
        ("NVLink of a GPU", "nvlink_rate_Bps", rates_text),
        ("PCIe of a GPU", "pcie_rate_Bps", rates_text),
        ("NICs a node", "nics_per_node", count),
        ("rate of a NIC", "nic_rate_Bps", rates_text),
        ("NIC to fabric", "host_link_rate_Bps", rates_text),
        ("fabric link", "link_rate_Bps", rates_text),
        ("routing", "routing", count),
        ("levels of switches", "levels", count),
        ("leaves", "leaves", count),
        ("nodes a leaf", "nodes_per_leaf", count),
        ("pods", "pods", count),
        ("spines", "spines", count),
        ("cores", "cores", count),
        ("size", "size", lambda value: " x ".join(map(str, value))),
        ("groups", "groups", count),
        ("rails", "rails", count),
        ("routers a group", "routers_per_group", count),
        ("nodes a router", "hosts_per_router", count),
        ("global links a router", "global_links_per_router", count),
        ("oversubscription", "oversubscription", lambda value: f"{value:.3g}:1"),
        ("bisection, one way", "bisection_Bps", rates_text),
        ("diameter", "diameter_hops", lambda value: f"{value} links"),
        ("shortest latency", "latency_min_ps", time),
        ("longest latency", "latency_max_ps", time),
        ("link directions", "links", count),
        ("of these", "links_by_class", by_class),
    ]
    return [(what, write(described[key])) for what, key, write in facts if described.get(key) not in (None, 0, {})]
