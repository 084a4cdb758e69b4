"""What a training iteration computes, how it exchanges gradients, and how many of them are simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.demand import Demand
from s2sim.errors import OptionError
from s2sim.gradients.extrapolation.models import LayerGroup, LayerTable, Model, Published
from s2sim.profiles.opened import profile_names
from s2sim.profiles.precision import VALUE_BYTES
from s2sim.profiles.read import ProfileSource, read_profile
from s2sim.replay.iteration.compute import Compute
from s2sim.replay.iteration.conditions import Conditions
from s2sim.replay.iteration.disciplines.discipline import ReadyTensors
from s2sim.replay.iteration.disciplines.registry import make_discipline
from s2sim.study.scenario.shares import share_notes, share_on
from s2sim.study.scenario.unequal_compute import as_measured, drawn, read_compute_times
from s2sim.units import parse_option, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.collectives.timing.timer import Timer
    from s2sim.gradients.traces.manifest import LayerEntry
    from s2sim.profiles.profile import Profile
    from s2sim.reducers.rank import Held
    from s2sim.replay.iteration.disciplines.discipline import Bucket, Discipline
    from s2sim.study.scenario.cluster import Scenario
    from s2sim.study.scenario.machines import Machines
    from s2sim.study.spec import RunSpec

DEFAULT_DISCIPLINE = "ddp"
"""What PyTorch does unless told otherwise."""

_BYTES: dict[Held, int] = {"fp32": 4, "bf16": 2}
_PS_PER_MS = 10**9
# Iterations that run where they differ by chance, and where one reaches into the next.
_BY_CHANCE, _IN_A_ROW = 20, 5


@dataclass(frozen=True, slots=True)
class Training:
    """Iterations as they were asked for.

    Attributes
    ----------
    source : ProfileSource
        What the profile is made from, for any mini-batch.
    profile : Profile
        What a GPU computes, for the mini-batch and on the GPU of the run.
    discipline : Discipline
        Which gradients leave together, and when.
    streams : int
        1 where codec work stands between kernels of compute, 2 where it runs beside them.
    host_loop_ps : int
        What a loop of the host over tensors takes for each, before a bucket is encoded and before it is decoded.
    accumulate : int
        Mini-batches before gradients are exchanged.
    compute_cv : float
        Standard deviation of a rank's compute time over its mean, by a lognormal distribution.
    compute_times_ms : tuple of tuple of float
        Forward and backward times of the ranks in each iteration, as measured; empty where nobody gave them.
    iterations : int or None
        How many are simulated; None for as many as are needed.
    idle_ps : int
        What a rank waits in each iteration for stages of a pipeline.
    notes : tuple of str
        What is to be known of ranks that share the model.
    """

    source: ProfileSource
    profile: Profile
    discipline: Discipline
    streams: int
    host_loop_ps: int
    accumulate: int
    compute_cv: float
    compute_times_ms: tuple[tuple[float, ...], ...]
    iterations: int | None
    idle_ps: int = 0
    notes: tuple[str, ...] = ()

    @property
    def value_bytes(self) -> int:
        """Bytes of a value that layers pass on."""
        return VALUE_BYTES[self.source.opened.precision]

    @property
    def compute(self) -> Compute:
        """What the engine takes of the profile."""
        tensors, profile = self.profile.tensors, self.profile
        return Compute(
            np.array([each.forward_ps for each in tensors], np.int64),
            np.array([each.backward_ps for each in tensors], np.int64),
            profile.optimizer_ps,
            profile.memory_bound,
        )

    @property
    def samples(self) -> int:
        """Samples of one GPU in an iteration."""
        return self.profile.batch * self.accumulate

    def conditions(self, workers: int, period: int, seed: int) -> Conditions:
        """Return how iterations run on so many ranks that do the same again after ``period`` of them."""
        wanted = 1 if self.discipline.waits_for_all else _IN_A_ROW
        if self.compute_cv or self.compute_times_ms:
            wanted = len(self.compute_times_ms) or _BY_CHANCE
        iterations = -(-(self.iterations or wanted) // period) * period
        slower = drawn(iterations, workers, self.compute_cv, seed)
        if self.compute_times_ms:
            stated_ms = self.accumulate * (self.profile.forward_ps + self.profile.backward_ps) / _PS_PER_MS
            slower = as_measured(self.compute_times_ms, iterations, workers, stated_ms)
        return Conditions(
            slower=slower,
            waits_for_all=self.discipline.waits_for_all,
            streams=self.streams,
            host_loop_ps=self.host_loop_ps,
            accumulate=self.accumulate,
            idle_ps=self.idle_ps,
        )

    def buckets(self, timer: Timer, held: Held) -> tuple[Bucket, ...]:
        """Return what leaves together on the timer's cluster, of gradients that are held in a type."""
        tensors, workers = self.profile.tensors, timer.workers
        ready = ReadyTensors(
            bytes=np.array([each.size * _BYTES[held] for each in tensors], np.int64),
            ready_ps=np.cumsum([each.backward_ps for each in tensors]),
            sparse=np.array([each.sparse for each in tensors], np.bool_),
        )

        def exchange_ps(size_bytes: int) -> int:
            return timer.time(Demand("all_reduce", (size_bytes,) * workers, 1)).duration_ps

        return self.discipline.buckets(ready, exchange_ps)

    def stands_on(self, layers: Iterable[LayerEntry]) -> bool:
        """Return whether layers of gradients are the profile's own parameters."""
        return {each.name: each.size for each in self.profile.tensors} == {each.name: each.size for each in layers}

    def with_batch(self, batch: int, where: Scenario, machines: Machines, ranks: int) -> Training:
        """Return the same iterations with another mini-batch; as `resolve_training` returns them of a spec."""
        return replace(self, profile=self.source.on(machines.gpu, batch)).shared_by(where, machines, ranks)

    def shared_by(self, where: Scenario, machines: Machines, ranks: int) -> Training:
        """Return how iterations of one of those ranks run that share the model, where there are such groups."""
        if where.groups is None:
            return self
        groups, cluster = where.all_groups(ranks)
        share = share_on(
            self.profile,
            groups,
            cluster,
            mini_batches=self.accumulate,
            value_bytes=self.value_bytes,
            library=machines.library.profile,
        )
        return replace(self, profile=share.profile, idle_ps=share.idle_ps, notes=share_notes(share, groups))

    @property
    def model(self) -> Model:
        """The profile's parameters as a layer table, in the order of forward."""
        profile = self.profile
        groups = tuple(LayerGroup(each.name, each.shape, sparse=each.sparse) for each in reversed(profile.tensors))
        counted = Published(profile.parameters, 0.0, "user", f"parameters of the profile {profile.name}")
        table = LayerTable(f"parameters of the profile {profile.name}", "user", profile.source, groups, counted)
        return Model(profile.model, table)


