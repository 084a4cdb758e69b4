"""What faults may stand beside what, and what they did."""

from __future__ import annotations

import warnings
from itertools import groupby
from typing import TYPE_CHECKING

from s2sim.collectives.timing.ways import find_routes
from s2sim.errors import OptionError, S2SimWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.replay.faults.fault import Effect, Fault
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


def check_fluid(faults: Sequence[Fault], *, as_packets: bool) -> None:
    """Refuse packets together with faults that act while messages are in flight."""
    moving = [fault.text for fault in faults if not fault.permanent]
    if moving and as_packets:
        raise OptionError(
            f"{moving[0]} needs the fluid network, and packets were asked for: links that are slow or have failed from "
            "the start on are all that packets know of faults"
        )


def draws(faults: Sequence[Fault]) -> bool:
    """Return whether a seed decides anything of the faults."""
    return any(fault.draws for fault in faults)


def in_order(effects: Sequence[Effect], faults: Sequence[Fault]) -> tuple[Effect, ...]:
    """Return the effects in the order of the faults; warn of every fault that did nothing."""
    warn_of_idle_faults(effects)
    place = {fault.text: index for index, fault in enumerate(faults)}
    return tuple(sorted(effects, key=lambda effect: place[effect.fault]))


def warn_of_idle_faults(effects: Sequence[Effect]) -> None:
    """Warn of every fault that did nothing."""
    for effect in effects:
        if effect.nothing:
            warnings.warn(f"--fault {effect.fault} changes nothing here: {effect.did}", S2SimWarning, stacklevel=3)


def sent_both_ways(schedule: Schedule, healthy: Cluster, cluster: Cluster) -> Iterator[tuple[Routes, Routes, int]]:
    """Yield the routes of a schedule's messages on a healthy cluster and on a damaged one, and how often they go."""
    for pattern, steps in groupby(schedule.steps, key=lambda step: step.round.pattern):
        if pattern.messages:
            yield find_routes(healthy, pattern), find_routes(cluster, pattern), sum(step.times for step in steps)
