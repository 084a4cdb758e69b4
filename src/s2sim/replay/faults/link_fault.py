"""Faults of links: which links they are, and the messages that meet them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.options import Time
from s2sim.replay.faults.fault import Acting, Effect, Fault, Meetings
from s2sim.topology.named_links import find_links

if TYPE_CHECKING:
    from collections.abc import Generator

    import simpy

    from s2sim.arrays import Ints
    from s2sim.network.changing import Change, ChangingNetwork
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


class LinkFault(Fault):
    """A fault of the links of a name or a shell pattern, from a time on.

    ``avoided`` says whether messages go around the links, so that those meet it that would have crossed them.
    """

    __slots__ = ()
    avoided: ClassVar[bool] = False
    link: str
    at: Time

    @abstractmethod
    def did(self, messages: int) -> str:
        """Return what it did, in words, by the number of messages that met it."""

    @abstractmethod
    def happen(self, network: ChangingNetwork, links: Ints, begun: list[Change]) -> Generator[simpy.Event, None, None]:
        """Change links when it is time, and put the change into ``begun``."""

    def links(self, cluster: Cluster) -> Ints:
        """Return which links it meets, int64; `TopologyError` where there is none."""
        return find_links(cluster.fabric, self.link, cluster.shape.name)

    def meetings(self, cluster: Cluster) -> Meetings | None:
        """Count the messages that cross its links, or would."""
        if not self.permanent:
            return None
        marked = np.zeros(len(cluster.fabric), np.bool_)
        marked[self.links(cluster)] = True
        messages = 0

        def add(healthy: Routes, damaged: Routes, times: int) -> None:
            nonlocal messages
            routes = healthy if self.avoided else damaged
            if len(routes.latency_ps):
                crossing = np.logical_or.reduceat(marked[routes.links], routes.offsets[:-1])
                messages += times * int(np.count_nonzero(crossing))

        return Meetings(add, lambda: self._effect(messages))

    def act(self, network: ChangingNetwork, cluster: Cluster, _seed: int) -> Acting:
        """Let it happen when it is time."""
        begun: list[Change] = []
        network.env.process(self.happen(network, self.links(cluster), begun))

        def effect() -> Effect:
            if not begun:
                return Effect(self.text, f"all was over before {self.at}", nothing=True)
            return self._effect(begun[0].messages)

        return Acting(effect)

    def _effect(self, messages: int) -> Effect:
        return Effect(self.text, self.did(messages), messages == 0)
