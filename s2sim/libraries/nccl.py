"""The profile of NCCL and its descendants: the overheads of launches, hops and protocols, and NCCL's own tuner."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, floor, log2

import numpy as np

from s2sim.collectives.algorithms.tree import tree_channels
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, RoundLatency
from s2sim.collectives.schedules.pipeline import channel_count
from s2sim.collectives.schedules.round_latency import pipeline_round_latency, ring_round_latency
from s2sim.collectives.schedules.schedule import CombinedRound, Pattern, Round, Schedule
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.libraries.constants import Version
from s2sim.libraries.message_latency import (
    MAX_PIECES,
    ConstantsProfile,
    inter_node_path,
    message_overheads,
    most_peers,
    select_constant,
    switch_reduction_overheads,
    tree_pieces,
)
from s2sim.topology.cluster import Cluster
from s2sim.topology.shape import ClusterShape, NodeSpec

_CHANNELS_WITHOUT_NVLINK = 2
_MESSAGES = ("all_to_all", "send_recv")  # kinds that consist of sends and receives


@dataclass(frozen=True, slots=True)
class NcclProfile(ConstantsProfile):
    """Constants of a library, the launch of its processes, and the protocol that it sends with.

    A hop takes the latency of its link, of the protocol over that kind of link, and between nodes of the network and
    of the path to it. Data takes 1/share of its bytes on the network: of the protocol, of the link, of the network.
    """

    one_process: bool = False  # Whether one process launches on all GPUs of its node sequentially
    protocol: str = ""  # Its name, empty for the fastest
    only: str = ""  # Protocol to which the user restricts the choice
    version: Version = ()  # Of the library; empty for the newest
    min_channels: int = 1  # As set by the user

    def check_network(self, spec: NodeSpec) -> None:
        """Raise `S2SimError` if the constants do not tell a node's network, or the path to it."""
        inter_node_path(self._constants, spec)

    def assumed(self, shape: ClusterShape) -> str:
        """Return the networks and the launch of processes as text."""
        return f"{ConstantsProfile.assumed(self, shape)}, one process a {'node' if self.one_process else 'GPU'}"

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Names of all protocols of the library."""
        return self._constants.tables["protocol"]

    def candidates(self, demand: Demand, cluster: Cluster) -> tuple[str, ...]:
        """Return the algorithms of a kind, trees with the chunks of each protocol; none for other kinds.

        A chain forwards data as it arrives, line by line. NVSwitches reduce between the GPUs that the constants name.
        """
        several, has = len(np.unique(cluster.node_of_rank)) > 1, partial(self._constants.has, version=self.version)
        if demand.kind in ("broadcast", "reduce"):
            return (f"chain:channels={channel_count(cluster, None)},chunks={MAX_PIECES}",)
        if demand.kind in ("all_gather", "reduce_scatter"):
            return ("ring",)
        if demand.kind != "all_reduce":
            return ()
        trees: tuple[str, ...] = ()
        if several and has("tree"):
            pieces = sorted({self._tree_pieces(name, demand, cluster) for name in self.protocol_names})
            trees = tuple(f"double-binary-tree:chunks={chunks}" for chunks in pieces)
        switch = "nvls-tree" if several else "in-network"
        generation = self._constants.generation_of(cluster.shape.gpu)
        nodes, together = cluster.layout.node_set, np.flatnonzero(np.bincount(cluster.node_of_rank) > 1)
        switched = all(nodes.specs[spec].has_nvswitch for spec in np.unique(nodes.spec[together]))
        reduces = generation in self._constants.tables["in-network"] and len(together) and switched and has(switch)
        reduces = reduces and self.only in ("", self._plain)
        return ("ring", *trees, *((switch,) if reduces else ()))

    def protocols(self, schedule: Schedule, cluster: Cluster) -> tuple[LibraryProfile, ...]:
        """Return one profile per protocol of this cluster; switch reduction and large messages use plain data only."""
        constants, kind = self._constants, schedule.demand.kind
        protocols = sorted(self.protocol_names, key=lambda name: constants[f"protocol.{name}.share"])
        plain = protocols[-1:]
        protocols = [name for name in protocols if constants.has(name, self.version)]
        if schedule.assisted:
            protocols = plain
        elif kind in _MESSAGES:
            small = constants.has("messages", self.version)
            size_bytes = max((float(step.round.bytes.max(initial=0.0)) for step in schedule.steps[:1]), default=0.0)
            largest_bytes = {name: constants[f"protocol.{name}.messages"] for name in protocols}
            protocols = [name for name in protocols if size_bytes <= largest_bytes[name]] if small else plain
        elif self.only:
            protocols = [name for name in self.protocol_names if name == self.only]
        else:
            protocols = [name for name in protocols if not constants[f"protocol.{name}.ways"] or _all_direct(cluster)]
        if kind == "all_reduce" and schedule.stage.whole is not None:
            # The user may request chunks that no protocol has.
            pieces, demand = schedule.stage.whole.times, schedule.demand
            protocols = [name for name in protocols if self._tree_pieces(name, demand, cluster) == pieces] or protocols
        return tuple(replace(self, protocol=name) for name in protocols)

    def _tree_pieces(self, protocol: str, demand: Demand, cluster: Cluster) -> int:
        trees = 2 * tree_channels(channel_count(cluster, None), demand.ranks)
        in_node = np.bincount(cluster.node_of_rank)
        return tree_pieces(protocol, demand.buffer_bytes, trees, int((in_node > 0).sum()), int(in_node.max()))

    def launch_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the latency of a launch, and that of each peer."""
        if schedule.demand.ranks == 1:
            # NCCL launches no kernel for a single rank (`ncclLaunchOneRank`).
            return ()
        times = {"launch.collective": 1}
        if schedule.demand.kind in _MESSAGES:
            times["peer.inside"], times["peer.network"] = most_peers(schedule.demand, cluster.node_of_rank)
        return self._launch_terms(times)

    def host_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the time of a process that launches on the GPUs of its node sequentially."""
        if not self.one_process:
            return ()
        gpus = int(np.bincount(cluster.host_of_rank).max())
        return self._launch_terms({"launch.gpu": gpus, "launch.channel": gpus * self.blocks(schedule.demand, cluster)})

    def _launch_terms(self, times: Mapping[str, int]) -> tuple[MessageConstants, ...]:
        once, constants = np.zeros(1, np.int64), self._constants
        return tuple(
            select_constant("launch", constants.named(name), once, count) for name, count in times.items() if count
        )

    def blocks(self, demand: Demand, cluster: Cluster) -> int:
        """Return the number of channels of a buffer, each of which is a thread block."""
        constants = self._constants
        generation = constants.generation_of(cluster.shape.gpu)
        linked = all(spec.nvlink is not None for spec in cluster.layout.node_set.specs)
        most = _CHANNELS_WITHOUT_NVLINK
        if generation is not None and linked:
            most = int(constants[f"generation.{generation}.channels"])
        return max(1, min(most, ceil(demand.buffer_bytes / constants[f"protocol.{self._plain}.part"])))

    def cache_key(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Hashable | None:
        """Return all inputs of `overheads`; those of switches depend on rates and sizes."""
        if sent.pattern.through_switch:
            return None
        announced = self._announced(sent, schedule, cluster)
        whole = schedule.stage.whole
        around = schedule.algorithm.partition(":")[0] == "ring"
        pipeline = None if whole is None else (schedule.demand.kind == "all_reduce", whole.key)
        return self, self.rates_of(cluster), announced, around, pipeline

    def rates_of(self, cluster: Cluster) -> Hashable:
        """Return those to hosts, the only ones that limits follow, see `message_overheads`."""
        return tuple(spec.pcie.rate_Bps if spec.pcie else 0.0 for spec in cluster.layout.node_set.specs)

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return the overheads of hops and protocol; rounds of rings and pipelines have a round latency."""
        pattern, whole = sent.pattern, schedule.stage.whole
        if pattern.through_switch:
            return switch_reduction_overheads(self._constants, self.protocol, sent, cluster, self.min_channels)
        announced = self._announced(sent, schedule, cluster)
        if whole is not None:
            channels = "tree" if schedule.demand.kind == "all_reduce" else ""
            total = _message_overheads(self, whole.round.pattern, cluster, channels, announced)
            part = total.take(pattern.part_of[1]) if pattern.part_of else total
            return replace(part, round_latency=_pipeline_latency(whole, total, cluster))
        channels = "ring" if schedule.algorithm.partition(":")[0] == "ring" else ""
        added = _message_overheads(self, pattern, cluster, channels, announced)
        if channels:
            route_ps = cluster.routes(pattern.src, pattern.dst).latency_ps
            return replace(
                added, round_latency=ring_round_latency(pattern, route_ps + added.latency_ps, added.latencies)
            )
        return added

    def each_message(
        self, pattern: Pattern, cluster: Cluster, channels: str = "", *, announced: bool = False
    ) -> Overheads:
        """Return the overheads of each message of a pattern without switch reduction.

        ``channels`` are ``ring`` or ``tree`` if a channel's rate is a limit; messages between nodes may be
        ``announced`` first.
        """
        constants, nodes, channel = self._constants, len(np.unique(cluster.node_of_rank)), ("", np.inf)
        generation = constants.generation_of(cluster.shape.gpu)
        if channels and generation is not None and nodes > 1:
            field = f"generation.{generation}.{channels}-{self.protocol}"
            if nodes == 2 and constants[f"{field}-two-nodes"] < np.inf:
                field = f"{field}-two-nodes"
            # A tree up and down has half of the bus bandwidth, and a channel has two trees.
            channel = field, constants[field] / (4 if channels == "tree" else 1)
        return message_overheads(constants, self.protocol, pattern, cluster, channel, announced=announced)

    def _announced(self, sent: Round, schedule: Schedule, cluster: Cluster) -> bool:
        """Return whether messages between nodes are announced: small buffers are not divided among all channels."""
        transports = {spec.transport for spec in cluster.layout.node_set.specs}
        constants, demand = self._constants, schedule.demand
        known = transports.intersection(constants.tables["network"])
        eager_bytes = min((constants[f"network.{name}.eager"] for name in known), default=0)
        largest_bytes = float(sent.bytes.max(initial=0))
        if demand.kind not in _MESSAGES:
            around = schedule.algorithm.partition(":")[0] == "ring"
            uncut_bytes = demand.buffer_bytes / (demand.ranks if around else 1)
            largest_bytes = max(largest_bytes, min(uncut_bytes, constants[f"protocol.{self.protocol}.part"]))
        return largest_bytes / constants[f"protocol.{self.protocol}.share"] >= eager_bytes

    @property
    def _plain(self) -> str:
        return max(self.protocol_names, key=lambda name: self._constants[f"protocol.{name}.share"])


