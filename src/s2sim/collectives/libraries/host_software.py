"""The profile of a library whose messages go from host memory to host memory, as MPI's and Gloo's do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.hops import one_of, transport_of
from s2sim.collectives.libraries.host_constants import INSIDE, load_host_constants
from s2sim.collectives.libraries.profile import Profile
from s2sim.collectives.schedules.clock import ring_clock
from s2sim.collectives.schedules.overheads import inside_node, overheads_of
from s2sim.collectives.schedules.per_message import PerMessage
from s2sim.errors import S2SimError
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints, Mask
    from s2sim.collectives.libraries.host_constants import HostConstants
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.overheads import Overheads
    from s2sim.collectives.schedules.schedule import Round, Schedule
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.files.quantity import Quantity
    from s2sim.topology.shape import ClusterShape

_REDUCING = ("all_reduce", "reduce", "reduce_scatter")
# Of these the second half of all rounds passes sums on, while rounds of both halves are alike: half of what a message
# carries is added.
_GATHERED_AFTER = ("ring", "halving-doubling")


@dataclass(frozen=True, slots=True)
class HostSoftware(Profile):
    """Constants of a library: a message takes the latency of its network beside the wire's, and 1/share of its bytes.

    Small ones are copied on their way, larger ones announced first; what reduces adds what has come before it goes on.

    Attributes
    ----------
    library : str
        Whose constants, a file of ``libraries/``.
    """

    library: str

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
        """Return the algorithms that the library has for a kind."""
        return dict(self._constants.algorithms).get(demand.kind, ())

    def launch_made_of(self, schedule: Schedule, cluster: Cluster) -> tuple[PerMessage, ...]:
        """Return the latency of a call."""
        return (one_of("launch", [("call.latency", self._constants.call_ps)], np.zeros(1, np.int64)),)

    def overheads(self, sent: Round, schedule: Schedule, cluster: Cluster) -> Overheads | None:
        """Return what each message of a round takes beside the wire; rings are clocked by the mean around them."""
        pattern, algorithm = sent.pattern, schedule.algorithm.partition(":")[0]
        inside = inside_node(cluster, pattern)
        found = self._carried(sent.bytes, inside, cluster)
        if schedule.demand.kind in _REDUCING:
            half = schedule.demand.kind == "all_reduce" and algorithm in _GATHERED_AFTER
            added = sent.bytes / 2 if half else sent.bytes
            adding = _by_bytes("addition", "memory.add", added, self._constants.add_Bps)
            found = overheads_of([*found.latencies, adding], found.shares, found.limits)
        if algorithm == "ring":
            way_ps = cluster.routes(pattern.src, pattern.dst).latency_ps
            return replace(found, clock=ring_clock(pattern, way_ps + found.latency_ps, found.latencies))
        return found

    @property
    def _constants(self) -> HostConstants:
        return load_host_constants(self.library)

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


def _named(key: str, names: tuple[str, ...], values: list[float]) -> list[tuple[str, float]]:
    return [(f"network.{name}.{key}", value) for name, value in zip(names, values, strict=True)]


def _by_bytes(kind: str, constant: str, sizes_bytes: Floats, rate_Bps: float) -> PerMessage:
    """Return the whole picoseconds that bytes take at the rate of a constant, of each message."""
    row: Ints
    sizes, row = np.unique(sizes_bytes, return_inverse=True)
    powers = ((constant, -1),)
    return PerMessage(kind, tuple(powers for _ in sizes), np.ceil(sizes / rate_Bps * PS_PER_S), row)
