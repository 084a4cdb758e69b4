"""Faults of traffic: their compatibility with networks, and their effects."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.routes import find_routes
from s2sim.errors import OptionError, S2SimWarning
from s2sim.experiment.cluster_spec import NetworkSpec
from s2sim.experiment.json_form import ResultForm
from s2sim.experiment.scenario.cluster import Scenario, resolve_cluster, warn_of_machines
from s2sim.experiment.scenario.content_hash import cluster_content
from s2sim.provenance import content_hash
from s2sim.simulation.faults.fault import Effect, Fault
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes


def effects_in_order(effects: Sequence[Effect], faults: Sequence[Fault]) -> tuple[Effect, ...]:
    """Return the effects in the order of the faults; warn of every fault that did nothing."""
    warn_of_idle_faults(effects)
    place = {fault.text: index for index, fault in enumerate(faults)}
    return tuple(sorted(effects, key=lambda effect: place[effect.fault]))


def warn_of_idle_faults(effects: Sequence[Effect]) -> None:
    """Warn of every fault that did nothing."""
    for effect in effects:
        if effect.nothing:
            warnings.warn(
                f"--fault {effect.fault} changes nothing here: {effect.description}", S2SimWarning, stacklevel=3
            )


def healthy_and_damaged_routes(
    schedule: Schedule, healthy: Cluster, cluster: Cluster
) -> Iterator[tuple[Routes, Routes, int]]:
    """Yield the routes of a schedule's messages on a healthy and on a damaged cluster, and their repetitions."""
    for pattern, steps in groupby(schedule.steps, key=lambda step: step.round.pattern):
        if pattern.messages:
            yield find_routes(healthy, pattern), find_routes(cluster, pattern), sum(step.times for step in steps)


def resolve_traffic(spec: NetworkSpec, algorithm: str = "auto") -> Scenario:
    """Return the scenario of a spec's cluster; refuse faults that its network does not know."""
    scenario = resolve_cluster(spec, algorithm)
    warn_of_machines(spec.overrides)
    moving = [fault.text for fault in scenario.faults if not fault.permanent]
    if moving and spec.as_packets:
        raise OptionError(
            f"{moving[0]} needs the fluid network, and packets were asked for: links that are slow or have failed from "
            "the start on are all that packets know of faults"
        )
    return scenario


def traffic_sha256(spec: NetworkSpec, scenario: Scenario, workers: int, *sent: Any) -> str:
    """Return the hash of the computation of sending ``sent`` over a cluster."""
    packets = [spec.packet_size_bytes, spec.buffer_bytes] if spec.as_packets else []
    return content_hash([cluster_content(scenario, [workers]), spec.network, spec.cross_check, packets, *sent])


def load_effects(result: Mapping[str, Any]) -> tuple[Effect, ...]:
    """Return the effects of faults from the two keys of a result."""
    return tuple(map(Effect, result.get("faults", ()), result.get("fault_effects", ())))


class FaultedForm(ResultForm):
    """An answer that says what ``effects`` faults had."""

    __slots__ = ()
    effects: tuple[Effect, ...]

    @property
    def faults(self) -> list[str]:
        """Option strings of the faults, as in JSON."""
        return [effect.fault for effect in self.effects]

    @property
    def fault_effects(self) -> list[str]:
        """What each of them did, in words, as in JSON."""
        return [effect.description for effect in self.effects]
