"""Latency that differs from message to message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.errors import OptionError
from s2sim.options import Time
from s2sim.replay.faults.fault import Acting, Effect, Fault
from s2sim.seeds import named_generator
from s2sim.units import PS_PER_S, format_seconds

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.network.changing import ChangingNetwork
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Jitter(Fault):
    """Latency that differs from message to message: more of it, drawn from an exponential distribution."""

    name: ClassVar[str] = "jitter"
    example: ClassVar[str] = "jitter:latency=2us"
    draws: ClassVar[bool] = True

    latency: Time

    def __post_init__(self) -> None:
        if self.latency.ps == 0:
            raise OptionError(f"jitter: latency={self.latency} adds nothing: leave it out")

    def act(self, _network: ChangingNetwork, _cluster: Cluster, seed: int) -> Acting:
        """Delay every message by a draw of its own; the order of events plays no part."""
        total_ps, total_messages = 0, 0

        def late_ps(collective: int, step: int, time: int, messages: int) -> Ints:
            nonlocal total_ps, total_messages
            generator = named_generator(seed, self.text, collective, step, time)
            drawn_ps = np.rint(generator.exponential(self.latency.ps, messages)).astype(np.int64)
            total_ps += int(drawn_ps.sum())
            total_messages += messages
            return drawn_ps

        def effect() -> Effect:
            mean = format_seconds(total_ps / max(total_messages, 1) / PS_PER_S)
            return Effect(self.text, f"{total_messages:,} messages were late, by {mean} on average", total_ps == 0)

        return Acting(effect, late_ps)
