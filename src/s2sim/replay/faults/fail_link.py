"""Links that nothing crosses any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from s2sim.options import Time
from s2sim.replay.faults.fault import START
from s2sim.replay.faults.link_fault import LinkFault

if TYPE_CHECKING:
    from collections.abc import Generator

    import simpy

    from s2sim.arrays import Ints
    from s2sim.network.changing import Change, ChangingNetwork
    from s2sim.replay.faults.fault import Damage
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class FailLink(LinkFault):
    """Links that nothing crosses from a moment on: messages take other ways."""

    name: ClassVar[str] = "fail-link"
    example: ClassVar[str] = "fail-link:link=leaf0.up1,at=2ms"
    draws: ClassVar[bool] = True
    avoided: ClassVar[bool] = True

    link: str
    at: Time = START

    @property
    def permanent(self) -> bool:
        """Whether it is so from the start on."""
        return self.at.ps == 0

    @property
    def words(self) -> str:
        """What has failed, and when."""
        return f"{self.link} failed" if self.permanent else f"{self.link} failed at {self.at}"

    def damage(self, cluster: Cluster, damage: Damage) -> None:
        """Take the links away, where it lasts."""
        links = self.links(cluster)
        if self.permanent:
            damage.dead[links] = True
            damage.why.append(self.words)

    def did(self, messages: int) -> str:
        """Return how many messages went around it."""
        return f"{messages:,} messages took another way" if messages else "no message would have crossed it"

    def happen(self, network: ChangingNetwork, links: Ints, begun: list[Change]) -> Generator[simpy.Event, None, None]:
        """Let nothing cross the links any more."""
        yield network.env.timeout(self.at.ps)
        begun.append(network.fail(links, self.words))
