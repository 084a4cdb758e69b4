"""Reducers recorded on the gradients of one density and overlap."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.replay.plan import make_plan
from s2sim.study.measuring.record import record
from s2sim.study.measuring.wire import mean_bytes, ring_traffic
from s2sim.study.scenario.asked import other_steps, placed_on

if TYPE_CHECKING:
    from s2sim.gradients.traces.synthetic import SyntheticTrace
    from s2sim.replay.plan import Plan
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.progress import Progress
    from s2sim.study.regimes.scenario import RegimeScenario


@dataclass(frozen=True, slots=True)
class Script:
    """One reducer's recording, and all of it that no network changes."""

    recorded: Recorded
    plan: Plan
    bytes_sent: int
    acceptable: bool


@dataclass(slots=True)
class Recorder:
    """Records all reducers of a map, and remembers which refused what, and where."""

    scenario: RegimeScenario
    max_error: float
    recorded: list[Recorded] = field(default_factory=list)
    refusals: dict[str, list[str]] = field(default_factory=dict)

    def record(self, trace: SyntheticTrace, progress: Progress) -> list[Script]:
        """Run every reducer on the gradients; those that refuse are noted and left out."""
        # Networks differ in rates and latencies alone.
        cluster = self.scenario.networks[0].scenario.healthy(trace.world_size)
        reducers = placed_on(cluster, self.scenario.reducers)
        gradients = [trace.gradient(0, rank) for rank in range(trace.world_size)]
        others = other_steps(trace, trace.world_size)
        scripts = []
        for asked in reducers:
            try:
                ((found,), _) = record([asked], gradients, seed=trace.seed, others=others)
            except S2SimError as error:
                if asked.reducer.traits.baseline:
                    raise
                refusal = f"{asked.option_string} refuses some gradients and is left out there: {error}"
                place = f"density {trace.options.density:g}, overlap {trace.options.overlap:g}"
                self.refusals.setdefault(refusal, []).append(place)
            else:
                scripts.append(self._script(found))
                self.recorded.append(found)
            progress.advance()
        return scripts

    def _script(self, found: Recorded) -> Script:
        plan = make_plan(found.recording, self.scenario.machines.library)
        sent = mean_bytes(int(ring_traffic(plan.lowered, found.recording.workers)[0].max()), found.recording)
        error = found.errors.whole.relative_l2
        # The limit is below 1, which no verdict allows; the only layer is compressed, or nothing is.
        acceptable = found.reducer.traits.lossless or (error is not None and error <= self.max_error)
        return Script(found, plan, sent, acceptable)
