"""From the spec of a collective to the schedule that runs, and its time alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.collectives.algorithms.registry import helpers_of, make_algorithm
from s2sim.collectives.libraries.profile import PLAIN, Profile
from s2sim.collectives.libraries.tables import IDEAL, choose_library
from s2sim.errors import OptionError, S2SimWarning
from s2sim.study.collective.beside import groups_beside
from s2sim.study.collective.sizes import make_demand
from s2sim.study.scenario.content import profile_content
from s2sim.study.scenario.faults import draws
from s2sim.study.scenario.traffic import resolve_traffic, traffic_sha256

if TYPE_CHECKING:
    from s2sim.collectives.libraries.library import Library
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.timing.timer import Timed
    from s2sim.study.collective.beside import Beside
    from s2sim.study.collective.spec import CollectiveSpec
    from s2sim.study.scenario.cluster import Scenario
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True, eq=False)
class PlannedCollective:
    """A collective on a cluster, ready to be looked at from any side.

    ``library`` is what runs it, None for the wire alone, and ``profile`` what that adds. ``timed`` is by the fluid
    network, with nothing else in flight; ``cluster`` has those faults that last. With groups ``beside`` each other
    both clusters have their ranks group after group.
    """

    spec: CollectiveSpec
    scenario: Scenario
    demand: Demand
    profile: Profile
    timed: Timed
    healthy: Cluster
    cluster: Cluster
    library: Library | None
    beside: Beside | None = None

    @property
    def by_message(self) -> bool:
        """Whether every rank waits for its own messages alone."""
        return self.scenario.disturbed or self.spec.execution == "by-message"

    def spec_sha256(self) -> str:
        """Return the hash of what is computed."""
        demand = self.demand
        asked = [demand.kind, self.spec.size_bytes, demand.root, profile_content(self.profile)]
        groups = [] if self.beside is None else [self.beside.groups.text]
        how = [self.spec.execution] if self.by_message and not self.scenario.disturbed else []
        return traffic_sha256(self.spec, self.scenario, self.cluster.workers, *asked, *groups, *how)


def plan_collective(spec: CollectiveSpec) -> PlannedCollective:
    """Return the schedule of one collective on a cluster, and its time."""
    scenario = resolve_traffic(spec, spec.algorithm)
    if spec.execution == "clocked" and scenario.disturbed:
        fault = next(fault.text for fault in scenario.faults if not fault.permanent)
        raise OptionError(
            f"execution clocked: under {fault} ranks wait for their own messages alone, and rounds have no clock: "
            "leave it out"
        )
    library = None if spec.library is None else _library(spec.library, scenario.shape)
    profile = PLAIN if library is None else library.profile
    beside = None if spec.groups is None else groups_beside(spec.groups, spec.workers, scenario, profile)
    ranks = spec.workers if beside is None else beside.groups.dp
    demand = make_demand(spec.kind, spec.size_bytes, ranks, spec.root)
    places = spec.workers
    if not isinstance(scenario.algorithm, str):
        places += helpers_of(make_algorithm(scenario.algorithm, spec.kind), places, scenario.shape.gpus_per_node)
    healthy = scenario.healthy(places)
    if spec.seed and not (healthy.routing_draws or spec.placement == "random" or draws(scenario.faults)):
        text = f"--seed {spec.seed} changes nothing here: neither routing, nor placement, nor a fault draws"
        warnings.warn(text, S2SimWarning, stacklevel=2)
    scenario.warn_of_idle_overrides(places)
    timer = scenario.timer(places).with_profile(profile)
    if beside is not None:
        timer, healthy = beside.timer, healthy.within(beside.workers.tolist())
    timed = timer.time(demand)
    return PlannedCollective(spec, scenario, demand, profile, timed, healthy, timer.cluster, library, beside)


def _library(library: str, shape: ClusterShape) -> Library:
    """Return the library that runs a collective; warn where it adds nothing, or nothing that is known."""
    chosen = choose_library(library).on(shape)
    if chosen.profile == PLAIN:
        why = None if chosen.name == IDEAL.name else chosen.untold(shape)
        text = f"--library {library} changes nothing here: {why or 'a collective runs as asked, on the wire alone'}"
        warnings.warn(text, S2SimWarning, stacklevel=2)
    return chosen
