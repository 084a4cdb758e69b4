"""The profile of a library whose messages go from host memory to host memory, as MPI's and Gloo's do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, isinf
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.hops import one_of, transport_of
from s2sim.collectives.libraries.host_constants import INSIDE, load_host_constants
from s2sim.collectives.libraries.profile import Profile
from s2sim.collectives.schedules.clock import ring_clock
from s2sim.collectives.schedules.overheads import inside_node, overheads_of
from s2sim.collectives.schedules.per_message import PerMessage
from s2sim.errors import S2SimError
from s2sim.options import join_option_string, split_option_string
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints, Mask
    from s2sim.collectives.libraries.constants import Own
    from s2sim.collectives.libraries.host_constants import HostConstants
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.overheads import Overheads
    from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.files.quantity import Quantity
    from s2sim.topology.shape import ClusterShape

_REDUCING = ("all_reduce", "reduce", "reduce_scatter")
# Of these the second half of all rounds passes sums on, while rounds of both halves are alike: half of what a message
# carries is added.
_HALF_BYTES = 2
_GATHERED_AFTER = ("ring", "halving-doubling")


@dataclass(frozen=True, slots=True)
class HostSoftware(Profile):
    """Constants of a library: a message takes the latency of its network beside the wire's, and 1/share of its bytes.

    Small ones are copied on their way, larger ones announced first; what reduces adds what has come before it goes on.
    ``own`` constants hold in place of those of ``library``, a file of ``libraries/``.
    """

    library: str
    own: Own = ()

    def untold(self, shape: ClusterShape) -> str | None:
        """Return why constants do not tell what networks of a shape take; None where they do."""
        try:
            for spec in shape.nodes:
                self._constants.carrier(transport_of(spec, self.library))
        except S2SimError as error:
            return str(error)
        return None

    @property
    def rests_on(self) -> tuple[Quantity, ...]:
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

    def launch_made_of(self, schedule: Schedule, cluster: Cluster) -> tuple[PerMessage, ...]:
        """Return the latency of a call; ranks that share processors call one after the other."""
        turns = max(1.0, schedule.demand.ranks / (cluster.shape.processors or inf))
        return (one_of("launch", [("call.latency", ceil(turns * self._constants.call_ps))], np.zeros(1, np.int64)),)

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return what each message of a round takes beside the wire; rings are clocked by the mean around them."""
        pattern, algorithm = sent.pattern, schedule.algorithm.partition(":")[0]
        inside = inside_node(cluster, pattern)
        found = self._carried(sent.bytes, inside, cluster)
        added, half_size = np.zeros(pattern.messages), schedule.demand.itemsize == _HALF_BYTES
        add_Bps = self._constants.add_half_Bps if half_size else self._constants.add_Bps
        if schedule.demand.kind in _REDUCING:
            half = schedule.demand.kind == "all_reduce" and algorithm in _GATHERED_AFTER
            added = sent.bytes / 2 if half else sent.bytes
        if cluster.shape.processors is not None:
            found = self._shared(found, sent, added / add_Bps, cluster)
        elif added.any():
            adding = _by_bytes("addition", "memory.add_half" if half_size else "memory.add", added, add_Bps)
            found = overheads_of([*found.latencies, adding], found.shares, found.limits)
        if algorithm == "ring":
            way_ps = cluster.routes(pattern.src, pattern.dst).latency_ps
            return replace(found, clock=ring_clock(pattern, way_ps + found.latency_ps, found.latencies))
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
        limit = PerMessage("limit", ((),) * len(values), values, np.arange(len(values)))
        return overheads_of(found.latencies, found.shares, [limit])

    def _carried(self, sizes_bytes: Floats, inside: Mask, cluster: Cluster) -> Overheads:
        """Return what the network of each message adds to it: inside nodes shared memory, else that of the cluster."""
        transports = [] if inside.all() else [transport_of(cluster.dims.node_set.specs[0], self.library)]
        names, carriers = zip(*map(self._constants.carrier, (INSIDE, *transports)), strict=True)
        row = np.where(inside, 0, len(carriers) - 1)
        eager = np.array([carrier.eager_bytes for carrier in carriers])[row] > sizes_bytes
        latencies = [one_of("hop", _named("latency", names, [float(c.latency_ps) for c in carriers]), row)]
        rendezvous = _named("rendezvous", names, [float(c.rendezvous_ps) for c in carriers])
        latencies.append(one_of("rendezvous", [*rendezvous, ("", 0)], np.where(eager, len(carriers), row)))
        for number, carrier in enumerate(carriers):
            copied = np.where(eager & (row == number), sizes_bytes, 0.0)
            latencies.append(_by_bytes("copy", f"network.{names[number]}.copy", copied, carrier.copy_Bps))
        share = one_of("share", _named("share", names, [c.share for c in carriers]), row)
        limit = one_of("limit", _named("stream", names, [c.stream_Bps for c in carriers]), row)
        return overheads_of(latencies, [share], [limit])


def _wire_s(pattern: Pattern, sent_bytes: Floats, cluster: Cluster) -> float:
    """Return the seconds that the busiest link needs for messages of a round."""
    if pattern.through_switch:
        return 0.0
    routes = cluster.routes(pattern.src, pattern.dst)
    crossing = np.repeat(sent_bytes, np.diff(routes.offsets)) * routes.weights
    carried = np.bincount(routes.links, crossing, len(cluster.fabric))
    return float((carried / cluster.fabric.rate_Bps).max())


def _named(key: str, names: tuple[str, ...], values: list[float]) -> list[tuple[str, float]]:
    return [(f"network.{name}.{key}", value) for name, value in zip(names, values, strict=True)]


def _by_bytes(kind: str, constant: str, sizes_bytes: Floats, rate_Bps: float) -> PerMessage:
    """Return the whole picoseconds that bytes take at the rate of a constant, of each message."""
    row: Ints
    sizes, row = np.unique(sizes_bytes, return_inverse=True)
    powers = ((constant, -1),)
    return PerMessage(kind, tuple(powers for _ in sizes), np.ceil(sizes / rate_Bps * PS_PER_S), row)