# Patterns with parts in rounds, for each of three protocols of two algorithms that are compared.
@lru_cache(maxsize=8)
def _message_overheads(
    profile: NcclProfile, pattern: Pattern, cluster: Cluster, channels: str, announced: bool
) -> Overheads:
    return profile.each_message(pattern, cluster, channels, announced=announced)


@lru_cache(maxsize=8)
def _pipeline_latency(whole: CombinedRound, added: Overheads, cluster: Cluster) -> RoundLatency:
    route_ps = cluster.routes(whole.round.pattern.src, whole.round.pattern.dst).latency_ps
    return pipeline_round_latency(whole, route_ps + added.latency_ps, added.latencies)


def _all_direct(cluster: Cluster) -> bool:
    """Return whether messages use NVLink inside nodes, and paths without a processor between nodes."""
    used = cluster.layout.node_set
    specs = [used.specs[spec] for spec in np.unique(used.spec[cluster.node_of_rank])]
    together = int(np.bincount(cluster.node_of_rank).max()) > 1
    several = len(np.unique(cluster.node_of_rank)) > 1
    linked = not together or all(spec.nvlink is not None for spec in specs)
    return linked and (not several or all(spec.path == "switch" for spec in specs))


# NCCL's own choice, by src/graph/tuning.cc of v2.30.7-1, in microseconds, by (tree, ring): base latencies, and those of
# a step inside a node and between nodes.
_BASE_US = {"LL": (6.8, 6.6), "Simple": (8.4, 8.4)}
_NVLINK_US = {"LL": (0.6, 0.6), "Simple": (4.0, 3.4)}
_PCIE_US = {"LL": (1.0, 1.0), "Simple": (4.0, 5.7)}
_NETWORK_US = {"LL": (5.0, 2.7), "Simple": (14.0, 14.0)}
_POSTING_US = {"LL": 1.0, "Simple": 3.0}
# Shares of the bus bandwidth of a protocol.
_RING_TERMS = {"LL": 0.5, "Simple": 1.0}
_TREE_TERMS = {"LL": 0.92 / 3.8, "Simple": 0.92}
# Factors of a tree's bandwidth, from 64 bytes on and for each doubling.
_CORRECTION = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
    ),
}
# Rings with at least that many bytes per channel and rank have longer latencies on GPUs before Ampere.
_LONG_BYTES, _LONGER = 64, 1.9


