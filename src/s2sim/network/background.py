"""Traffic of others on a cluster: messages between random ranks of different nodes, as a Poisson process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError, S2SimError

if TYPE_CHECKING:
    from collections.abc import Generator

    import simpy
    from numpy.typing import NDArray

    from s2sim.network.changing import ChangingNetwork
    from s2sim.topology.cluster import Cluster

# Drawn at a time.
_BATCH = 256
# Pairs of ranks whose routes are looked at together.
_PAIRS = 1 << 18
# Three digits of the largest load must not round to more.
_SHOWN = 0.995
# Some minutes.
_MOST_MESSAGES = 200_000


class BackgroundTraffic:
    """Messages of one size that load every network interface in use to a share of its rate, on average.

    A message leaves through an interface with a probability in proportion to its rate, from one of the ranks that use
    it, to any rank of the other nodes with the same probability. Links that carry more of it than interfaces do, as of
    a torus or an oversubscribed tree, fill at a smaller load; from there on ever more would be in flight, and the load
    is refused.

    Parameters
    ----------
    network : ChangingNetwork
        Carries them.
    cluster : Cluster
        Whose ranks and interfaces there are.
    load : float
        Share of the rate of the interfaces.
    size_bytes : int
        Of each message.
    generator : numpy.random.Generator
        Draws them.

    Attributes
    ----------
    messages : int
        Sent until now.
    """

    def __init__(
        self,
        network: ChangingNetwork,
        cluster: Cluster,
        *,
        load: float,
        size_bytes: int,
        generator: np.random.Generator,
    ) -> None:
        if len(np.unique(cluster.node_of_rank)) == 1:
            raise OptionError("background traffic goes between nodes, and all ranks are in one: leave it out")
        self._network = network
        self._cluster = cluster
        self._size_bytes = size_bytes
        self._generator = generator
        self._probability, self.rate_Bps = _interfaces(cluster)
        most, link = _largest_load(cluster, self._probability * self.rate_Bps)
        if load >= most:
            raise OptionError(
                f"background traffic of load={load:g} of what interfaces carry would fill link {link}, which others "
                f"cross too: it carries at most load={most * _SHOWN:.3g} here"
            )
        self._gap_ps = size_bytes / (load * self.rate_Bps) * 1e12
        self._numbers: dict[tuple[int, int], int] = {}
        self._by_node = np.argsort(cluster.node_of_rank, kind="stable")
        self.messages = 0

    def run(self) -> Generator[simpy.Event, None, None]:
        """Send for as long as the simulation lasts."""
        env = self._network.env
        owner = self._network.add_owner(lambda _: None)
        size = np.array([float(self._size_bytes)])
        at_ps = float(env.now)
        while True:
            for gap_ps, number in zip(
                self._generator.exponential(self._gap_ps, _BATCH).tolist(), self._draw(), strict=True
            ):
                at_ps += gap_ps
                yield env.timeout(round(at_ps) - int(env.now))
                self._network.send(np.array([number]), size, owner, np.zeros(1, np.int64))
                self.messages += 1
            if self.messages >= _MOST_MESSAGES:
                raise S2SimError(
                    f"background traffic has sent {self.messages:,} messages of {self._size_bytes:,} bytes in "
                    f"{env.now / 1e12:g} s, as many as are simulated: ask for larger ones (size=) or a smaller load"
                )

    def _draw(self) -> list[int]:
        """Return the network's numbers of the routes of some messages."""
        cluster = self._cluster
        src = self._generator.choice(cluster.workers, _BATCH, p=self._probability)
        # Ranks by node: any place but those of the sender's own node.
        nodes = cluster.node_of_rank[self._by_node]
        own = np.searchsorted(nodes, cluster.node_of_rank[src])
        held = np.searchsorted(nodes, cluster.node_of_rank[src], side="right") - own
        place = (self._generator.random(_BATCH) * (cluster.workers - held)).astype(np.int64)
        dst = self._by_node[place + np.where(place >= own, held, 0)]
        pairs = list(zip(src.tolist(), dst.tolist(), strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._numbers]
        if new:
            ends = np.array(new, np.int64).T
            numbers = self._network.add_routes(cluster.routes(*ends))
            self._network.join(numbers, *ends)
            self._numbers.update(zip(new, numbers.tolist(), strict=True))
        return [self._numbers[pair] for pair in pairs]


def _largest_load(cluster: Cluster, sent_Bps: NDArray[np.float64]) -> tuple[float, str]:
    """Return the load at which the first link is full, and its name; ranks send ``sent_Bps``, shape (ranks,), at 1."""
    node, every = cluster.node_of_rank, np.arange(cluster.workers)
    to_each_Bps = sent_Bps / (cluster.workers - np.bincount(node)[node])
    carried_Bps = np.zeros(len(cluster.fabric))
    for some in np.array_split(every, max(1, cluster.workers**2 // _PAIRS)):
        src, dst = np.repeat(some, cluster.workers), np.tile(every, len(some))
        apart = node[src] != node[dst]
        routes = cluster.routes(src[apart], dst[apart])
        crossing_Bps = np.repeat(to_each_Bps[src[apart]], np.diff(routes.offsets)) * routes.weights
        carried_Bps += np.bincount(routes.links, crossing_Bps, len(carried_Bps))
    share = carried_Bps / cluster.fabric.rate_Bps
    fullest = int(share.argmax())
    return float(1 / share[fullest]), cluster.fabric.link_names[fullest]


def _interfaces(cluster: Cluster) -> tuple[NDArray[np.float64], float]:
    """Return how likely a message comes from each rank, float64 of shape (ranks,), and the rate of all interfaces."""
    ports = cluster.layout.dims.node_set.ports_of_gpu[cluster.gpu_of_rank]
    rates = cluster.fabric.rate_Bps[cluster.fabric.blocks["nic.out"].part][ports]
    shared = (rates / np.bincount(ports.reshape(-1))[ports]).sum(axis=1)
    return shared / shared.sum(), float(shared.sum())
