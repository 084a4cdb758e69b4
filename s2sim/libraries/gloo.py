"""The profile of libraries with messages between host memories, MPI and Gloo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import ceil, inf, isinf
from pathlib import Path

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, overheads_of
from s2sim.collectives.schedules.round_latency import inside_node, ring_round_latency
from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.errors import S2SimError, TopologyError, suggest_nearest
from s2sim.files import data_directory, read_toml
from s2sim.libraries.constants import (
    ConstantOverrides,
    check_known_fields,
    flatten_tables,
    pop_header,
    read_share,
    read_size,
)
from s2sim.libraries.message_latency import select_constant, transport_of
from s2sim.options import join_option_string, split_option_string
from s2sim.topology.cluster import Cluster
from s2sim.topology.quantity import FieldReader, Quantity
from s2sim.topology.shape import ClusterShape
from s2sim.units import PS_PER_S

HOST_LIBRARIES = ("gloo", "mpi")
"""Libraries with these constants."""
INTRA_NODE = "shared-memory"
"""The transport of messages inside a node."""
ANY_TRANSPORT = "any"
"""Every network without its own table."""

_TABLES = ("call", "memory", "processor", "ring", "network", "algorithms")
_FIELDS = {"call.latency", "memory.add", "memory.add_half", "ring.segment"}
_FIELDS |= {"processor.message", "processor.packet", "processor.rate", "processor.overlap"}
_OF_NETWORKS = ("latency", "share", "stream", "eager", "copy", "rendezvous")


@dataclass(frozen=True, slots=True)
class TransportConstants:
    """The messages of one network; rates are infinite if there is no limit."""

    latency_ps: int  # Of every message, in addition to the network's
    share: float  # Of the rate that data reaches
    stream_Bps: float  # Limit of the messages of two ranks
    eager_bytes: float
    copy_Bps: float  # Rate at which messages smaller than ``eager_bytes`` are copied
    rendezvous_ps: int  # Of larger ones, which are announced


@dataclass(frozen=True, slots=True)
class HostConstants:
    """All constants of one library, times in picoseconds."""

    name: str
    source: str
    call_ps: int
    add_Bps: float  # Rate of summation in a process
    add_half_Bps: float  # The same for elements of two bytes
    message_ps: int  # If nodes share processors: processor time of a message at both ends
    packet_ps: int  # The same of a packet (all that TCP hands over in one call)
    pass_Bps: float  # Rate of a processor that copies from one process to another
    overlap: float  # Exponent p: messages take the p-norm of the times of links and shared processors; 1 is their sum
    segment_bytes: float  # Largest chunk of a ring; infinite for any
    carriers: tuple[tuple[str, TransportConstants], ...]  # By transport, `INTRA_NODE` or `ANY_TRANSPORT`
    algorithms: tuple[tuple[str, tuple[str, ...]], ...]  # Option strings by kind
    quantities: tuple[Quantity, ...]

    def carrier(self, transport: str) -> tuple[str, TransportConstants]:
        """Return the table's name and the constants of a transport; `TopologyError` if there are none."""
        carriers = dict(self.carriers)
        name = transport if transport in carriers else ANY_TRANSPORT
        if name not in carriers:
            raise TopologyError(
                f"the constants of {self.name} do not tell the network {transport}: they have {', '.join(carriers)}"
            )
        return name, carriers[name]


def read_host_constants(path: Path, own: ConstantOverrides = ()) -> HostConstants:
    """Return the constants of a library's file with overrides; `TopologyError` if it is invalid."""
    tables = read_toml(path, TopologyError)
    where = path.name
    name, source = pop_header(tables, _TABLES, where)
    given = dict(flatten_tables(tables, "", where))
    for field, value in own:
        if field not in given:
            raise TopologyError(f"{name} has no constant {field}{suggest_nearest(field, given)}")
        given[field] = Quantity(field, value, "measured", "fitted")
    fields = FieldReader(given, where)
    networks, kinds = list(tables.get("network", {})), list(tables.get("algorithms", {}))
    of_networks = {f"network.{name}.{key}" for name in networks for key in _OF_NETWORKS}
    check_known_fields(fields, {*_FIELDS, *of_networks, *(f"algorithms.{kind}" for kind in kinds)})
    return HostConstants(
        name=name,
        source=source,
        call_ps=fields.latency("call.latency"),
        add_Bps=fields.required_rate("memory.add"),
        add_half_Bps=fields.rate("memory.add_half") or fields.required_rate("memory.add"),
        message_ps=fields.latency("processor.message"),
        packet_ps=fields.latency("processor.packet"),
        pass_Bps=fields.rate("processor.rate") or float("inf"),
        overlap=fields.number("processor.overlap") if "processor.overlap" in given else float("inf"),
        segment_bytes=read_size(fields, "ring.segment"),
        carriers=tuple((name, _read_transport(fields, f"network.{name}")) for name in networks),
        algorithms=tuple((kind, tuple(fields.text(f"algorithms.{kind}", None).split())) for kind in kinds),
        quantities=tuple(fields.quantities.values()),
    )


