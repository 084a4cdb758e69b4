"""What faults did to each reducer of a run."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from s2sim.replay.faults.lasting import lasting_effects
from s2sim.study.collective.disturbed import sent_both_ways, warn_of_idle_faults

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.replay.faults.fault import Effect, Fault
    from s2sim.replay.run import Replay
    from s2sim.topology.cluster import Cluster


def fault_notes(
    faults: Sequence[Fault], healthy: Cluster, cluster: Cluster, replays: Mapping[str, Replay]
) -> tuple[str, ...]:
    """Return a note for each fault, and warn of those that did nothing to any reducer.

    Parameters
    ----------
    faults : sequence of Fault
        All of them.
    healthy, cluster : Cluster
        Without those that last from the start on, and with them.
    replays : mapping of str to Replay
        By the reducer's option string.
    """
    found: dict[str, list[tuple[str, Effect]]] = {fault.text: [] for fault in faults}
    for reducer, replay in replays.items():
        sent = chain.from_iterable(
            sent_both_ways(launch.timed.schedule, healthy, cluster) for launch in replay.launches
        )
        for effect in (*lasting_effects(faults, healthy, sent), *replay.effects):
            found[effect.fault].append((reducer, effect))
    for effects in found.values():
        warn_of_idle_faults([effect for _, effect in effects[:1] if all(each.nothing for _, each in effects)])
    return tuple(
        f"{fault}: {'; '.join(f'{reducer}: {effect.did}' for reducer, effect in effects)}"
        for fault, effects in found.items()
    )
