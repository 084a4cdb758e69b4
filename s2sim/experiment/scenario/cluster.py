"""The cluster of an experiment, resolved once from its spec, and faults of traffic on it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from s2sim.collectives.algorithms.registry import Algorithm, read_algorithm
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.collectives.timing.routes import RouteTable, find_routes
from s2sim.collectives.timing.shapes import KeptSchedules
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.errors import OptionError, warn
from s2sim.experiment.cluster_spec import ClusterSpec, NetworkSpec, overridden_field
from s2sim.experiment.json_form import ResultForm
from s2sim.experiment.scenario.content_hash import cluster_content, hardware_inputs
from s2sim.experiment.scenario.groups import ParallelGroups, concurrent_groups_timer
from s2sim.files import own_tables
from s2sim.libraries.library import Library, machine_text
from s2sim.libraries.lowering import IDEAL, choose_library
from s2sim.provenance import run_record
from s2sim.simulation.faults.fault import Effect, Fault, apply_permanent_faults, has_transient_faults
from s2sim.simulation.faults.registry import make_faults
from s2sim.topology.cluster import Cluster, build_cluster
from s2sim.topology.graph import Routes
from s2sim.topology.hardware import Gpu, load_gpu, usual_library
from s2sim.topology.read_file import load_shape
from s2sim.topology.shape import ClusterShape
from s2sim.units import PS_PER_S, format_seconds, parse_time_ps

if TYPE_CHECKING:
    from s2sim.reducers.script import Recording


def extrapolated_constants_notes(
    library: Library | None, scenario: "Scenario", workers: int, sent: Collection[tuple[str, int]]
) -> list[str]:
    """Return a note of how a use lies outside the constants' fit, or none; ``sent``: kinds, and sizes in bytes."""
    if library is None or library.calibration is None or not sent:
        return []
    found = library.calibration.outside(
        machine_text(scenario.shape.name, scenario.overrides),
        {kind for kind, _ in sent},
        workers,
        len(np.unique(scenario.cluster(workers).node_of_rank[:workers])),
        {size_bytes for _, size_bytes in sent},
    )
    return [f"{library.calibration.path} is used outside of what it was fitted to: {'; '.join(found)}"] if found else []


class _ClusterCache(dict[tuple[object, ...], Cluster]):
    """The clusters of one shape, each built once; rebuilt rather than pickled."""

    def __init__(self, shape: ClusterShape) -> None:
        super().__init__()
        self.shape = shape

    def __reduce__(self) -> "tuple[type[_ClusterCache], tuple[ClusterShape]]":
        return _ClusterCache, (self.shape,)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster of any number of workers, its faults, and the algorithm of its collectives; it can be pickled."""

    shape: ClusterShape  # What the topology's file and its overrides say
    overrides: tuple[str, ...] = ()  # These overrides as they were written, for messages
    placement: str = "linear"  # Where ranks run
    seed: int = 0  # Root of all randomness
    faults: tuple[Fault, ...] = ()  # What goes wrong
    algorithm: Algorithm | str = AUTO  # Of the collectives; ``auto`` for the fastest
    # Groups of ranks beside each other, all of which do the same: with them numbers of workers are those of one data-
    # parallel group, and so is the cluster; None for one group of all
    groups: ParallelGroups | None = None
    _built: _ClusterCache | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Keep the built clusters if the shape was not replaced."""
        if self._built is None or self._built.shape is not self.shape:
            object.__setattr__(self, "_built", _ClusterCache(self.shape))

    def healthy(self, workers: int) -> Cluster:
        """Return the cluster without its faults."""
        return self._of_group(workers, ())

    def cluster(self, workers: int) -> Cluster:
        """Return the cluster with its permanent faults."""
        return self._of_group(workers, self.faults)

    def plain(self) -> Self:
        """Return the same cluster filled in order, without faults or groups, with the fastest algorithms."""
        return replace(self, placement="linear", faults=(), algorithm=AUTO, groups=None)

    def timer(self, workers: int, routes: RouteTable | None = None) -> Timer:
        """Return the timer of collectives on the cluster, faults included; ``routes`` may be known from other rates."""
        groups, everyone = self.all_groups(workers)
        return concurrent_groups_timer(everyone, groups, self.algorithm, routes)

    def route_table(self, workers: int) -> RouteTable:
        """Return routes, and schedules that are made once, for timers at any rates."""
        routes = RouteTable(self._everyone(workers, self.faults))
        routes.kept = KeptSchedules(routes)
        return routes

    def ranks_of(self, workers: int) -> int:
        """Return the number of ranks of one data-parallel group of ``workers`` workers."""
        return workers if self.groups is None else workers // self.groups.count

    def all_groups(self, workers: int) -> tuple[ParallelGroups, Cluster]:
        """Return groups whose data-parallel ones have ``workers`` ranks, and the cluster of all of them."""
        groups = ParallelGroups(1, 1, workers) if self.groups is None else replace(self.groups, dp=workers)
        return groups, self._everyone(workers, self.faults)

    def _of_group(self, workers: int, faults: tuple[Fault, ...]) -> Cluster:
        everyone = self._everyone(workers, faults)
        if self.groups is None:
            return everyone
        return everyone.within(replace(self.groups, dp=workers).dp_groups[0].tolist())

    def running(self, algorithm: str | None) -> Self:
        """Return the same cluster with another algorithm by its name; None for its own."""
        return self if algorithm is None else replace(self, algorithm=read_algorithm(algorithm))

    @property
    def uses_ring_bytes(self) -> bool:
        """Whether bytes are those of rings, by convention, rather than of the given algorithm."""
        return isinstance(self.algorithm, str) or self.algorithm.name == "ring"

    @property
    def unsure(self) -> str:
        """With what it is not known how far off times may be: groups that share links, and faults in the network."""
        return "--groups" if self.groups else "these faults" if has_transient_faults(self.faults) else ""

    @property
    def disturbed(self) -> bool:
        """Whether faults begin during the simulation."""
        return not all(fault.permanent for fault in self.faults)

    def warn_of_idle_overrides(self, workers: int) -> None:
        """Warn of each ``field=value`` without effect because no traffic crosses the links it describes."""
        cluster = self._everyone(workers, ())
        one_node = int(cluster.node_of_rank.max()) == 0
        for override in self.overrides:
            table = overridden_field(override).partition(".")[0]
            if one_node and (
                table in ("nic", "fabric", "routing") or (table == "pcie" and not cluster.shape.pcie_joins_gpus)
            ):
                reason = f"all {cluster.workers} workers are in one node"
            elif table == "nvlink" and int(cluster.node_of_rank.max()) + 1 == cluster.workers:
                reason = "every node holds one worker"
            else:
                continue
            warn(f"{override} changes nothing here: {reason}", stacklevel=3)

    def _everyone(self, workers: int, faults: tuple[Fault, ...]) -> Cluster:
        assert self._built is not None
        count = 1 if self.groups is None else self.groups.count
        key = count * workers, self.placement, self.seed, faults
        if key not in self._built:
            self._built[key] = (
                apply_permanent_faults(self._everyone(workers, ()), faults)
                if faults
                else build_cluster(self.shape, count * workers, placement=self.placement, seed=self.seed)
            )
        return self._built[key]


