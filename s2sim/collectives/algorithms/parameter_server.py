"""Parameter server: workers push what they have to servers, which sum it, and pull the sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.groups import schedule_of
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Schedule, Stage, Step
from s2sim.errors import OptionError
from s2sim.options import check_options, option_text
from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """Two rounds, push and pull; every server holds an even part of the buffer.

    Servers are ranks, spread evenly over them, or with ``on=nodes`` stand on nodes of their own beside those of the
    ranks, one on the first GPU of each.
    """

    name: ClassVar[str] = "parameter-server"
    source: ClassVar[str] = "Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    auto: ClassVar[tuple[str, ...]] = ()
    servers: int = 1
    on: Literal["ranks", "nodes"] = "ranks"

    def __post_init__(self) -> None:
        check_options(self, self.name, servers=1)

    def helpers(self, ranks: int, gpus_per_node: int) -> int:
        """Return the number of workers in addition to the ranks, so that servers have separate nodes.

        They fill the last node of the ranks, all nodes of servers but the last, and one GPU of that. Workers between
        the servers are idle.
        """
        if self.on == "ranks" or ranks == 1:
            return 0
        return -ranks % gpus_per_node + (self.servers - 1) * gpus_per_node + 1

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; servers on separate nodes are workers of the cluster after the ranks."""
        ranks = demand.ranks
        places = self._places(ranks, cluster)
        worker, server = (side.reshape(-1) for side in np.indices((ranks, self.servers)))
        apart = worker != places[server]
        worker, server = worker[apart], server[apart]
        cuts = np.arange(self.servers + 1, dtype=np.int64) * demand.buffer_elements // self.servers
        sizes_bytes = np.full(len(worker), demand.buffer_bytes / self.servers)
        push, pull = Pattern(worker, places[server]), Pattern(places[server], worker)
        steps = (Step(Round(push, sizes_bytes)), Step(Round(pull, sizes_bytes)))
        stage = Stage(steps, lambda step, _: Pieces.one_each(cuts[server], cuts[server + 1], step == 0))
        return schedule_of(demand, option_text(self), stage, helpers=max(int(places.max()) + 1 - ranks, 0))

    def _places(self, ranks: int, cluster: Cluster) -> Ints:
        """Return the rank or additional worker of each server, int64 of shape (servers,)."""
        if self.on == "ranks":
            if self.servers > ranks:
                raise OptionError(
                    f"parameter-server: servers={self.servers} on ranks need as many ranks, found {ranks}: use fewer "
                    "servers or on=nodes"
                )
            return np.arange(self.servers, dtype=np.int64) * ranks // self.servers
        if ranks == 1:
            return np.zeros(self.servers, np.int64)
        node = cluster.node_of_rank
        beside = ranks + np.flatnonzero(~np.isin(node[ranks:], node[:ranks]))
        free, first = np.unique(node[beside], return_index=True)
        if len(free) < self.servers:
            workers = ranks + self.helpers(ranks, cluster.shape.gpus_per_node)
            raise OptionError(
                f"parameter-server: servers={self.servers} on=nodes needs as many nodes without ranks, found "
                f"{len(free)} with {cluster.workers} workers: build the cluster with {workers} and linear placement"
            )
        return beside[first[: self.servers]]

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return 2(L + D/(s·B)), the time of s servers on a full mesh, where every pair has links of its own.

        Where several workers send to a server through one port they share it and this form does not hold: with more
        than two ranks on every fabric of switches.
        """
        return 2 * hops.round_s(demand.buffer_bytes / self.servers) if demand.ranks > 1 else 0.0
