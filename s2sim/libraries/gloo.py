"""The profile of a library whose messages go from host memory to host memory, as MPI's and Gloo's do."""

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
"""Libraries whose files have these constants."""
INTRA_NODE = "shared-memory"
"""What carries messages inside a node."""
ANY_TRANSPORT = "any"
"""Stands for every network that has no table of its own."""

_TABLES = ("call", "memory", "processor", "ring", "network", "algorithms")
_OF_NETWORKS = ("latency", "share", "stream", "eager", "copy", "rendezvous")


@dataclass(frozen=True, slots=True)
class TransportConstants:
    """How messages go over one network.

    Attributes
    ----------
    latency_ps, rendezvous_ps : int
        Picoseconds of every message beside the wire's, and of announcing one of ``eager_bytes`` or more.
    share : float
        Share of the rate that data reaches.
    stream_Bps, copy_Bps : float
        Most that the messages of two ranks get, and at what rate smaller messages than ``eager_bytes`` are copied;
        infinite where nothing limits them.
    """

    latency_ps: int
    share: float
    stream_Bps: float
    eager_bytes: float
    copy_Bps: float
    rendezvous_ps: int


@dataclass(frozen=True, slots=True)
class HostConstants:
    """All of one library, times in picoseconds."""

    name: str
    source: str
    call_ps: int
    # add_Bps, add_half_Bps: bytes per second that a process adds to those it has, and the same of sums in two bytes
    add_Bps: float
    add_half_Bps: float
    # message_ps, packet_ps, pass_Bps: where nodes share processors: what a message takes at both its ends, and a packet
    # (all that TCP hands over at once); bytes per second that a processor passes from one process to another
    message_ps: int
    packet_ps: int
    pass_Bps: float
    # Exponent p: messages take the p-norm of the times of wires and shared processors; 1 is one after the other
    overlap: float
    # Most that a piece of a ring has, whose algorithm cuts what ranks pass on into pieces; infinite for any
    segment_bytes: float
    # By transport; `INTRA_NODE` inside nodes, `ANY_TRANSPORT` for those that are not named
    carriers: tuple[tuple[str, TransportConstants], ...]
    algorithms: tuple[tuple[str, tuple[str, ...]], ...]  # Option strings of what it has, by kind
    quantities: tuple[Quantity, ...]

    def carrier(self, transport: str) -> tuple[str, TransportConstants]:
        """Return how messages go over a transport, and the name of its table; an error where the file does not say."""
        carriers = dict(self.carriers)
        name = transport if transport in carriers else ANY_TRANSPORT
        if name not in carriers:
            raise TopologyError(
                f"the constants of {self.name} do not tell the network {transport}: they have {', '.join(carriers)}"
            )
        return name, carriers[name]


def read_host_constants(path: Path, own: ConstantOverrides = ()) -> HostConstants:
    """Return the constants of a library's file, with some of one's own; `TopologyError` says what is wrong."""
    tables = read_toml(path, TopologyError)
    where = path.name
    name, source = pop_header(tables, _TABLES, where)
    given = dict(flatten_tables(tables, "", where))
    for field, value in own:
        if field not in given:
            raise TopologyError(f"{name} has no constant {field}{suggest_nearest(field, given)}")
        given[field] = Quantity(field, value, "measured", "fitted")
    fields = FieldReader(given, where)
    networks = list(tables.get("network", {}))
    kinds = list(tables.get("algorithms", {}))
    known = {"call.latency", "memory.add", "memory.add_half", "ring.segment"}
    known |= {"processor.message", "processor.packet", "processor.rate", "processor.overlap"}
    known |= {*(f"algorithms.{kind}" for kind in kinds)}
    known |= {f"network.{name}.{key}" for name in networks for key in _OF_NETWORKS}
    check_known_fields(fields, known)
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
    """Return the shipped constants of a library by its name, with some of one's own in their place."""
    return read_host_constants(data_directory("libraries") / f"{library}.toml", own)