def resolve_cluster(spec: ClusterSpec, algorithm: str = AUTO) -> Scenario:
    """Return the scenario of a spec's cluster; `S2SimError` if a name or a value in it is not valid."""
    faults = make_faults(spec.faults)
    asked = algorithm if algorithm == AUTO else read_algorithm(algorithm)
    return Scenario(load_shape(spec.topology, spec.overrides), spec.overrides, spec.placement, spec.seed, faults, asked)


ESTIMATES = own_tables(__file__, "estimates.toml")
"""Ranges and names of constants that may be estimates."""


def estimated_ranges(gpu: Gpu, recordings: "Iterable[Recording]" = ()) -> dict[str, tuple[str, str]]:
    """Return by field the least and most plausible value of estimated constants; of codec work if recorded."""
    from s2sim.reducers.script import Work  # collectives and flows alone need no reducers

    scripts = [script for recording in recordings for script in recording.distinct_scripts]
    works = [step for script in scripts for step in script if isinstance(step, Work)]
    used = {"flops_efficiency": any(work.flops for work in works), "host_step": any(work.host_steps for work in works)}
    fields = (quantity.field.rpartition(".")[2] for quantity in gpu.quantities if quantity.kind == "estimated")
    return {name: tuple(ESTIMATES[name]["range"]) for name in fields if name in ESTIMATES and used.get(name, True)}


def format_constant(gpu: Gpu, constant: str) -> str:
    """Return the value of a constant for display."""
    if hasattr(gpu, f"{constant}_ps"):
        return format_seconds(getattr(gpu, f"{constant}_ps") / PS_PER_S)
    return f"{getattr(gpu, constant):g}"


def with_constant(gpu: Gpu, constant: str, value: str) -> Gpu:
    """Return a GPU with another value of one constant."""
    is_time = hasattr(gpu, f"{constant}_ps")
    taken: Any = parse_time_ps(value) if is_time else float(value)
    return replace(gpu, **{f"{constant}_ps" if is_time else constant: taken})


def gpu_corners(gpu: Gpu) -> Iterator[Gpu]:
    """Yield a GPU for each choice of the ends of its estimated constants; none if nothing is estimated."""
    estimates = estimated_ranges(gpu)
    for values in product(*estimates.values()) if estimates else ():
        corner = gpu
        for constant, value in zip(estimates, values, strict=True):
            corner = with_constant(corner, constant, value)
        yield corner