def _read_transport(fields: FieldReader, table: str) -> TransportConstants:
    return TransportConstants(
        latency_ps=fields.latency(f"{table}.latency"),
        share=read_share(fields, f"{table}.share"),
        stream_Bps=fields.rate(f"{table}.stream") or float("inf"),
        eager_bytes=read_size(fields, f"{table}.eager"),
        copy_Bps=fields.rate(f"{table}.copy") or float("inf"),
        rendezvous_ps=fields.latency(f"{table}.rendezvous"),
    )


@cache
def load_host_constants(library: str, own: ConstantOverrides = ()) -> HostConstants:
    """Return the shipped constants of a library by its name, with overrides."""
    return read_host_constants(data_directory("libraries") / f"{library}.toml", own)


_REDUCING_KINDS = ("all_reduce", "reduce", "reduce_scatter")
_HALF_BYTES = 2
# The second half of the rounds of these forwards sums, and rounds of both halves are equal: half of each message is
# added.
_GATHERED_AFTER = ("ring", "halving-doubling")


@dataclass(frozen=True, slots=True)
class HostLibraryProfile(LibraryProfile):
    """Constants of a library: a message has an additional latency and takes 1/share of its bytes on the network.

    Small messages are copied, larger ones announced first; reductions add received data before they continue. ``own``
    constants replace those of ``library``, a file of ``libraries/``.
    """

    library: str
    own: ConstantOverrides = ()

    def unmodelled_reason(self, shape: ClusterShape) -> str | None:
        """Return the reason why networks of a shape have no constants, or None."""
        try:
            for spec in shape.nodes:
                self._constants.carrier(transport_of(spec, self.library))
        except S2SimError as error:
            return str(error)
        return None

    @property
    def used_quantities(self) -> tuple[Quantity, ...]:
        """All constants of the library."""
        return self._constants.quantities

    def assumed(self, shape: ClusterShape) -> str:
        """Return the networks as text."""
        return f"with its constants for {' and '.join(dict.fromkeys(str(spec.transport) for spec in shape.nodes))}"

    def candidates(self, demand: Demand, cluster: Cluster) -> tuple[str, ...]:
        """Return the library's algorithms of a kind, rings with chunks no larger than a segment."""
        algorithms = dict(self._constants.algorithms).get(demand.kind, ())
        if demand.ranks <= (cluster.shape.processors or inf):
            # Ranks that need not wait for a processor post together, and none is ahead of another.
            algorithms = tuple(option_string.replace("spread:turns=true", "spread") for option_string in algorithms)
        return tuple(self._in_segments(option_string, demand) for option_string in algorithms)

    def _in_segments(self, text: str, demand: Demand) -> str:
        name, options = split_option_string(text)
        if name != "ring" or "chunks" not in options:
            return text
        if not demand.shared:
            # Unequal contributions are forwarded whole.
            return text if len(set(demand.sizes_bytes.tolist())) == 1 else "ring:channels=1"
        share = demand.buffer_bytes / demand.ranks
        chunks = max(int(options["chunks"]), ceil(share / self._constants.segment_bytes))
        return join_option_string(name, {**options, "chunks": str(chunks)})

    def launch_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the latency of a call; ranks that share processors call sequentially."""
        turns = max(1.0, schedule.demand.ranks / (cluster.shape.processors or inf))
        return (
            select_constant("launch", [("call.latency", ceil(turns * self._constants.call_ps))], np.zeros(1, np.int64)),
        )

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return the overheads of each message of a round; a ring's round latency is the mean around it."""
        pattern, algorithm = sent.pattern, schedule.algorithm.partition(":")[0]
        inside = inside_node(cluster, pattern)
        result = self._transport_overheads(sent.bytes, inside, cluster)
        added, half_size = np.zeros(pattern.messages), schedule.demand.itemsize == _HALF_BYTES
        add_Bps = self._constants.add_half_Bps if half_size else self._constants.add_Bps
        if schedule.demand.kind in _REDUCING_KINDS:
            half = schedule.demand.kind == "all_reduce" and algorithm in _GATHERED_AFTER
            added = sent.bytes / 2 if half else sent.bytes
        if cluster.shape.processors is not None:
            result = self._limit_by_processors(result, sent, added / add_Bps, cluster)
        elif added.any():
            adding = _bandwidth_term("addition", "memory.add_half" if half_size else "memory.add", added, add_Bps)
            result = overheads_of([*result.latencies, adding], result.shares, result.limits)
        if algorithm == "ring":
            hop_ps = cluster.routes(pattern.src, pattern.dst).latency_ps + result.latency_ps
            return replace(result, round_latency=ring_round_latency(pattern, hop_ps, result.latencies))
        return result

    @property
    def _constants(self) -> HostConstants:
        return load_host_constants(self.library, self.own)

    def _limit_by_processors(self, wire: Overheads, sent: Round, adding_s: Floats, cluster: Cluster) -> Overheads:
        """Limit a round's messages by processor time per message, packet, byte and addition: all end together."""
        constants, shape = self._constants, cluster.shape
        packets = np.ceil(sent.bytes / (shape.packet_bytes or inf))
        fixed_s = (constants.message_ps + packets * constants.packet_ps) / PS_PER_S
        work_s = fixed_s + sent.bytes / constants.pass_Bps + adding_s
        busy_s = max(float(work_s.sum()) / (shape.processors or 1), float(work_s.max()))
        if busy_s == 0:
            return wire
        sent_bytes = sent.bytes * wire.factor
        wire_s = _wire_s(sent.pattern, sent_bytes, cluster)
        slower_s = max(busy_s, wire_s)
        if not isinf(constants.overlap):
            slower_s *= ((busy_s / slower_s) ** constants.overlap + (wire_s / slower_s) ** constants.overlap) ** (
                1 / constants.overlap
            )
        able_Bps = np.divide(sent_bytes, slower_s, out=np.full(len(sent_bytes), inf), where=sent_bytes > 0)
        values = np.minimum(able_Bps, wire.limit_Bps)
        # Processor time is a sum over constants, and proportional to none.
        limit = MessageConstants("limit", ((),) * len(values), values, np.arange(len(values)))
        return overheads_of(wire.latencies, wire.shares, [limit])

    def _transport_overheads(self, sizes_bytes: Floats, inside: Mask, cluster: Cluster) -> Overheads:
        """Return the overheads of each message's transport: shared memory inside nodes, else the cluster's network."""
        transports = [] if inside.all() else [transport_of(cluster.dims.node_set.specs[0], self.library)]
        names, carriers = zip(*map(self._constants.carrier, (INTRA_NODE, *transports)), strict=True)
        row = np.where(inside, 0, len(carriers) - 1)
        eager = np.array([carrier.eager_bytes for carrier in carriers])[row] > sizes_bytes

        def named(key: str, values: list[float]) -> list[tuple[str, float]]:
            return [(f"network.{name}.{key}", value) for name, value in zip(names, values, strict=True)]

        rendezvous = [*named("rendezvous", [float(c.rendezvous_ps) for c in carriers]), ("", 0)]
        latencies = [
            select_constant("hop", named("latency", [float(c.latency_ps) for c in carriers]), row),
            select_constant("rendezvous", rendezvous, np.where(eager, len(carriers), row)),
        ]
        for number, carrier in enumerate(carriers):
            copied = np.where(eager & (row == number), sizes_bytes, 0.0)
            latencies.append(_bandwidth_term("copy", f"network.{names[number]}.copy", copied, carrier.copy_Bps))
        share = select_constant("share", named("share", [c.share for c in carriers]), row)
        limit = select_constant("limit", named("stream", [c.stream_Bps for c in carriers]), row)
        return overheads_of(latencies, [share], [limit])


def _wire_s(pattern: Pattern, sent_bytes: Floats, cluster: Cluster) -> float:
    if pattern.through_switch:
        return 0.0
    routes = cluster.routes(pattern.src, pattern.dst)
    crossing = np.repeat(sent_bytes, np.diff(routes.offsets)) * routes.weights
    carried = np.bincount(routes.links, crossing, len(cluster.fabric))
    return float((carried / cluster.fabric.rate_Bps).max())


def _bandwidth_term(kind: str, constant: str, sizes_bytes: Floats, rate_Bps: float) -> MessageConstants:
    """Return the time of each message's bytes at the rate of a constant, rounded up to picoseconds."""
    row: Ints
    sizes, row = np.unique(sizes_bytes, return_inverse=True)
    powers = ((constant, -1),)
    return MessageConstants(kind, tuple(powers for _ in sizes), np.ceil(sizes / rate_Bps * PS_PER_S), row)
