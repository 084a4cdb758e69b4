"""What a library of processes on hosts adds to the wire, as a data file states it, every number with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.fields import check_known, flat_fields, share_of, size_of, take_head
from s2sim.data import data_directory
from s2sim.errors import TopologyError, nearest
from s2sim.text_files import read_toml
from s2sim.topology.files.quantity import Fields, Quantity

if TYPE_CHECKING:
    from pathlib import Path

    from s2sim.collectives.libraries.constants import Own

ON_HOSTS = ("gloo", "mpi")
"""Libraries whose files have these constants."""
INSIDE = "shared-memory"
"""What carries messages inside a node."""
ANY = "any"
"""Stands for every network that has no table of its own."""

_TABLES = ("call", "memory", "processor", "ring", "network", "algorithms")
_OF_NETWORKS = ("latency", "share", "stream", "eager", "copy", "rendezvous")


@dataclass(frozen=True, slots=True)
class Carrier:
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
    """All of one library, times in picoseconds.

    Attributes
    ----------
    add_Bps, add_half_Bps : float
        Bytes per second that a process adds to those it has, and the same of sums in two bytes.
    message_ps, packet_ps, pass_Bps : int, int, float
        Where nodes share processors: what a message takes at both its ends, and a packet (all that TCP hands over
        at once); bytes per second that a processor passes from one process to another.
    overlap : float
        Exponent p: messages take the p-norm of the times of wires and shared processors; 1 is one after the other.
    segment_bytes : float
        Most that a piece of a ring has, whose algorithm cuts what ranks pass on into pieces; infinite for any.
    carriers : tuple of (str, Carrier)
        By transport; `INSIDE` inside nodes, `ANY` for those that are not named.
    algorithms : tuple of (str, tuple of str)
        Option strings of what it has, by kind.
    """

    name: str
    source: str
    call_ps: int
    add_Bps: float
    add_half_Bps: float
    message_ps: int
    packet_ps: int
    pass_Bps: float
    overlap: float
    segment_bytes: float
    carriers: tuple[tuple[str, Carrier], ...]
    algorithms: tuple[tuple[str, tuple[str, ...]], ...]
    quantities: tuple[Quantity, ...]

    def carrier(self, transport: str) -> tuple[str, Carrier]:
        """Return how messages go over a transport, and the name of its table; an error where the file does not say."""
        carriers = dict(self.carriers)
        name = transport if transport in carriers else ANY
        if name not in carriers:
            raise TopologyError(
                f"the constants of {self.name} do not tell the network {transport}: they have {', '.join(carriers)}"
            )
        return name, carriers[name]


def read_host_constants(path: Path, own: Own = ()) -> HostConstants:
    """Return the constants of a library's file, with some of one's own; `TopologyError` says what is wrong."""
    tables = read_toml(path, TopologyError)
    where = path.name
    name, source = take_head(tables, _TABLES, where)
    given = dict(flat_fields(tables, "", where))
    for field, value in own:
        if field not in given:
            raise TopologyError(f"{name} has no constant {field}{nearest(field, given)}")
        given[field] = Quantity(field, value, "measured", "fitted")
    fields = Fields(given, where)
    networks = list(tables.get("network", {}))
    kinds = list(tables.get("algorithms", {}))
    known = {"call.latency", "memory.add", "memory.add_half", "ring.segment"}
    known |= {"processor.message", "processor.packet", "processor.rate", "processor.overlap"}
    known |= {*(f"algorithms.{kind}" for kind in kinds)}
    known |= {f"network.{name}.{key}" for name in networks for key in _OF_NETWORKS}
    check_known(fields, known)
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
        segment_bytes=size_of(fields, "ring.segment"),
        carriers=tuple((name, _carrier(fields, f"network.{name}")) for name in networks),
        algorithms=tuple((kind, tuple(fields.text(f"algorithms.{kind}", None).split())) for kind in kinds),
        quantities=tuple(fields.given.values()),
    )


def _carrier(fields: Fields, table: str) -> Carrier:
    return Carrier(
        latency_ps=fields.latency(f"{table}.latency"),
        share=share_of(fields, f"{table}.share"),
        stream_Bps=fields.rate(f"{table}.stream") or float("inf"),
        eager_bytes=size_of(fields, f"{table}.eager"),
        copy_Bps=fields.rate(f"{table}.copy") or float("inf"),
        rendezvous_ps=fields.latency(f"{table}.rendezvous"),
    )


@cache
def load_host_constants(library: str, own: Own = ()) -> HostConstants:
    """Return the shipped constants of a library by its name, with some of one's own in their place."""
    return read_host_constants(data_directory("libraries") / f"{library}.toml", own)
