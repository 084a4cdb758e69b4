"""The profile of libraries with messages between host memories, MPI and Gloo."""

from dataclasses import dataclass, replace
from math import ceil, inf, isinf

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, overheads_of
from s2sim.collectives.schedules.round_latency import inside_node, ring_round_latency
from s2sim.collectives.schedules.schedule import Round, Schedule
from s2sim.errors import TopologyError
from s2sim.libraries.constants import LibraryConstants
from s2sim.libraries.message_latency import ConstantsProfile, select_constant, transport_of
from s2sim.options import join_option_string, split_option_string
from s2sim.topology.cluster import Cluster
from s2sim.topology.shape import NodeSpec
from s2sim.units import PS_PER_S

INTRA_NODE = "shared-memory"
"""The transport of messages inside a node."""
ANY_TRANSPORT = "any"
"""Every network without its own table."""

# The second half of the rounds of these forwards sums, and rounds of both halves are equal: half of each message is
# added.
_GATHERED_AFTER = ("ring", "halving-doubling")


@dataclass(frozen=True, slots=True)
class HostLibraryProfile(ConstantsProfile):
    """Constants of a library: a message has an additional latency and takes 1/share of its bytes on the network.

    Small messages are copied, larger ones announced first; reductions add received data before they continue.
    """

    def check_network(self, spec: NodeSpec) -> None:
        """Raise `S2SimError` if the constants do not tell a node's network."""
        carrier(self._constants, transport_of(spec, self.library))

    def candidates(self, demand: Demand, cluster: Cluster) -> tuple[str, ...]:
        """Return the library's algorithms of a kind, rings with chunks no larger than a segment."""
        algorithms: tuple[str, ...] = self._constants.values.get(f"algorithms.{demand.kind}", ())
        if demand.ranks <= (cluster.shape.processors or inf):
            # Ranks that need not wait for a processor post together, and none is ahead of another.
            algorithms = tuple(option_string.replace("spread:turns=true", "spread") for option_string in algorithms)
        found = []
        for text in algorithms:
            name, options = split_option_string(text)
            if name != "ring" or "chunks" not in options:
                found.append(text)
            elif demand.shared:
                segments = ceil(demand.buffer_bytes / demand.ranks / self._constants["ring.segment"])
                chunks = max(int(options["chunks"]), segments)
                found.append(join_option_string(name, {**options, "chunks": str(chunks)}))
            else:
                # Unequal contributions are forwarded whole.
                found.append(text if len(set(demand.sizes_bytes.tolist())) == 1 else "ring:channels=1")
        return tuple(found)

    def launch_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the latency of a call; ranks that share processors call sequentially."""
        turns = max(1.0, schedule.demand.ranks / (cluster.shape.processors or inf))
        call_ps = ceil(turns * self._constants["call.latency"])
        return (select_constant("launch", [("call.latency", call_ps)], np.zeros(1, np.int64)),)

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return the overheads of each message of a round; a ring's round latency is the mean around it."""
        pattern, algorithm = sent.pattern, schedule.algorithm.partition(":")[0]
        result = self._transport_overheads(sent.bytes, inside_node(cluster, pattern), cluster)
        added = np.zeros(pattern.messages)
        add = "memory.add_half" if schedule.demand.itemsize == 2 else "memory.add"
        add_Bps = self._constants[add]
        if schedule.demand.kind in ("all_reduce", "reduce", "reduce_scatter"):
            half = schedule.demand.kind == "all_reduce" and algorithm in _GATHERED_AFTER
            added = sent.bytes / 2 if half else sent.bytes
        if cluster.shape.processors is not None:
            result = self._limit_by_processors(result, sent, added / add_Bps, cluster)
        elif added.any():
            adding = _bandwidth_term("addition", add, added, add_Bps)
            result = overheads_of([*result.latencies, adding], result.shares, result.limits)
        if algorithm == "ring":
            hop_ps = cluster.routes(pattern.src, pattern.dst).latency_ps + result.latency_ps
            return replace(result, round_latency=ring_round_latency(pattern, hop_ps, result.latencies))
        return result

    def _limit_by_processors(self, wire: Overheads, sent: Round, adding_s: Floats, cluster: Cluster) -> Overheads:
        """Limit a round's messages by processor time per message, packet, byte and addition: all end together."""
        constants, shape = self._constants, cluster.shape
        packets = np.ceil(sent.bytes / (shape.packet_bytes or inf))
        fixed_s = (constants["processor.message"] + packets * constants["processor.packet"]) / PS_PER_S
        work_s = fixed_s + sent.bytes / constants["processor.rate"] + adding_s
        busy_s = max(float(work_s.sum()) / (shape.processors or 1), float(work_s.max()))
        if busy_s == 0:
            return wire
        sent_bytes = sent.bytes * wire.factor
        wire_s = 0.0
        if not sent.pattern.through_switch:
            routes = cluster.routes(sent.pattern.src, sent.pattern.dst)
            crossing = np.repeat(sent_bytes, np.diff(routes.offsets)) * routes.weights
            wire_s = float((np.bincount(routes.links, crossing, len(cluster.fabric)) / cluster.fabric.rate_Bps).max())
        slower_s, overlap = max(busy_s, wire_s), constants["processor.overlap"]
        if not isinf(overlap):
            slower_s *= ((busy_s / slower_s) ** overlap + (wire_s / slower_s) ** overlap) ** (1 / overlap)
        able_Bps = np.divide(sent_bytes, slower_s, out=np.full(len(sent_bytes), inf), where=sent_bytes > 0)
        values = np.minimum(able_Bps, wire.limit_Bps)
        # Processor time is a sum over constants, and proportional to none.
        limit = MessageConstants("limit", ((),) * len(values), values, np.arange(len(values)))
        return overheads_of(wire.latencies, wire.shares, [limit])

    def _transport_overheads(self, sizes_bytes: Floats, inside: Mask, cluster: Cluster) -> Overheads:
        constants = self._constants
        transports = [] if inside.all() else [transport_of(cluster.layout.node_set.specs[0], self.library)]
        carriers = [carrier(constants, transport) for transport in (INTRA_NODE, *transports)]
        row = np.where(inside, 0, len(carriers) - 1)
        eager = np.array([constants[f"{each}.eager"] for each in carriers])[row] > sizes_bytes

        def named(key: str) -> list[tuple[str, float]]:
            return constants.named(*(f"{each}.{key}" for each in carriers))

        rendezvous = [*named("rendezvous"), ("", 0.0)]
        latencies = [
            select_constant("hop", named("latency"), row),
            select_constant("rendezvous", rendezvous, np.where(eager, len(carriers), row)),
        ]
        for number, (copy, copy_Bps) in enumerate(named("copy")):
            copied = np.where(eager & (row == number), sizes_bytes, 0.0)
            latencies.append(_bandwidth_term("copy", copy, copied, copy_Bps))
        share, limit = select_constant("share", named("share"), row), select_constant("limit", named("stream"), row)
        return overheads_of(latencies, [share], [limit])


def carrier(constants: LibraryConstants, transport: str) -> str:
    """Return the table of a transport's constants; `TopologyError` if there is none."""
    known = constants.tables["network"]
    name = transport if transport in known else ANY_TRANSPORT
    if name not in known:
        raise TopologyError(
            f"the constants of {constants.name} do not tell the network {transport}: they have {', '.join(known)}"
        )
    return f"network.{name}"


def _bandwidth_term(kind: str, constant: str, sizes_bytes: Floats, rate_Bps: float) -> MessageConstants:
    """Return the time of each message's bytes at the rate of a constant, rounded up to picoseconds."""
    row: Ints
    sizes, row = np.unique(sizes_bytes, return_inverse=True)
    powers = ((constant, -1),)
    return MessageConstants(kind, tuple(powers for _ in sizes), np.ceil(sizes / rate_Bps * PS_PER_S), row)
