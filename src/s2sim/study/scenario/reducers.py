"""What reducers run on and over, resolved once from what people write."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Self, cast

from s2sim.gradients.extrapolation.models import load_model
from s2sim.gradients.extrapolation.scaling import parse_parameters
from s2sim.gradients.load import load_trace
from s2sim.study.scenario.asked import asked_or_all, placed_on
from s2sim.study.scenario.cluster import Scenario, resolve_cluster
from s2sim.study.scenario.groups import same_groups
from s2sim.study.scenario.machines import Machines, resolve_machines
from s2sim.study.scenario.memory import check_ranks
from s2sim.study.scenario.training import resolve_training
from s2sim.units import parse_option, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s2sim.collectives.libraries.library import Library
    from s2sim.gradients.extrapolation.models import Model
    from s2sim.gradients.load import AnyTrace
    from s2sim.reducers.rank import Held
    from s2sim.study.scenario.asked import AskedReducer
    from s2sim.study.scenario.training import Training
    from s2sim.study.spec import RunSpec
    from s2sim.topology.files.hardware import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducerScenario(Scenario):
    """A cluster, the reducers that run on it, and what they run with.

    Attributes
    ----------
    reducers : tuple of AskedReducer
        ``dense`` among them.
    refused : dict of str to str
        Why others that were asked for cannot be, by option string.
    machines : Machines
        What executes the collectives, and what encodes and decodes.
    trace : AnyTrace
        The gradients.
    dtype : {"fp32", "bf16"}
        Type that training holds them in.
    target : Model, int or None
        The model, or the number of parameters, to which sizes are scaled.
    compute_ps : int or None
        How long forward and backward take, where that is added without overlap.
    training : Training or None
        What iterations compute and how they exchange, where a profile says that.
    """

    reducers: tuple[AskedReducer, ...]
    machines: Machines
    trace: AnyTrace
    dtype: Held = "fp32"
    target: Model | int | None = None
    compute_ps: int | None = None
    training: Training | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> Self:
        """Return it with its cluster filled in order, without faults or groups, and with the phase alone compared."""
        return replace(super(ReducerScenario, self).plain(), compute_ps=None)

    def reducers_on(self, workers: int) -> tuple[AskedReducer, ...]:
        """Return the reducers as so many workers run them, who know which of them share a node."""
        return placed_on(self.healthy(workers), self.reducers)

    @property
    def library(self) -> Library:
        """What executes the collectives."""
        return self.machines.library

    @property
    def gpu(self) -> Gpu:
        """What encodes and decodes."""
        return self.machines.gpu


def resolve_run(spec: RunSpec) -> ReducerScenario:
    """Return the scenario of a run.

    Raises
    ------
    S2SimError
        For anything that does not exist or cannot be as asked.
    """
    reducers, refused = asked_or_all(spec.reducers)
    compute_ps = None if spec.compute is None else parse_option("--compute", parse_time_ps, spec.compute)
    target: Model | int | None = None if spec.scale_to is None else parse_parameters(spec.scale_to)
    where = resolve_cluster(spec, spec.collective)
    if spec.groups is not None:
        where = replace(where, groups=same_groups(spec.groups, spec.workers))
    ranks = where.ranks_of(max(spec.workers))
    trace = load_trace(spec.trace, workers=ranks, seed=spec.seed, keep=True)
    check_ranks(ranks, trace)
    for item in reducers:
        # A wrong name of an algorithm is refused now, not once gradients are there.
        where.running(item.reducer.runs_by)
    dtype = trace.manifest.dtype if spec.dtype is None else cast("Held", spec.dtype)
    machines = resolve_machines(where.shape, where.overrides, spec.library, spec.gpu)
    training = resolve_training(spec, where, machines, ranks)
    if spec.model is not None:
        target = load_model(spec.model)
    if training is not None:
        target = None if training.stands_on(trace.manifest.layers) else training.model
    if spec.gpu is not None:
        # A library treats GPUs by their generation: it is told of those that run, not of those that the file has.
        where = replace(where, shape=replace(where.shape, gpu=spec.gpu))
    return ReducerScenario(
        **{each.name: getattr(where, each.name) for each in fields(where)},
        reducers=tuple(_as_held(item, dtype, forgiving=spec.by_default) for item in reducers),
        refused=refused,
        machines=machines,
        trace=trace,
        dtype=dtype,
        target=target,
        compute_ps=compute_ps,
        training=training,
    )


def _as_held(asked: AskedReducer, dtype: Held, *, forgiving: bool) -> AskedReducer:
    """Return a reducer for gradients of a type; if ``forgiving``, one that a run can do without but for dense."""
    optional = asked.optional or (forgiving and not asked.reducer.traits.baseline)
    return replace(asked, reducer=asked.reducer.held_in(dtype), optional=optional)