# Where neither an option nor the topology says.
_USUAL_GPU = "a100"


@dataclass(frozen=True, slots=True)
class Machines:
    """What a cluster's machines run."""

    library: Library  # What executes the collectives
    real_library: Library  # The same, or where that is ideal a real one: the topology's, or else the usual one
    gpu: Gpu  # What encodes and decodes
    text: str  # Library and GPU in words, and who chose them


def warn_of_vendor(library: Library, gpu: str) -> None:
    """Warn of a library that does not run on a GPU of this name."""
    right = usual_library(gpu)
    if {library.name, right} == {"nccl", "rccl"}:
        text = f"{library.name} does not run on {gpu}, where {right} does: these times are those of no software"
        warn(text, stacklevel=5)


def resolve_machines(
    shape: ClusterShape,
    overrides: Sequence[str],
    library: str | None = None,
    gpu: str | None = None,
    *,
    latency_holds_library: bool = False,
    backend: str | None = None,
) -> Machines:
    """Return the library and GPU of options and, without them (None), of the topology; ``backend`` is a job's library.

    Libraries run by their constants if the topology states its network, unless its latencies include the library's
    (``latency_holds_library``).

    >>> from s2sim.topology.read_file import load_shape
    >>> resolve_machines(load_shape("torus"), (), gpu="rtx-2080").text
    'library ideal, as torus says; GPU rtx-2080, as asked for'
    """

    def choose(text: str) -> Library:
        chosen = choose_library(text)
        return chosen if latency_holds_library else chosen.on(shape)

    card = load_gpu((shape.gpu or _USUAL_GPU) if gpu is None else gpu)
    usual = usual_library(card.name)
    said_library = backend or shape.library or usual
    taken = choose(said_library if library is None else library)
    warn_of_vendor(taken, card.name)
    real = taken
    if real == IDEAL:
        real = choose(usual if said_library == IDEAL.name else said_library)
    asked = {"library": library, "gpu": gpu}
    for override in overrides:
        name = overridden_field(override)
        if asked.get(name) is not None:
            warn(f"--set {override} changes nothing beside --{name} {asked[name]}: leave one out", stacklevel=4)

    def chosen_by(given: str | None, in_topology: str | None, of_job: str | None = None) -> str:
        if given is not None or of_job is not None:
            return "as asked for" if given is not None else "as the recorded job has it"
        return f"as {shape.name} says" if in_topology else f"by default, as {shape.name} does not say"

    assumed = " (the wire alone)" if taken.profile == NO_OVERHEADS else f" ({taken.profile.assumed(shape)})"
    origins = {
        f"library {taken.option_string}{'' if taken == IDEAL else assumed}": chosen_by(library, shape.library, backend),
        f"GPU {card.name}": chosen_by(gpu, shape.gpu),
    }
    texts = [
        f"{' and '.join(what for what, who in origins.items() if who == each)}, {each}"
        for each in dict.fromkeys(origins.values())
    ]
    return Machines(taken, real, card, "; ".join(texts))


def effects_in_order(effects: Sequence[Effect], faults: Sequence[Fault]) -> tuple[Effect, ...]:
    """Return the effects in the order of the faults; warn of every fault that did nothing."""
    warn_of_idle_faults(effects)
    place = {fault.text: index for index, fault in enumerate(faults)}
    return tuple(sorted(effects, key=lambda effect: place[effect.fault]))


def warn_of_idle_faults(effects: Sequence[Effect]) -> None:
    """Warn of every fault that did nothing."""
    for idle in effects:
        if idle.nothing:
            warn(f"--fault {idle.fault} changes nothing here: {idle.description}", stacklevel=3)


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
    for override in spec.overrides:
        name = overridden_field(override)
        # Constants of a library are those of a generation of GPUs.
        if name == "library" or (name == "gpu" and getattr(spec, "library", None) is None):
            warn(f"--set {override} changes nothing here: no GPU encodes, and collectives run as asked", stacklevel=3)
    moving = [fault.text for fault in scenario.faults if not fault.permanent]
    if moving and spec.as_packets:
        raise OptionError(
            f"{moving[0]} needs the fluid network, and packets were asked for: links that are slow or have failed from "
            "the start on are all that packets know of faults"
        )
    return scenario


def traffic_record(
    spec: NetworkSpec, scenario: Scenario, workers: int, *sent: Any, library: Library | None = None
) -> dict[str, Any]:
    """Return the run record of sending ``sent`` over a cluster."""
    packets = [spec.packet_size_bytes, spec.buffer_bytes] if spec.as_packets else []
    return run_record(
        spec=[cluster_content(scenario, [workers]), spec.network, spec.cross_check, packets, *sent],
        inputs=hardware_inputs(scenario.shape, library) | {"seed": spec.seed},
        named=spec.to_json(),
        measured=[],
        assumed=["time: simulated on the topology above"],
    )


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
