"""The profile of a library whose constants are known: what its launches, hops and protocols take beside the wire."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil

import numpy as np

from s2sim.collectives.algorithms.tree import tree_channels
from s2sim.collectives.schedules.channels import channel_count
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, RoundLatency
from s2sim.collectives.schedules.round_latency import pipeline_round_latency, ring_round_latency
from s2sim.collectives.schedules.schedule import CombinedRound, Pattern, Round, Schedule
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.errors import S2SimError
from s2sim.libraries.constants import ConstantOverrides, LibraryConstants, ProtocolConstants, Version, load_constants
from s2sim.libraries.message_latency import inter_node_path, message_overheads, select_constant
from s2sim.libraries.nccl_rules import MAX_PIECES, most_peers, switch_reduction_overheads, tree_pieces
from s2sim.topology.cluster import Cluster
from s2sim.topology.quantity import Quantity
from s2sim.topology.shape import ClusterShape

# Of GPUs that NVLink does not join.
_CHANNELS_WITHOUT_NVLINK = 2
# Kinds that NCCL makes of sends and receives.
_MESSAGES = ("all_to_all", "send_recv")


@dataclass(frozen=True, slots=True)
class NcclProfile(LibraryProfile):
    """Constants of a library, how its processes are launched, and which protocol it sends with.

    A hop takes the latency of its link, of the protocol over that kind of link, and between nodes of the network and
    of the way to it. What is sent takes 1/share of its bytes on the network: of the protocol, of the link, of the
    network.

    Attributes
    ----------
    library, own : str, Own
        Whose constants, a file of ``libraries/``, and constants in place of these.
    one_process : bool
        Whether one process launches on all GPUs of its node, one after the other.
    chosen, only : str
        Protocol, empty for the fastest, and that to which the user restricts the choice.
    version : tuple of int
        Of the library, which has what came with it or before; none for the newest.
    min_channels : int
        Least number of channels that the user set.
    """

    library: str
    one_process: bool = False
    chosen: str = ""
    only: str = ""
    version: Version = ()
    min_channels: int = 1
    own: ConstantOverrides = ()

    @property
    def protocol(self) -> str:
        """Name of the protocol."""
        return self.chosen

    def unmodelled_reason(self, shape: ClusterShape) -> str | None:
        """Return why constants do not tell what networks of a shape take; None where they do."""
        try:
            for spec in shape.nodes:
                inter_node_path(self._constants, spec)
        except S2SimError as error:
            return str(error)
        return None

    @property
    def used_quantities(self) -> tuple[Quantity, ...]:
        """All constants of the library."""
        return self._constants.quantities

    def assumed(self, shape: ClusterShape) -> str:
        """Return the networks, and how processes are launched."""
        networks = " and ".join(dict.fromkeys(str(spec.transport) for spec in shape.nodes))
        return f"with its constants for {networks}, one process a {'node' if self.one_process else 'GPU'}"

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Names of all protocols of the library."""
        return tuple(each.name for each in self._constants.protocols)

    def candidates(self, demand: Demand, cluster: Cluster) -> tuple[str, ...]:
        """Return the algorithms of a kind, trees in as many pieces as each protocol sends; none for other kinds.

        Along a chain data goes as it comes, line by line. NVSwitches reduce between the GPUs that the constants name.
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
            names = [each.name for each in self._constants.protocols]
            pieces = sorted({self._tree_pieces(name, demand, cluster) for name in names})
            trees = tuple(f"double-binary-tree:chunks={chunks}" for chunks in pieces)
        switch = "nvls-tree" if several else "in-network"
        generation = self._constants.generation_of(cluster.shape.gpu)
        reduces = generation is not None and generation.switched is not None and _all_nvswitch(cluster) and has(switch)
        reduces = reduces and self.only in ("", self._plain.name)
        return ("ring", *trees, *((switch,) if reduces else ()))

    def protocols(self, schedule: Schedule, cluster: Cluster) -> tuple[LibraryProfile, ...]:
        """Return one profile for each protocol of this cluster; the last of them, plain data, alone for some.

        Switches reduce so, and so are large messages sent from one rank to another.
        """
        constants, kind = self._constants, schedule.demand.kind
        known = sorted(constants.protocols, key=lambda each: each.share)
        plain = known[-1:]
        known = [each for each in known if constants.has(each.name, self.version)]
        if schedule.assisted:
            known = plain
        elif kind in _MESSAGES:
            small = constants.has("messages", self.version)
            size_bytes = max((float(step.round.bytes.max(initial=0.0)) for step in schedule.steps[:1]), default=0.0)
            known = [each for each in known if size_bytes <= each.messages_bytes] if small else plain
        elif self.only:
            known = [each for each in constants.protocols if each.name == self.only]
        else:
            known = [each for each in known if not each.direct or _all_direct(cluster)]
        if kind == "all_reduce" and schedule.stage.whole is not None:
            # One that is cut as none of the protocols cuts it was asked for.
            pieces, demand = schedule.stage.whole.times, schedule.demand
            known = [each for each in known if self._tree_pieces(each.name, demand, cluster) == pieces] or known
        return tuple(replace(self, chosen=each.name) for each in known)

    def _tree_pieces(self, protocol: str, demand: Demand, cluster: Cluster) -> int:
        trees = 2 * tree_channels(channel_count(cluster, None), demand.ranks)
        in_node = np.bincount(cluster.node_of_rank)
        return tree_pieces(protocol, demand.buffer_bytes, trees, int((in_node > 0).sum()), int(in_node.max()))

    def launch_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the latency of a launch, and that of each peer."""
        constants, once = self._constants, np.zeros(1, np.int64)
        if schedule.demand.ranks == 1:
            # NCCL launches no kernel where there is nobody to exchange with (`ncclLaunchOneRank`).
            return ()
        made_of = [("launch.collective", constants.launch_ps, 1)]
        if schedule.demand.kind in _MESSAGES:
            inside, between = most_peers(schedule.demand, cluster.node_of_rank)
            made_of += [("peer.inside", constants.peer_inside_ps, inside)]
            made_of += [("peer.network", constants.peer_between_ps, between)]
        return tuple(select_constant("launch", [(name, ps)], once, times) for name, ps, times in made_of if times)

    def host_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return what a process takes that launches on one GPU of its node after the other, ahead of them."""
        if not self.one_process:
            return ()
        constants, once = self._constants, np.zeros(1, np.int64)
        gpus = int(np.bincount(cluster.host_of_rank).max())
        launches = select_constant("launch", [("launch.gpu", constants.launch_gpu_ps)], once, gpus)
        channels = self.blocks(schedule.demand, cluster)
        return launches, select_constant(
            "launch", [("launch.channel", constants.launch_channel_ps)], once, gpus * channels
        )

    def blocks(self, demand: Demand, cluster: Cluster) -> int:
        """Return how many channels a buffer is cut among, each of which is a thread block."""
        generation = self._constants.generation_of(cluster.shape.gpu)
        linked = all(spec.nvlink is not None for spec in cluster.dims.node_set.specs)
        most = generation.channels if generation is not None and linked else _CHANNELS_WITHOUT_NVLINK
        return max(1, min(most, ceil(demand.buffer_bytes / self._plain.part_bytes)))

    def cache_key(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Hashable | None:
        """Return all that `overheads` look at; those of switches depend on rates and sizes."""
        if sent.pattern.through_switch:
            return None
        # The only rates that limits follow, see `message_overheads`.
        to_hosts = tuple(spec.pcie.rate_Bps if spec.pcie else 0.0 for spec in cluster.dims.node_set.specs)
        announced = self._announced(sent, schedule, cluster)
        whole = schedule.stage.whole
        around = schedule.algorithm.partition(":")[0] == "ring"
        pipeline = None if whole is None else (schedule.demand.kind == "all_reduce", whole.key)
        return self, to_hosts, announced, around, pipeline

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return what hops and protocol add; rounds of rings and pipelines have a clock."""
        pattern, whole = sent.pattern, schedule.stage.whole
        if pattern.through_switch:
            return switch_reduction_overheads(self._constants, self._sends_with, sent, cluster, self.min_channels)
        announced = self._announced(sent, schedule, cluster)
        if whole is not None:
            channels = "tree" if schedule.demand.kind == "all_reduce" else ""
            every = _message_overheads(self, whole.round.pattern, cluster, channels, announced)
            found = every.take(pattern.part_of[1]) if pattern.part_of else every
            return replace(found, round_latency=_pipeline_latency(whole, every, cluster))
        channels = "ring" if schedule.algorithm.partition(":")[0] == "ring" else ""
        found = _message_overheads(self, pattern, cluster, channels, announced)
        if channels:
            way_ps = cluster.routes(pattern.src, pattern.dst).latency_ps
            return replace(found, round_latency=ring_round_latency(pattern, way_ps + found.latency_ps, found.latencies))
        return found

    def each_message(
        self, pattern: Pattern, cluster: Cluster, channels: str = "", *, announced: bool = False
    ) -> Overheads:
        """Return what hops and protocol add to each message of a pattern through no switch.

        ``channels`` are ``ring`` or ``tree`` where a channel's rate is a limit; messages between nodes may be
        ``announced`` first.
        """
        channel = self._channel(channels, cluster)
        return message_overheads(self._constants, self._sends_with, pattern, cluster, channel, announced=announced)

    def _announced(self, sent: Round, schedule: Schedule, cluster: Cluster) -> bool:
        """Return whether messages between nodes are so large that they are announced.

        Small buffers are not cut among all channels, but sent whole, or by a ring each rank's part of them.
        """
        transports = {spec.transport for spec in cluster.dims.node_set.specs}
        eager_bytes = min((way.eager_bytes for name, way in self._constants.networks if name in transports), default=0)
        demand, protocol = schedule.demand, self._sends_with
        largest_bytes = float(sent.bytes.max(initial=0))
        if demand.kind not in _MESSAGES:
            around = schedule.algorithm.partition(":")[0] == "ring"
            uncut_bytes = demand.buffer_bytes / (demand.ranks if around else 1)
            largest_bytes = max(largest_bytes, min(uncut_bytes, protocol.part_bytes))
        return largest_bytes / protocol.share >= eager_bytes

    def _channel(self, channels: str, cluster: Cluster) -> tuple[str, float]:
        """Return the constant that limits a channel's messages between nodes, and that limit in data a second.

        A channel's rate is told as bus bandwidth, of which a tree that goes up and down has half. Here a channel has
        two trees, each for half of its data.
        """
        generation, nodes = self._constants.generation_of(cluster.shape.gpu), len(np.unique(cluster.node_of_rank))
        if not channels or generation is None or nodes == 1:
            return "", np.inf
        known, name = dict(generation.channel_Bps), f"{channels}-{self.chosen}"
        if nodes == 2 and f"{name}-two-nodes" in known:
            name = f"{name}-two-nodes"
        parts = 4 if channels == "tree" else 1
        return f"generation.{generation.name}.{name}", known.get(name, np.inf) / parts

    @property
    def _plain(self) -> ProtocolConstants:
        return max(self._constants.protocols, key=lambda each: each.share)

    @property
    def _sends_with(self) -> ProtocolConstants:
        return next(each for each in self._constants.protocols if each.name == self.chosen)

    @property
    def _constants(self) -> LibraryConstants:
        return load_constants(self.library, self.own)


