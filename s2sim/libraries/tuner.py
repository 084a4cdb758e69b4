"""NCCL's own estimates, by which it chooses an algorithm and a protocol: `ncclTopoTuneModel` in src/graph/tuning.cc.

They are not what operations take: NCCL knows no contention, takes rates of links as its search counts them, and
corrects trees by a table. So it may choose what is slower.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, floor, inf, log2
from typing import Any

from s2sim.collectives.schedules.demand import Demand
from s2sim.errors import S2SimError
from s2sim.files import data_directory, read_toml
from s2sim.libraries.constants import Version, merge_tables, read_version
from s2sim.topology.cluster import Cluster

PROTOCOLS = ("LL", "LL128", "Simple")
_NVLS = ("in-network", "nvls-tree")
_TREE = "double-binary-tree"
# These GPUs keep one channel an interface of at least 25 and less than 50 GB/s, if there are more than four; all others
# have two where an interface has 25 GB/s (`ncclTopoDupChannels` in src/graph/search.cc).
_SINGLE = ("hopper", "blackwell")
_DOUBLED_GBPS, _SINGLE_BELOW_GBPS, _FEW_CHANNELS = 25, 50, 4
# Rates of links and steps are equal to that factor; NVSwitches sum for that many GPUs (NCCL_MAX_NVLS_ARITY).
_ROUNDED, _MOST_HEADS = 1 + 1e-9, 32
# Before, trees were for all buffers up to one size.
_ESTIMATES_SINCE = read_version("2.5")
_COUNTED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@cache
def _tables(version: Version) -> Mapping[str, Any]:
    tables = read_toml(data_directory("libraries") / "nccl-tuner.toml", S2SimError)
    for older in tables.pop("before"):
        # Without a patch, a version is the last of its minor one.
        if version and version < read_version(older.pop("version"))[: len(version)]:
            tables = merge_tables(tables, older)
    return tables


_DATE = re.compile(r"(?<!\d)\d{4}(?!\d)(?:-(?:0[1-9]|1[0-2])(?!\d))?")


def newest_version(date: str) -> Version:
    """Return the newest NCCL of the last month that a text names, December if it names a year; empty for no date.

    >>> newest_version("2025-05-09 (file commit)"), newest_version("2020-2021 (repo)"), newest_version("")
    ((2, 26, 6), (2, 11, 4), ())
    """
    last = max((each if "-" in each else f"{each}-12" for each in _DATE.findall(date)), default="")
    return max((read_version(text) for text, month in _tables(())["released"].items() if month <= last), default=())


@dataclass(frozen=True, slots=True)
class ChannelGraph:
    """The channels that NCCL's search finds on a cluster, and what it counts each to carry.

    Rates are GB/s of 10^9 bytes a channel: ``rate`` of a ring and between nodes, ``tree`` of a tree inside one, where
    two nodes leave room for more. An NVSwitch sums for ``heads`` GPUs of a node, for each at ``head``, of which
    ``head_between`` leaves the node.
    """

    generation: str
    nodes: int
    ranks: int
    linked: bool  # Whether NVLink joins the GPUs of a node
    channels: int
    rate: float
    tree: float
    heads: int
    head: float
    head_between: float
    x86: bool  # Whether no NVLink-C2C joins GPUs to processors

    @property
    def place(self) -> int:
        """The column of tables that tell one node, two and more apart."""
        return min(self.nodes, 3) - 1

    @property
    def rounds(self) -> int:
        """The levels of a tree over nodes."""
        return self.nodes.bit_length() - 1

    @property
    def blocks(self) -> int:
        """Channels that kernels have over several nodes: two for each that was found."""
        return 2 * self.channels


def channel_graph(cluster: Cluster, generation: str, version: Version = ()) -> ChannelGraph:
    """Return what NCCL finds on a cluster of GPUs of a generation, at the least capable of its nodes.

    The search in src/graph/search.cc takes steps of rates; of rings inside one node those of the links themselves.
    """
    own = _tables(version)["generation"][generation]
    nodes = cluster.layout.node_set
    used = [nodes.specs[spec] for spec in sorted(set(nodes.spec[cluster.node_of_rank].tolist()))]
    lines = nodes.mesh_lines(cluster.gpu_of_rank[cluster.node_of_rank == cluster.node_of_rank[0]])
    each = 1 if lines is None else max(1, min(map(sum, lines)))
    count = len(set(cluster.node_of_rank.tolist()))
    linked = all(spec.nvlink is not None for spec in used)
    nvlink = min(each * spec.nvlink.rate_Bps if spec.nvlink else 0.0 for spec in used) / 1e9
    pcie = min((spec.pcie.rate_Bps / 1e9 for spec in used if spec.pcie), default=0.0)
    inside = (nvlink if linked else 0.0) or pcie or min(spec.nics * spec.nic.rate_Bps for spec in used) / 1e9
    steps, fastest = own["inside" if count == 1 else "between"], inf
    if count == 1:
        channels, heads = own["channels"] if linked else 1, min(cluster.workers, _MOST_HEADS)
        rate = tree = inside / channels
    else:
        # A GPU has its part of the interfaces, or as many as its PCIe has the rate for.
        of_gpu = [ceil(spec.nics / spec.gpus) for spec in used]
        of_gpu += [ceil(spec.pcie.rate_Bps / spec.nic.rate_Bps) for spec in used if spec.pcie]
        channels = heads = min(cluster.least_ranks_per_node * max(of_gpu), *(spec.nics for spec in used))
        fastest = min(pcie or inf, *(spec.nic.rate_Bps / 1e9 for spec in used))
        several = inside / channels if cluster.workers > count else 0.0
        rate = _step(steps, min(fastest, several or fastest))
        single = generation in _SINGLE and rate < _SINGLE_BELOW_GBPS and channels > _FEW_CHANNELS
        if rate >= _DOUBLED_GBPS and not single:
            channels, rate, several = 2 * channels, rate / 2, several / 2
        tree = max(rate, _step(steps, several, 2 * rate))
    # A head sends to each GPU of its node, and sums besides.
    head = _step(steps, min(fastest, inside / (heads + 1)))
    of_heads = heads, head, _step(steps, fastest, 2 * head), all(spec.pcie is not None for spec in used)
    return ChannelGraph(generation, count, cluster.workers, linked, channels, rate, tree, *of_heads)


def _step(steps: Sequence[float], most: float, enough: float = inf) -> float:
    """Return the fastest rate that the search tries up to a limit, or the slowest that is enough; else the limit."""
    enough = min((each for each in steps if each * _ROUNDED >= enough), default=inf)
    return max((each for each in steps if each <= min(most * _ROUNDED, enough)), default=most)


def estimate_us(graph: ChannelGraph, demand: Demand, algorithm: str, protocol: str, version: Version) -> float | None:
    """Return NCCL's estimate of an operation in microseconds; None where it has none.

    ``algorithm`` is a name without options; ``version`` is empty for the newest.
    """
    if protocol not in PROTOCOLS or demand.kind not in _COUNTED:
        return None
    tables = _tables(version)
    if algorithm in (*_NVLS, "pat") and protocol != "Simple":
        return None
    if algorithm in _NVLS:
        return _nvls_us(tables, graph, demand)
    thresholds = version and version < _ESTIMATES_SINCE and demand.kind == "all_reduce" and graph.nodes > 1
    if thresholds and (demand.buffer_bytes > _tree_threshold_bytes(graph)) == (algorithm == _TREE):
        return inf
    if algorithm == _TREE:
        return _tree_us(tables, graph, demand.buffer_bytes, protocol)
    if algorithm == "pat":
        own = tables["pat"]
        level_us = tables["network"]["tree"][-1] / own["hop_divisor"]
        latency_us = own["base"] + graph.rounds * level_us + own["rank"] * graph.ranks
        return float(latency_us + demand.buffer_bytes / 1e3 / (own["share"] * graph.channels * graph.rate))
    return _ring_us(tables, graph, demand, protocol) if algorithm in ("ring", "chain") else None


def _tree_threshold_bytes(graph: ChannelGraph) -> float:
    """Return the largest buffer for which NCCL 2.4 takes trees (ncclTreeThreshold in src/init.cc of 2.4.8)."""
    ring = 5000.0 * (graph.channels if graph.linked else 1)  # bytes a microsecond
    tree = ring * (3 / 4 * (2 if graph.nodes == 2 else 1) if graph.linked else 2 / 3)
    saved_us = 6 * (graph.ranks - 1) - 15 * graph.rounds - 4 * (graph.ranks // graph.nodes - 1)
    if saved_us <= 0:
        return 0.0
    return inf if tree > ring else ring * tree / (ring - tree) * saved_us


def _nvls_us(tables: Mapping[str, Any], graph: ChannelGraph, demand: Demand) -> float | None:
    own, ranks, nodes, heads = tables["generation"][graph.generation], graph.ranks, graph.nodes, graph.heads
    if "nvls" not in own:
        return None
    older, hops = tables["nvls"], 2 * graph.rounds
    if not older:
        rate = min(2 * graph.head * own["nvls"] * (heads - 1) / heads, graph.head_between * (2 if nodes == 2 else 1))
        rate *= ranks / (2 * (ranks - 1))
        if nodes > 1:
            rate = min(rate, own["nvls-tree"][graph.place] * ranks / (2 * (ranks - 1)))
            rate *= _correction(own.get("nvls-correction", ()) if graph.x86 else (), demand.buffer_bytes)
    elif nodes == 1:
        of_rings = min(graph.channels * graph.rate, own["most"]) / heads
        rate = older["share"] * (of_rings if older["of-rings"] else graph.head)
    elif older["chain"]:
        hops = 2 * (nodes - 1)
        rate = older["chain"] * nodes / hops * (graph.head if nodes == 2 else graph.head_between)
    else:
        rate = older["share"] * min(graph.head, graph.head_between / (1 if nodes == 2 else 2))
    latency_us = tables["nvlink"]["nvls"][-1] + hops * tables["network"]["nvls"][-1]
    return float(latency_us + demand.buffer_bytes / 1e3 / (heads * rate)) if rate else None


def _tree_us(tables: Mapping[str, Any], graph: ChannelGraph, size_bytes: int, protocol: str) -> float:
    own, place, channels = tables["generation"][graph.generation], graph.place, graph.channels
    rate = min(channels * (graph.tree if graph.nodes <= 2 else graph.rate), own["most"])
    rate = min(0.92 * rate, channels * own["tree"][place])
    if protocol == "LL":
        rate = min(rate / 3.8, _most_ll(tables, graph))
    elif protocol == "LL128":
        rate = min(rate * (7 / 9 if graph.nodes == 1 else 120 / 128), channels * own["tree-LL128"][place])
    base_us, network_us = (tables[section]["tree"][PROTOCOLS.index(protocol)] for section in ("base", "network"))
    hops_us = (graph.ranks // graph.nodes - 1) * _link_us(tables, graph, "tree", protocol) + graph.rounds * network_us
    correction = _correction(tables["correction"][protocol], size_bytes)
    return float(base_us + 2 * hops_us + size_bytes / 1e3 / (rate * 0.5 * correction))


def _ring_us(tables: Mapping[str, Any], graph: ChannelGraph, demand: Demand, protocol: str) -> float:
    which, ranks, nodes, size_bytes = PROTOCOLS.index(protocol), graph.ranks, graph.nodes, demand.buffer_bytes
    own, ring, network = tables["generation"][graph.generation], tables["ring"], tables["network"]
    rate = min(graph.channels * graph.rate, own["most"])
    if protocol == "LL":
        gathers = nodes == 1 and demand.kind not in ("all_reduce", "reduce")
        rate = min(_most_ll(tables, graph), ring["LL"][gathers] * rate)
    elif protocol == "LL128":
        rate *= ring["LL128-alone"] if ranks == nodes else 0.92
        rate = min(rate, graph.channels * own["ring-LL128"][graph.place])
    base_us, link_us = tables["base"]["ring"][which], _link_us(tables, graph, "ring", protocol)
    if demand.kind in ("broadcast", "reduce"):
        return float(base_us + (link_us if nodes == 1 else network["ring"][which]) + size_bytes / 1e3 / rate)
    reduces = demand.kind == "all_reduce"
    steps, between = (1 + reduces) * (ranks - 1), (1 + reduces) * (nodes - 1)
    if nodes > 1:
        between += reduces * ring["more-crossings"]
        link_us = max(link_us, tables["hosts"][own["hosts"]]["posting"] * (3 if protocol == "Simple" else 1))
    hop_us = network[ring["hop-alone"] if ranks == nodes else "ring"][which]
    latency_us = base_us + (steps - between) * link_us + between * hop_us
    long_bytes = ranks * (ring["long"] or 64 * graph.blocks)
    if protocol == "Simple" and reduces and nodes > 1 and size_bytes >= long_bytes:
        latency_us *= own["longer"]
    return float(latency_us + size_bytes / 1e3 / (rate * ranks / steps))


def _link_us(tables: Mapping[str, Any], graph: ChannelGraph, algorithm: str, protocol: str) -> float:
    links = "nvlink" if graph.linked and graph.ranks > graph.nodes else "pcie"
    us: float = tables[links][algorithm][PROTOCOLS.index(protocol)]
    return us * tables["slower-LL"] if protocol == "LL" and graph.nodes > 1 else us


def _most_ll(tables: Mapping[str, Any], graph: ChannelGraph) -> float:
    own = tables["generation"][graph.generation]
    most: float = (own if graph.nodes == 1 else tables["hosts"][own["hosts"]])["LL"][graph.place]
    return most


def _correction(factors: Sequence[float], size_bytes: int) -> float:
    doublings = max(0, floor(log2(max(1, size_bytes) / 64)))
    return factors[doublings] if doublings < len(factors) else 1.0