_REDUCING_KINDS = ("all_reduce", "reduce", "reduce_scatter")
# Of these the second half of all rounds passes sums on, while rounds of both halves are alike: half of what a message
# carries is added.
_HALF_BYTES = 2
_GATHERED_AFTER = ("ring", "halving-doubling")


@dataclass(frozen=True, slots=True)
class HostLibraryProfile(LibraryProfile):
    """Constants of a library: a message takes the latency of its network beside the wire's, and 1/share of its bytes.

    Small ones are copied on their way, larger ones announced first; what reduces adds what has come before it goes on.
    ``own`` constants hold in place of those of ``library``, a file of ``libraries/``.
    """

    library: str
    own: ConstantOverrides = ()

    def unmodelled_reason(self, shape: ClusterShape) -> str | None:
        """Return why constants do not tell what networks of a shape take; None where they do."""
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
        """Return the networks."""
        return f"with its constants for {' and '.join(dict.fromkeys(str(spec.transport) for spec in shape.nodes))}"

    def candidates(self, demand: Demand, cluster: Cluster) -> tuple[str, ...]:
        """Return the algorithms that the library has for a kind, rings cut into pieces no larger than a segment."""
        found = dict(self._constants.algorithms).get(demand.kind, ())
        if demand.ranks <= (cluster.shape.processors or inf):
            # Ranks that need not wait for a processor post at once, and none is ahead of another.
            found = tuple(text.replace("spread:turns=true", "spread") for text in found)
        return tuple(self._cut(text, demand) for text in found)

    def _cut(self, text: str, demand: Demand) -> str:
        name, options = split_option_string(text)
        if name != "ring" or "chunks" not in options:
            return text
        if not demand.shared:
            # What ranks contribute in unequal parts is passed on whole.
            return text if len(set(demand.sizes_bytes.tolist())) == 1 else "ring:channels=1"
        share = demand.buffer_bytes / demand.ranks
        pieces = max(int(options["chunks"]), ceil(share / self._constants.segment_bytes))
        return join_option_string(name, {**options, "chunks": str(pieces)})

    def launch_terms(self, schedule: Schedule, cluster: Cluster) -> tuple[MessageConstants, ...]:
        """Return the latency of a call; ranks that share processors call one after the other."""
        turns = max(1.0, schedule.demand.ranks / (cluster.shape.processors or inf))
        return (
            select_constant("launch", [("call.latency", ceil(turns * self._constants.call_ps))], np.zeros(1, np.int64)),
        )

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return what each message of a round takes beside the wire; rings are clocked by the mean around them."""
        pattern, algorithm = sent.pattern, schedule.algorithm.partition(":")[0]
        inside = inside_node(cluster, pattern)
        found = self._carried(sent.bytes, inside, cluster)
        added, half_size = np.zeros(pattern.messages), schedule.demand.itemsize == _HALF_BYTES
        add_Bps = self._constants.add_half_Bps if half_size else self._constants.add_Bps
        if schedule.demand.kind in _REDUCING_KINDS:
            half = schedule.demand.kind == "all_reduce" and algorithm in _GATHERED_AFTER
            added = sent.bytes / 2 if half else sent.bytes
        if cluster.shape.processors is not None:
            found = self._shared(found, sent, added / add_Bps, cluster)
        elif added.any():
            adding = _bandwidth_term("addition", "memory.add_half" if half_size else "memory.add", added, add_Bps)
            found = overheads_of([*found.latencies, adding], found.shares, found.limits)
        if algorithm == "ring":
            way_ps = cluster.routes(pattern.src, pattern.dst).latency_ps
            return replace(found, round_latency=ring_round_latency(pattern, way_ps + found.latency_ps, found.latencies))
        return found

    @property
    def _constants(self) -> HostConstants:
        return load_host_constants(self.library, self.own)

    def _shared(self, found: Overheads, sent: Round, adding_s: Floats, cluster: Cluster) -> Overheads:
        """Return overheads with limits by which a round's messages end no sooner than processors are done with all.

        Each message takes a processor for itself, for its packets, for the bytes that pass and for those that are
        added. Messages of a round share processors in proportion to what they take, so that all of them end together.
        """
        constants, shape = self._constants, cluster.shape
        packets = np.ceil(sent.bytes / (shape.packet_bytes or inf))
        fixed_s = (constants.message_ps + packets * constants.packet_ps) / PS_PER_S
        work_s = fixed_s + sent.bytes / constants.pass_Bps + adding_s
        busy_s = max(float(work_s.sum()) / (shape.processors or 1), float(work_s.max()))
        if busy_s == 0:
            return found
        sent_bytes = sent.bytes * found.factor
        wire_s = _wire_s(sent.pattern, sent_bytes, cluster)
        slower_s = max(busy_s, wire_s)
        if not isinf(constants.overlap):
            slower_s *= ((busy_s / slower_s) ** constants.overlap + (wire_s / slower_s) ** constants.overlap) ** (
                1 / constants.overlap
            )
        able_Bps = np.divide(sent_bytes, slower_s, out=np.full(len(sent_bytes), inf), where=sent_bytes > 0)
        values = np.minimum(able_Bps, found.limit_Bps)
        # What takes a processor is a sum over constants, and proportional to none.
        limit = MessageConstants("limit", ((),) * len(values), values, np.arange(len(values)))
        return overheads_of(found.latencies, found.shares, [limit])

    def _carried(self, sizes_bytes: Floats, inside: Mask, cluster: Cluster) -> Overheads:
        """Return what the network of each message adds to it: inside nodes shared memory, else that of the cluster."""
        transports = [] if inside.all() else [transport_of(cluster.dims.node_set.specs[0], self.library)]
        names, carriers = zip(*map(self._constants.carrier, (INTRA_NODE, *transports)), strict=True)
        row = np.where(inside, 0, len(carriers) - 1)
        eager = np.array([carrier.eager_bytes for carrier in carriers])[row] > sizes_bytes
        latencies = [
            select_constant(
                "hop", _constant_per_message("latency", names, [float(c.latency_ps) for c in carriers]), row
            )
        ]
        rendezvous = _constant_per_message("rendezvous", names, [float(c.rendezvous_ps) for c in carriers])
        latencies.append(select_constant("rendezvous", [*rendezvous, ("", 0)], np.where(eager, len(carriers), row)))
        for number, carrier in enumerate(carriers):
            copied = np.where(eager & (row == number), sizes_bytes, 0.0)
            latencies.append(_bandwidth_term("copy", f"network.{names[number]}.copy", copied, carrier.copy_Bps))
        share = select_constant("share", _constant_per_message("share", names, [c.share for c in carriers]), row)
        limit = select_constant("limit", _constant_per_message("stream", names, [c.stream_Bps for c in carriers]), row)
        return overheads_of(latencies, [share], [limit])


def _wire_s(pattern: Pattern, sent_bytes: Floats, cluster: Cluster) -> float:
    """Return the seconds that the busiest link needs for messages of a round."""
    if pattern.through_switch:
        return 0.0
    routes = cluster.routes(pattern.src, pattern.dst)
    crossing = np.repeat(sent_bytes, np.diff(routes.offsets)) * routes.weights
    carried = np.bincount(routes.links, crossing, len(cluster.fabric))
    return float((carried / cluster.fabric.rate_Bps).max())


def _constant_per_message(key: str, names: tuple[str, ...], values: list[float]) -> list[tuple[str, float]]:
    return [(f"network.{name}.{key}", value) for name, value in zip(names, values, strict=True)]


def _bandwidth_term(kind: str, constant: str, sizes_bytes: Floats, rate_Bps: float) -> MessageConstants:
    """Return the whole picoseconds that bytes take at the rate of a constant, of each message."""
    row: Ints
    sizes, row = np.unique(sizes_bytes, return_inverse=True)
    powers = ((constant, -1),)
    return MessageConstants(kind, tuple(powers for _ in sizes), np.ceil(sizes / rate_Bps * PS_PER_S), row)
