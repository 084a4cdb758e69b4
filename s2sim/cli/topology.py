"""``s2sim topology``: look at a cluster description."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sim.cli.options import JSON, PNG, Experiment, argument, check_targets, examples, group, option, options_from
from s2sim.cli.output import json_alone, show_lines, show_quantities, write_bytes
from s2sim.errors import S2SimWarning
from s2sim.experiment.cluster_spec import TOPOLOGY, ClusterSpec, parse_workers
from s2sim.units import PS_PER_S, format_money, format_seconds

if TYPE_CHECKING:
    from s2sim.topology.cluster import Cluster

EXAMPLES = examples(
    "s2sim topology show fat-tree",
    "s2sim topology show leaf-spine --workers 128 --set nic.rate=25Gbps",
    "s2sim topology show single-switch --json -",
    "s2sim topology show fat-tree --workers 1024 --png fat-tree.png",
    "s2sim topology show leaf-spine --workers 32 --placement random --seed 1 --png placed.svg",
)

_TEXTS = ("name", "description", "source")
_RANKS_SHOWN = 16
_PAIRS_SHOWN = 4

app = group(help="Look at a cluster description.", epilog=EXAMPLES)


@app.command("show", epilog=EXAMPLES, short_help="Show what a cluster looks like.")
@options_from(ClusterSpec, only=("overrides", "placement"))
def show_command(
    experiment: Experiment[ClusterSpec],
    topology: str = argument("TOPOLOGY", TOPOLOGY["text"], default=...),
    workers: str = option("N", "Number of workers (ranks, GPUs).", default="64"),
    seed: int = option(None, "Seed of random placement, a whole number.", default=0, minimum=0),
    png: str | None = PNG,
    json: str | None = JSON,
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
    if json_alone(described, json):
        return
    numbers = [
        (item["field"], _value_text(item["value"]), item["kind"], item["source"] or "no source given")
        for item in described["quantities"]
        if item["field"] not in _TEXTS
    ]
    gpus = " ".join(map(str, cluster.gpu_of_rank[:_RANKS_SHOWN].tolist()))
    gpus += " ..." if cluster.workers > _RANKS_SHOWN else ""
    show_lines(
        [
            summary_line(cluster),
            described["description"] or "no description",
            "",
            *aligned([*_facts(described), ("GPUs of the ranks", gpus)], indent="  "),
        ]
    )
    show_quantities("Numbers of the description", numbers)


def _draw(cluster: Cluster, described: dict[str, Any], target: str) -> None:
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
    graph, suffix = graph_of(cluster, described), Path(target).suffix[1:].lower()
    write_bytes(draw_cluster(graph, suffix, title=summary_line(cluster), facts=[", ".join(facts)]), target)


def _value_text(value: Any) -> str:
    """Return a value of a description; of a list of links their number and the first ones."""
    if not isinstance(value, list) or not all(isinstance(pair, list) for pair in value):
        return str(value)
    numbers = Counter("-".join(map(str, pair)) for pair in value)
    texts = [pair if number == 1 else f"{pair} x{number}" for pair, number in numbers.items()]
    return f"{len(value)} links: {', '.join(texts[:_PAIRS_SHOWN])}{' ...' if len(texts) > _PAIRS_SHOWN else ''}"


def _facts(described: dict[str, Any]) -> list[tuple[str, str]]:
    from s2sim.report.format import rates_text

    def time(value: int) -> str:
        return format_seconds(value / PS_PER_S)

    facts: list[tuple[str, str, Callable[[Any], str]]] = [
        ("fabric", "kind", str),
        ("GPU", "gpu", str),
        ("library", "library", str),
        ("workers", "workers", str),
        ("placement", "placement", str),
        ("nodes", "nodes", str),
        ("GPUs a node", "gpus_per_node", str),
        ("NVLink of a GPU", "nvlink_rate_Bps", rates_text),
        ("PCIe of a GPU", "pcie_rate_Bps", rates_text),
        ("NICs a node", "nics_per_node", str),
        ("rate of a NIC", "nic_rate_Bps", rates_text),
        ("NIC to fabric", "host_link_rate_Bps", rates_text),
        ("fabric link", "link_rate_Bps", rates_text),
        ("routing", "routing", str),
        ("levels of switches", "levels", str),
        ("leaves", "leaves", str),
        ("nodes a leaf", "nodes_per_leaf", str),
        ("pods", "pods", str),
        ("spines", "spines", str),
        ("cores", "cores", str),
        ("size", "size", lambda value: " x ".join(map(str, value))),
        ("groups", "groups", str),
        ("rails", "rails", str),
        ("routers a group", "routers_per_group", str),
        ("nodes a router", "hosts_per_router", str),
        ("global links a router", "global_links_per_router", str),
        ("oversubscription", "oversubscription", lambda value: f"{value:.3g}:1"),
        ("bisection, one way", "bisection_Bps", rates_text),
        ("diameter", "diameter_hops", lambda value: f"{value} links"),
        ("shortest latency", "latency_min_ps", time),
        ("longest latency", "latency_max_ps", time),
        ("price", "price", lambda cost: f"{format_money(cost['per_hour'], cost['currency'])} an hour"),
        ("link directions", "links", str),
        ("of these", "links_by_class", lambda value: ", ".join(f"{number} {name}" for name, number in value.items())),
    ]
    return [(what, write(described[key])) for what, key, write in facts if described.get(key) not in (None, 0, {})]
