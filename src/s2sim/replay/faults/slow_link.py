"""Links that carry less than they should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from s2sim.errors import OptionError
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
class SlowLink(LinkFault):
    """Links that carry less than they should, all the time or for a while."""

    name: ClassVar[str] = "slow-link"
    example: ClassVar[str] = "slow-link:link=node1.nic0.out,factor=0.5"

    link: str
    factor: float
    at: Time = START
    until: Time | None = None

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1:
            raise OptionError(f"slow-link: factor={self.factor} of the rate must lie between 0 and 1")
        if self.until is not None and self.until.ps <= self.at.ps:
            raise OptionError(f"slow-link: until={self.until} must come after at={self.at}")

    @property
    def permanent(self) -> bool:
        """Whether it is so from the start on and for good."""
        return self.at.ps == 0 and self.until is None

    def damage(self, cluster: Cluster, damage: Damage) -> None:
        """Slow the links, where it lasts."""
        links = self.links(cluster)
        if self.permanent:
            damage.factors[links] *= self.factor

    def did(self, messages: int) -> str:
        """Return how many messages crossed it."""
        met = f"{messages:,} messages crossed" if messages else "no message crossed"
        return f"{met} it at {self.factor:g} of its rate"

    def happen(self, network: ChangingNetwork, links: Ints, begun: list[Change]) -> Generator[simpy.Event, None, None]:
        """Slow the links, and let them recover."""
        yield network.env.timeout(self.at.ps)
        change = network.slow_down(links, self.factor)
        begun.append(change)
        if self.until is not None:
            yield network.env.timeout(self.until.ps - self.at.ps)
            network.recover(change)
