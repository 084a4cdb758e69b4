"""What faults did to each reducer of a run."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from s2sim.replay.faults.permanent import permanent_effects
from s2sim.study.scenario.faults import sent_both_ways, warn_of_idle_faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.replay.faults.fault import Effect
    from s2sim.study.measuring.executed import Executed
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.scenario.reducers import ReducerScenario


def fault_notes(
    scenario: ReducerScenario, records: Sequence[Recorded], executed: Sequence[Executed]
) -> tuple[str, ...]:
    """Return a note for each fault: what it did to each reducer; warn of those that did nothing to any."""
    found: dict[str, list[tuple[str, Effect]]] = {fault.text: [] for fault in scenario.faults}
    for item, each in zip(records, executed, strict=True):
        healthy, cluster = scenario.healthy(each.recording.workers), each.timer.cluster
        sent = chain.from_iterable(
            sent_both_ways(launch.timed.schedule, healthy, cluster) for launch in each.replay.launches
        )
        for effect in (*permanent_effects(scenario.faults, healthy, sent), *_begun_effects(each)):
            found[effect.fault].append((item.option_string, effect))
    for effects in found.values():
        warn_of_idle_faults([effect for _, effect in effects[:1] if all(each.nothing for _, each in effects)])
    return tuple(
        f"{fault}: {'; '.join(f'{reducer}: {effect.did}' for reducer, effect in effects)}"
        for fault, effects in found.items()
    )


def _begun_effects(executed: Executed) -> tuple[Effect, ...]:
    """Return what faults did that do not last from the start on: to iterations, or else to the phase."""
    return executed.replay.effects if executed.iterations is None else executed.iterations.effects