@dataclass(frozen=True, slots=True)
class TunerModel(NcclProfile):
    """NCCL with its own choice between rings and trees over several nodes, by its estimates.

    It estimates a tree at half of the bus bandwidth for any number of nodes n, and a ring at n / (2 (n - 1)) of it: so
    large messages use rings also where trees would be faster, as on two nodes.
    """

    def choose(self, demand: Demand, cluster: Cluster) -> str | None:
        """Return ``ring`` if NCCL estimates it to be faster than a tree; None leaves the fastest."""
        names = " ".join(self.candidates(demand, cluster))
        if demand.kind != "all_reduce" or "double-binary-tree" not in names or "nvls" in names:
            return None
        tree_us, ring_us = estimates_us(demand.buffer_bytes, cluster)
        return "ring" if ring_us <= tree_us else None


def estimates_us(size_bytes: int, cluster: Cluster) -> tuple[float, float]:
    """Return NCCL's estimates of a tree and of a ring over several nodes, in microseconds."""
    ranks, nodes = cluster.workers, len(np.unique(cluster.node_of_rank))
    ranks_per_node = ranks / nodes
    specs = cluster.layout.node_set.specs
    bus_GBps = min(spec.nics * spec.nic.rate_Bps for spec in specs) / 1e9
    inside_us = _NVLINK_US if all(spec.nvlink is not None for spec in specs) else _PCIE_US
    power = floor(log2(max(1, size_bytes / 64)))
    trees, rings = [], []
    for protocol, (tree_base_us, ring_base_us) in _BASE_US.items():
        tree_in_us, ring_in_us = inside_us[protocol]
        tree_net_us, ring_net_us = _NETWORK_US[protocol]
        corrections = _CORRECTION[protocol]
        correction = corrections[power] if power < len(corrections) else 1.0
        latency_us = tree_base_us + 2 * ((ranks_per_node - 1) * tree_in_us + floor(log2(nodes)) * tree_net_us)
        trees.append(latency_us + size_bytes / (1e3 * bus_GBps * _TREE_TERMS[protocol] * 0.5 * correction))
        between, steps = 2 * (nodes - 1), 2 * (ranks - 1)
        net_us = tree_net_us if ranks_per_node == 1 else ring_net_us
        latency_us = ring_base_us + (steps - between) * max(ring_in_us, _POSTING_US[protocol]) + between * net_us
        if protocol == "Simple" and size_bytes / ranks >= _LONG_BYTES:
            latency_us *= _LONGER
        rings.append(latency_us + size_bytes / (1e3 * bus_GBps * _RING_TERMS[protocol] * ranks / steps))
    return min(trees), min(rings)
