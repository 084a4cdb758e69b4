"""Traffic of others on the same network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from s2sim.errors import OptionError
from s2sim.network.background import BackgroundTraffic
from s2sim.options import Size
from s2sim.replay.faults.fault import Acting, Effect, Fault
from s2sim.seeds import named_generator
from s2sim.units import PS_PER_S, format_bytes

if TYPE_CHECKING:
    from s2sim.network.changing import ChangingNetwork
    from s2sim.topology.cluster import Cluster

_SIZE = Size("1MiB")


@dataclass(frozen=True, slots=True)
class Background(Fault):
    """Traffic of others: messages between random ranks of different nodes, as a Poisson process."""

    name: ClassVar[str] = "background"
    example: ClassVar[str] = "background:load=0.3,size=1MiB"
    draws: ClassVar[bool] = True
    sends: ClassVar[bool] = True

    load: float
    size: Size = _SIZE

    def __post_init__(self) -> None:
        if not 0 < self.load < 1:
            raise OptionError(f"background: load={self.load} of what network interfaces carry must lie between 0 and 1")
        if self.size.bytes == 0:
            raise OptionError(f"background: messages of size={self.size} load nothing: leave them out")

    def act(self, network: ChangingNetwork, cluster: Cluster, seed: int) -> Acting:
        """Send for as long as the simulation lasts."""
        traffic = BackgroundTraffic(
            network, cluster, load=self.load, size_bytes=self.size.bytes, generator=named_generator(seed, self.text)
        )
        network.env.process(traffic.run())

        def effect() -> Effect:
            sent_bytes = traffic.messages * self.size.bytes
            share = sent_bytes / (traffic.rate_Bps * network.env.now / PS_PER_S) if network.env.now else 0.0
            did = f"{traffic.messages:,} messages, {format_bytes(sent_bytes)}: {share:.1%} of what interfaces carry"
            return Effect(self.text, did, traffic.messages == 0)

        return Acting(effect)