# A pattern of which rounds have parts, with each of three protocols, beside one that it is compared with.
@lru_cache(maxsize=8)
def _message_overheads(
    profile: NcclProfile, pattern: Pattern, cluster: Cluster, channels: str, announced: bool
) -> Overheads:
    """Return ``profile.each_message`` of the same pattern once."""
    return profile.each_message(pattern, cluster, channels, announced=announced)


@lru_cache(maxsize=8)
def _pipeline_latency(whole: CombinedRound, added: Overheads, cluster: Cluster) -> RoundLatency:
    """Return what clocks a pipeline once."""
    way_ps = cluster.routes(whole.round.pattern.src, whole.round.pattern.dst).latency_ps
    return pipeline_round_latency(whole, way_ps + added.latency_ps, added.latencies)


def _all_direct(cluster: Cluster) -> bool:
    """Return whether messages go over NVLink inside nodes, and between nodes past no processor."""
    used = cluster.dims.node_set
    specs = [used.specs[spec] for spec in np.unique(used.spec[cluster.node_of_rank])]
    together = int(np.bincount(cluster.node_of_rank).max()) > 1
    several = len(np.unique(cluster.node_of_rank)) > 1
    linked = not together or all(spec.nvlink is not None for spec in specs)
    return linked and (not several or all(spec.path == "switch" for spec in specs))


def _all_nvswitch(cluster: Cluster) -> bool:
    """Return whether every node with several of the ranks has an NVSwitch."""
    nodes = cluster.dims.node_set
    several = np.flatnonzero(np.bincount(cluster.node_of_rank) > 1)
    return bool(len(several)) and all(nodes.specs[spec].has_nvswitch for spec in np.unique(nodes.spec[several]))
