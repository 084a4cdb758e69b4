"""The profile of NCCL and its descendants: the overheads of launches, hops and protocols, and what it chooses by."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil

import numpy as np

from s2sim.collectives.algorithms.tree import tree_channels
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, RoundLatency
from s2sim.collectives.schedules.pipeline import channel_count, ranks_by_node
from s2sim.collectives.schedules.round_latency import pipeline_round_latency, ring_round_latency
from s2sim.collectives.schedules.schedule import CombinedRound, Pattern, Round, Schedule
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.libraries import message_latency as messages
from s2sim.libraries.constants import Version
from s2sim.libraries.tuner import ChannelGraph, channel_graph, estimate_us
from s2sim.topology.cluster import Cluster
from s2sim.topology.shape import ClusterShape, NodeSpec

_CHANNELS_WITHOUT_NVLINK = 2
_BLOCKS_A_CHANNEL = 2  # of a channel that NCCL's search finds between nodes
_MOST_WITHOUT_NVLS = 2  # GPUs of a node (`ncclNvlsInit` in src/transport/nvls.cc)
_FLAGGED = "LL"  # the protocol with a flag beside each four bytes
# Hierarchical and torus are kernels in turn; what is none of these consists of sends and receives.
_KERNELS = ("ring", "chain", "double-binary-tree", "in-network", "nvls-tree", "pat", "hierarchical", "torus")


@dataclass(frozen=True, slots=True)
class NcclProfile(messages.ConstantsProfile):
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
        messages.inter_node_path(self._constants, spec)

    def assumed(self, shape: ClusterShape) -> str:
        """Return the networks and the launch of processes as text."""
        network = messages.ConstantsProfile.assumed(self, shape)
        return f"{network}, one process a {'node' if self.one_process else 'GPU'}"

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Names of all protocols of the library."""
        return self._constants.tables["protocol"]

    def candidates(self, demand: Demand, cluster: Cluster) -> tuple[str, ...]:
        """Return the algorithms of a kind, trees with the chunks of each protocol; none for other kinds.

        A chain forwards data as it arrives, line by line. NVSwitches reduce between the GPUs that the constants name.
        """
        several, has = cluster.nodes_used > 1, partial(self._constants.has, version=self.version)
        order = "order=nodes" if (np.diff(ranks_by_node(cluster)) != 1).any() else ""
        if demand.kind in ("broadcast", "reduce"):
            chain = f"chain:channels={channel_count(cluster, None)},chunks={messages.MAX_PIECES}"
            return (f"{chain},{order}".removesuffix(","),)
        ring = f"ring:{order}".removesuffix(":")
        graph = self._graph(cluster)
        if demand.kind in ("all_gather", "reduce_scatter"):
            one_a_node = several and cluster.nodes_used == cluster.workers
            if graph is None or not one_a_node or not has("pat") or self.only not in ("", self._plain):
                return (ring,)
            part = demand.sizes_bytes.max() / graph.blocks
            return (ring, f"pat:aggregation={messages.pat_aggregation(part, demand.ranks)}")
        if demand.kind != "all_reduce":
            return ()
        trees: tuple[str, ...] = ()
        if several and has("tree"):
            pieces = sorted({self._tree_pieces(name, demand, cluster) for name in self._available(cluster)})
            trees = tuple(f"double-binary-tree:chunks={chunks}" for chunks in pieces)
        switch = "nvls-tree" if several else "in-network"
        nodes, (used, members) = cluster.layout.node_set, np.unique(cluster.node_of_rank, return_counts=True)
        switched = all(nodes.specs[spec].has_nvswitch for spec in np.unique(nodes.spec[used]))
        switched = switched and int(members.min()) > _MOST_WITHOUT_NVLS
        reduces = graph is not None and graph.generation in self._constants.tables["in-network"] and has(switch)
        reduces = reduces and switched and self.only in ("", self._plain) and switch not in self._turned_off(cluster)
        return (ring, *trees, *((switch,) if reduces else ()))

    def estimate_us(self, demand: Demand, algorithm: str, cluster: Cluster) -> float | None:
        """Return NCCL's own estimate with this protocol; None for one rank, or GPUs without constants."""
        graph, name = self._graph(cluster), algorithm.partition(":")[0]
        if graph is None or demand.ranks == 1:
            return None
        return estimate_us(graph, demand, name, self.protocol, self.version)

    def _graph(self, cluster: Cluster) -> ChannelGraph | None:
        generation = self._constants.generation_of(cluster.shape.gpu)
        return None if generation is None else _channel_graph(cluster, generation, self.version)

    def protocols(self, schedule: Schedule, cluster: Cluster) -> tuple[LibraryProfile, ...]:
        """Return one profile per protocol of this cluster; switch reduction and large messages use plain data only."""
        constants, kind = self._constants, schedule.demand.kind
        by_share = sorted(self.protocol_names, key=lambda name: constants[f"protocol.{name}.share"])
        if schedule.assisted or _name(schedule) == "pat":
            protocols = by_share[-1:]
        elif _sends(schedule):
            small = constants.has("messages", self.version)
            steps = schedule.steps[:1] if kind == "all_to_all" else schedule.steps
            size_bytes = max((float(step.round.bytes.max(initial=0.0)) for step in steps), default=0.0)
            known = [name for name in by_share if constants.has(name, self.version)]
            # The first that takes messages of that size.
            taken = [name for name in known if size_bytes <= constants[f"protocol.{name}.messages"]][:1]
            protocols = taken if small else by_share[-1:]
        else:
            protocols = self._available(cluster)
        if schedule.wants_protocol in self._available(cluster):
            protocols = [schedule.wants_protocol]
        if kind == "all_reduce" and schedule.stage.whole is not None:
            # The user may request chunks that no protocol has.
            pieces, demand = schedule.stage.whole.times, schedule.demand
            protocols = [name for name in protocols if self._tree_pieces(name, demand, cluster) == pieces] or protocols
        return tuple(replace(self, protocol=name) for name in protocols)

    def _available(self, cluster: Cluster) -> list[str]:
        """Return the protocols of collectives on a cluster, the one with least data in a byte first."""
        if self.only:
            return [name for name in self.protocol_names if name == self.only]
        constants, off = self._constants, self._turned_off(cluster)
        used = cluster.layout.node_set
        specs = [used.specs[spec] for spec in np.unique(used.spec[cluster.node_of_rank])]
        # NVLink inside nodes, and paths without a processor between them, or past one that NVLink-C2C joins to the GPU,
        # which has no PCIe.
        direct = int(np.bincount(cluster.node_of_rank).max()) == 1 or all(spec.nvlink is not None for spec in specs)
        if cluster.nodes_used > 1:
            past_processors = constants.has("LL128-c2c", self.version)
            direct &= all(spec.path == "switch" and (past_processors or spec.pcie is not None) for spec in specs)
        lacks = ["without"] if constants.has("LL128-untested", self.version) else ["without", "untested"]
        known = [name for name in self.protocol_names if constants.has(name, self.version) and name not in off]
        for name in [name for name in known if constants[f"protocol.{name}.ways"]]:
            if not direct or any(cluster.shape.gpu in constants.values[f"protocol.{name}.{each}"] for each in lacks):
                known.remove(name)
        return sorted(known, key=lambda name: constants[f"protocol.{name}.share"])

    def _tree_pieces(self, protocol: str, demand: Demand, cluster: Cluster) -> int:
        in_node = np.bincount(cluster.node_of_rank)
        nodes, most, channels = int((in_node > 0).sum()), int(in_node.max()), self._tree_channels(demand, cluster)
        return messages.tree_pieces(protocol, demand.buffer_bytes, channels, nodes, most)

    def _tree_channels(self, demand: Demand, cluster: Cluster) -> int:
        graph = self._graph(cluster)
        if graph is None or graph.nodes == 1:
            return 2 * tree_channels(channel_count(cluster, None), demand.ranks)
        return graph.blocks

    def _waiting_chunks(self, whole: CombinedRound, demand: Demand, cluster: Cluster) -> int:
        """Return the number of chunks of trees that wait until the one before has passed the network."""
        if demand.kind != "all_reduce" or cluster.nodes_used == 1:
            return 0
        # As public curves have it, the share of them that chunks leave empty of a step of a channel's buffers.
        chunk = demand.buffer_bytes / (self._tree_channels(demand, cluster) * whole.times)
        return round((whole.times - 1) * max(0.0, 1 - chunk / messages.step_bytes(self.protocol)))

    def launch_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the latency of a launch, and that of each peer."""
        if schedule.demand.ranks == 1:
            # NCCL launches no kernel for a single rank (`ncclLaunchOneRank`).
            return ()
        times = {"launch.collective": 1}
        if self.protocol and not schedule.assisted:
            times[f"protocol.{self.protocol}.launch"] = 1
        if _sends(schedule):
            calls, inside, between = messages.count_sends(schedule, cluster.node_of_rank)
            times = dict.fromkeys(times, calls) | {"peer.message": inside + between, "peer.network": between}
        elif _name(schedule) == "pat":
            times["pat.rank"] = schedule.demand.ranks
        return self._launch_terms(times)

    def host_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the time of a process that launches on the GPUs of its node sequentially."""
        if not self.one_process or schedule.demand.ranks == 1:
            return ()
        gpus = int(np.bincount(cluster.host_of_rank).max())
        if _sends(schedule):
            calls, *peers = messages.count_sends(schedule, cluster.node_of_rank)
            return self._launch_terms({"launch.gpu": calls * gpus, "peer.message": gpus * sum(peers)})
        channels = 0 if self._constants.has("shared-work", self.version) else self.blocks(schedule.demand, cluster)
        return self._launch_terms({"launch.gpu": gpus, "launch.channel": gpus * channels})

    def _launch_terms(self, times: Mapping[str, int]) -> tuple[MessageConstants, ...]:
        once, constants = np.zeros(1, np.int64), self._constants
        return tuple(
            messages.select_constant("launch", constants.named(name), once, count)
            for name, count in times.items()
            if count * constants[name]
        )

    def blocks(self, demand: Demand, cluster: Cluster) -> int:
        """Return the number of channels of a buffer of plain data, each of which is a thread block."""
        return self._filled(demand.buffer_bytes / self._constants[f"protocol.{self._plain}.part"], cluster)

    def _filled(self, parts: float, cluster: Cluster) -> int:
        constants, most = self._constants, _CHANNELS_WITHOUT_NVLINK
        generation = constants.generation_of(cluster.shape.gpu)
        if generation is not None and all(spec.nvlink is not None for spec in cluster.layout.node_set.specs):
            most = int(constants[f"generation.{generation}.channels"])
        return max(1, ceil(min(most, parts)))

    def channels(self, schedule: Schedule, cluster: Cluster) -> tuple[int, int]:
        """Return the channels that a buffer fills, and how many there are; each has a least part of it.

        Of a ring with LL that is for each rank. `topoGetAlgoInfo` in src/enqueue.cc, NCCL v2.30.7-1.
        """
        demand, around, graph = schedule.demand, _around(schedule), self._graph(cluster)
        several = max(graph.blocks, self.min_channels) if graph and graph.nodes > 1 else 0
        most = several or self._filled(np.inf, cluster)
        if _sends(schedule) or (demand.kind != "all_reduce" and not around):
            return most, most
        parts = demand.buffer_bytes / self._constants[f"protocol.{self.protocol}.part"]
        if around and self.protocol == _FLAGGED:
            parts /= demand.ranks
        return max(1, min(most, int(parts))), most

    def cache_key(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Hashable | None:
        """Return all inputs of `overheads`; those of switches depend on rates and sizes."""
        if sent.pattern.through_switch:
            return None
        whole = schedule.stage.whole
        demand, sending = schedule.demand, self.sending(sent, schedule, cluster)
        if whole is None:
            return self, self.rates_of(cluster), sending, _around(schedule)
        waits = self._waiting_chunks(whole, demand, cluster)
        return self, self.rates_of(cluster), sending, demand.kind == "all_reduce", whole.key, waits

    def sending(self, sent: Round, schedule: Schedule, cluster: Cluster) -> messages.Sending:
        """Return how the messages of a round are sent between nodes."""
        constants, demand, around = self._constants, schedule.demand, _around(schedule)
        transports = {spec.transport for spec in cluster.layout.node_set.specs}
        known = transports.intersection(constants.tables["network"])
        eager_bytes = min((constants[f"network.{name}.eager"] for name in known), default=0)
        largest_bytes = float(sent.bytes.max(initial=0))
        if not _sends(schedule):
            # Small buffers are not divided among all channels.
            uncut_bytes = demand.buffer_bytes / (demand.ranks if around else 1)
            largest_bytes = max(largest_bytes, min(uncut_bytes, constants[f"protocol.{self.protocol}.part"]))
        announced = largest_bytes / constants[f"protocol.{self.protocol}.share"] >= eager_bytes
        whole, (used, channels) = schedule.stage.whole, self.channels(schedule, cluster)
        chunk_bytes = np.inf if around else 0.0
        if not around and whole is not None and demand.kind != "all_reduce":
            # A post sends a step of buffers; that of the first one is part of the latency of its hops.
            bytes_a_round = float(whole.round.bytes.max(initial=0.0))
            posts = ceil(bytes_a_round * whole.times / messages.step_bytes(self.protocol))
            rounds = int(whole.first.max(initial=0)) + whole.times
            chunk_bytes = bytes_a_round * rounds / (posts - 1) if posts > 1 else 0.0
        to_children = demand.kind == "all_reduce" and whole is not None and cluster.nodes_used > 2
        return messages.Sending(announced, used / channels, chunk_bytes, to_children, _name(schedule) == "pat")

    def rates_of(self, cluster: Cluster) -> Hashable:
        """Return the rates to hosts, which limits follow, and the channels, which follow all rates."""
        graph = self._graph(cluster)
        return graph.channels if graph else 0, *(
            spec.pcie.rate_Bps if spec.pcie else 0.0 for spec in cluster.layout.node_set.specs
        )

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return the overheads of hops and protocol; rounds of rings and pipelines have a round latency."""
        pattern, whole = sent.pattern, schedule.stage.whole
        if pattern.through_switch:
            return messages.switch_reduction_overheads(self._constants, self.protocol, sent, cluster, self.min_channels)
        sending = self.sending(sent, schedule, cluster)
        if whole is not None:
            channels = "tree" if schedule.demand.kind == "all_reduce" else ""
            total = _message_overheads(self, whole.round.pattern, cluster, channels, sending)
            part = total.take(pattern.part_of[1]) if pattern.part_of else total
            waits = self._waiting_chunks(whole, schedule.demand, cluster)
            return replace(part, round_latency=_pipeline_latency(whole, total, cluster, waits))
        channels = "ring" if _around(schedule) else ""
        added = _message_overheads(self, pattern, cluster, channels, sending)
        if channels:
            route_ps = cluster.routes(pattern.src, pattern.dst).latency_ps
            return replace(
                added, round_latency=ring_round_latency(pattern, route_ps + added.latency_ps, added.latencies)
            )
        return added

    def each_message(
        self, pattern: Pattern, cluster: Cluster, channels: str = "", sending: messages.Sending | None = None
    ) -> Overheads:
        """Return the overheads of each message of a pattern without switch reduction.

        ``channels`` are ``ring`` or ``tree`` if the rate of channels is a limit.
        """
        sending = sending or messages.Sending()
        channel = self._channel_limit(cluster, channels, sending.use)
        return messages.message_overheads(self._constants, self.protocol, pattern, cluster, channel, sending)

    def _channel_limit(self, cluster: Cluster, channels: str, use: float) -> tuple[str, float]:
        """Return the constant that limits the data of a message, with its bytes/s where a share of channels is used."""
        constants, nodes, graph = self._constants, cluster.nodes_used, self._graph(cluster)
        if graph is None or (nodes > 1 and not channels):
            return "", np.inf
        table = f"generation.{graph.generation}"
        if nodes == 1:
            return f"{table}.{self.protocol}", constants[f"{table}.{self.protocol}"] * use
        lanes, blocks = channel_count(cluster, None), max(graph.blocks, self.min_channels)
        # A tree up and down has half of the bus bandwidth, and a channel has two trees.
        parts = 4 * lanes if channels == "tree" else lanes
        if self.protocol != _FLAGGED:
            field = f"{table}.{channels}-{self.protocol}"
            if nodes == 2 and constants[f"{field}-two-nodes"] < np.inf:
                field = f"{field}-two-nodes"
            return field, constants[field] * use * blocks / _BLOCKS_A_CHANNEL / parts
        # The filled channels send as fast as inside a node, in trees about half as fast, until the limit of the host.
        of_blocks, of_host = f"{table}.{_FLAGGED}", f"{table}.{_FLAGGED}-{'two' if nodes == 2 else 'more'}-nodes"
        filled = blocks * use / constants[f"{table}.channels"] / (2 if channels == "tree" else 1)
        field, value = min(
            (of_blocks, constants[of_blocks] * filled), (of_host, constants[of_host]), key=lambda limit: limit[1]
        )
        return field, value / parts

    def _turned_off(self, cluster: Cluster) -> set[str]:
        transports = {spec.transport for spec in cluster.layout.node_set.specs if cluster.nodes_used > 1}
        known = transports.intersection(self._constants.tables["network"])
        return {name for transport in known for name in self._constants.values[f"network.{transport}.off"]}

    @property
    def _plain(self) -> str:
        return max(self.protocol_names, key=lambda name: self._constants[f"protocol.{name}.share"])


def _name(schedule: Schedule) -> str:
    return schedule.algorithm.partition(":")[0]


def _around(schedule: Schedule) -> bool:
    return _name(schedule) == "ring"


def _sends(schedule: Schedule) -> bool:
    """Return whether a schedule consists of sends and receives; a program with a protocol of its own is a kernel."""
    # Frameworks make a barrier of NCCL by an all-reduce of a few bytes, one kernel.
    return not (_name(schedule) in _KERNELS or schedule.wants_protocol or schedule.demand.kind == "barrier")


_channel_graph = lru_cache(maxsize=16)(channel_graph)


# Patterns with parts in rounds, for each of three protocols of two algorithms that are compared.
_message_overheads = lru_cache(maxsize=8)(NcclProfile.each_message)


@lru_cache(maxsize=8)
def _pipeline_latency(whole: CombinedRound, added: Overheads, cluster: Cluster, waits: int) -> RoundLatency:
    route_ps = cluster.routes(whole.round.pattern.src, whole.round.pattern.dst).latency_ps
    # Of networks and the paths to them, not of a protocol
    parts = [(each, [name for powers in each.powers for name, _ in powers]) for each in added.latencies]
    ways = tuple(each for each, names in parts if any(name.endswith(".latency") for name in names))
    waits_ps = sum((each.each for each in ways), route_ps.astype(np.float64)).astype(np.int64), ways
    return pipeline_round_latency(whole, route_ps + added.latency_ps, added.latencies, waits, waits_ps)