def resolve_training(spec: RunSpec, where: Scenario, machines: Machines, ranks: int) -> Training | None:
    """Return how iterations run where ``ranks`` hold the same; None where nothing was said of what they compute."""
    name = spec.profile
    if name is None and spec.discipline is not None and spec.model in profile_names():
        name = spec.model
    given = {
        "--discipline": spec.discipline is not None,
        "--batch": spec.batch is not None,
        "--accumulate": spec.accumulate != 1,
        "--streams": spec.streams != 1,
        "--host-loop": spec.host_loop is not None,
        "--compute-cv": spec.compute_cv != 0,
        "--compute-times": spec.compute_times is not None,
        "--iterations": spec.iterations is not None,
    }
    if name is None:
        idle = [option for option, is_given in given.items() if is_given]
        if idle:
            raise OptionError(
                f"{idle[0]} needs the times of a model's layers: add --profile NAME (s2sim list profiles tells which)"
            )
        return None
    source = read_profile(name)
    training = Training(
        source=source,
        profile=source.on(machines.gpu, spec.batch),
        discipline=make_discipline(spec.discipline or DEFAULT_DISCIPLINE),
        streams=spec.streams,
        host_loop_ps=0 if spec.host_loop is None else parse_option("--host-loop", parse_time_ps, spec.host_loop),
        accumulate=spec.accumulate,
        compute_cv=spec.compute_cv,
        compute_times_ms=() if spec.compute_times is None else read_compute_times(spec.compute_times),
        iterations=spec.iterations,
    )
    return training.shared_by(where, machines, ranks)
