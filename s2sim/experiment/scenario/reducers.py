"""The reducers of an experiment and its gradients, resolved once from the spec."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Self, TypeAlias, cast

import numpy as np

from s2sim.errors import OptionError, S2SimError, warn
from s2sim.experiment.cluster_spec import overridden_field
from s2sim.experiment.scenario.cluster import Machines, Scenario, resolve_cluster, resolve_machines
from s2sim.experiment.scenario.groups import groups_for_all
from s2sim.experiment.scenario.recorded import corrected_machines, predict_recorded
from s2sim.experiment.scenario.training import TrainingIteration, resolve_training
from s2sim.experiment.spec import FOR_BOTH, FOR_DENSE_LAYERS, FOR_TABLES, CodecBasis, RunSpec
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.law import ExtrapolatedRanks
from s2sim.gradients.manifest import LayerEntry
from s2sim.gradients.models import Model, ModelLayer, load_model
from s2sim.gradients.scaling import parse_parameters
from s2sim.gradients.synthetic import AnyTrace, SyntheticTrace, load_trace
from s2sim.libraries.library import Library
from s2sim.profiles.profile import TensorTiming
from s2sim.profiles.read import PROCESSORS, RecordedJob
from s2sim.provenance import memory_bytes
from s2sim.reducers.rank import GradientDtype, Reducer
from s2sim.reducers.registry import (
    PRESETS,
    leaves_feedback_out,
    make_reducer,
    option_string,
    reducer_names,
    with_feedback,
)
from s2sim.reducers.run import OtherSteps
from s2sim.reducers.wrappers.error_feedback import FeedbackPasses
from s2sim.simulation.bucketing.policy import Bucket
from s2sim.simulation.bucketing.sharded import ShardedDiscipline, check_takes_shards
from s2sim.topology.cluster import Cluster
from s2sim.topology.hardware import Gpu
from s2sim.units import format_bytes, parse_option, parse_time_ps

ALL = "all"
# Each of the steps after which a reducer exchanges runs.
_LONGEST_PERIOD = 10_000

AnyLayer: TypeAlias = LayerEntry | ModelLayer | TensorTiming
"""A layer of a trace, of a model or of a profile."""


@dataclass(frozen=True, slots=True)
class ReducerSpec:
    """A reducer and its option string in results; an ``optional`` one that refuses something is left out and noted."""

    option_string: str
    reducer: Reducer
    optional: bool = False

    @property
    def bare(self) -> bool:
        """Whether it runs without the error feedback that it needs."""
        return self.reducer.traits.feedback == "needed" and leaves_feedback_out(self.option_string)

    @property
    def timed(self) -> Reducer:
        """The reducer with what the error feedback takes that training adds, unless ``ef=false`` leaves it out."""
        return self.reducer if self.bare else with_feedback(self.reducer, FeedbackPasses)


def parse_reducers(texts: Sequence[str]) -> tuple[ReducerSpec, ...]:
    """Return the reducers of option strings; `OptionError` if two are the same."""
    return _distinct([ReducerSpec(text, make_reducer(text)) for text in texts])


def _distinct(asked: Sequence[ReducerSpec]) -> tuple[ReducerSpec, ...]:
    written: dict[tuple[str, str], str] = {}
    for item in asked:
        if item.reducer.period > _LONGEST_PERIOD:
            steps = f"{item.reducer.period:,} steps, each of which runs"
            raise OptionError(f"{item.option_string} exchanges once in {steps}: give at most {_LONGEST_PERIOD:,}")
        # A preset stands beside what it is another name for.
        name = item.option_string.partition(":")[0]
        canonical = (name if name in PRESETS else "", f"{option_string(item.reducer)}{' bare' * item.bare}")
        if canonical in written:
            raise OptionError(f"the same reducer was asked for twice: {written[canonical]} and {item.option_string}")
        written[canonical] = item.option_string
    return tuple(asked)


def with_baseline(reducers: Sequence[ReducerSpec], dtype: GradientDtype) -> tuple[ReducerSpec, ...]:
    """Return the reducers for gradients of a dtype, first ``dense`` if none of them is the all-reduce of that dtype."""
    typed = tuple(replace(item, reducer=item.reducer.with_dtype(dtype)) for item in reducers)
    if any(item.reducer.traits.baseline for item in typed):
        return typed
    return (ReducerSpec("dense", make_reducer("dense").with_dtype(dtype)), *typed)


def asked_or_all(texts: Sequence[str]) -> tuple[tuple[ReducerSpec, ...], dict[str, str]]:
    """Return the reducers of option strings, ``all`` being every other one, and by name why some cannot be made."""
    wants_all = sum(map(_is_all, texts))
    if wants_all > 1:
        raise OptionError(f"{ALL} was asked for twice")
    asked, errors = _make_possible([text for text in texts if not _is_all(text)])
    if errors and not asked and not wants_all:
        raise next(iter(errors.values()))
    reducers = _distinct(asked)
    if wants_all:
        # ``dense`` is there in any case, see `with_baseline`.
        there = {"dense", *(option_string(item.reducer) for item in asked), *(item.option_string for item in asked)}
        others, more = _make_possible([name for name in reducer_names() if name not in there], optional=True)
        reducers, errors = (*reducers, *others), errors | more
    return reducers, {text: str(error) for text, error in errors.items()}


def _make_possible(texts: Sequence[str], *, optional: bool = False) -> tuple[list[ReducerSpec], dict[str, S2SimError]]:
    """Return the reducers that can be made, and why others cannot: among ``optional`` ones those that need parts."""
    made, errors = [], {}
    for text in texts:
        try:
            reducer = make_reducer(text)
        except S2SimError as error:
            errors[text] = error
            continue
        if optional and reducer.needs_parts:
            errors[text] = OptionError(f"{text} alone says nothing: name it with {reducer.needs_parts}")
        else:
            made.append(ReducerSpec(text, reducer, optional))
    return made, errors


def _is_all(text: str) -> bool:
    name, options, _ = text.strip().partition(":")
    if name == ALL and options:
        raise OptionError(f"{text}: {ALL} runs every reducer with its own defaults; name a reducer to set its options")
    return name == ALL


def _with_shards(reducers: Sequence[ReducerSpec]) -> tuple[tuple[ReducerSpec, ...], dict[str, str]]:
    """Return the reducers that ranks with shards can run, and why optional others cannot; `OptionError` for one."""
    able, refused = [], {}
    for item in reducers:
        try:
            check_takes_shards(item.reducer.period, item.reducer.traits.estimates)
            able.append(item)
        except S2SimError as error:
            if not item.optional:
                raise OptionError(f"{item.option_string}: {error}") from None
            refused[item.option_string] = str(error)
    return tuple(able), refused


def place_reducers(cluster: Cluster, reducers: Sequence[ReducerSpec]) -> tuple[ReducerSpec, ...]:
    """Return the reducers with the nodes of the ranks known to them."""
    nodes = tuple(cluster.node_of_rank.tolist())
    return tuple(replace(item, reducer=item.reducer.placed(nodes)) for item in reducers)


def zero_gradient(layers: Sequence[AnyLayer]) -> Gradient:
    """Return a gradient of some layers without anything in it: what a reducer compresses follows from shapes."""
    zero, no_rows = np.zeros((), np.float32), np.zeros(0, np.int64)
    values = tuple(
        RowSparse(no_rows, np.zeros((0, *each.shape[1:]), np.float32), each.shape)
        if each.sparse
        else np.broadcast_to(zero, each.shape)
        for each in layers
    )
    return Gradient(tuple(each.name for each in layers), values)


def warn_of_later_options(reducers: Sequence[ReducerSpec], *, what: str) -> None:
    """Warn of options that act only from the second step on; ``what`` takes the first."""
    for item in reducers:
        for option in item.reducer.later_options():
            text = f"{item.option_string}: {option} acts from the second step on, and {what} takes the first"
            warn(text, reducer=item.option_string)


def step_reader(trace: AnyTrace, ranks: int) -> OtherSteps | None:
    """Return a reader of the gradients of other steps, in turn if there are fewer; None if there is only one."""
    if trace.steps == 1:
        return None
    return lambda step: [trace.gradient(step % trace.steps, rank) for rank in range(ranks)]


# Every rank runs every reducer's program, a millisecond or so each.
_MAX_RANKS = 2**17

FEW_RANKS = 16
"""Ranks that run for their errors, where scripts follow from those of one."""

# Of all elements; where tables or dense layers have more, compressing the others gains little.
_MOST = 0.9


def suitable_reducers(layers: Iterable[AnyLayer]) -> tuple[str, ...]:
    """Return the option strings that are compared by default on gradients of some layers."""
    sizes = {True: 0, False: 0}
    for layer in layers:
        sizes[layer.sparse] += layer.size
    whole = sum(sizes.values())
    if sizes[True] > _MOST * whole:
        return FOR_TABLES
    return FOR_DENSE_LAYERS if sizes[False] > _MOST * whole else FOR_BOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducerScenario(Scenario):
    """A cluster, the reducers that run on it, and what they run with."""

    reducers: tuple[ReducerSpec, ...]  # ``dense`` among them
    machines: Machines  # What executes the collectives, and what encodes and decodes
    trace: AnyTrace  # The gradients
    dtype: GradientDtype = "fp32"  # Type that training holds them in
    codec_as: CodecBasis = "kernels"  # What codecs cost
    target: Model | int | None = None  # The model, or the number of parameters, to which sizes are scaled
    compute_ps: int | None = None  # How long forward and backward take, where that is added without overlap
    # What iterations compute and how they exchange, where a profile says that
    training: TrainingIteration | None = None
    # Why others that were asked for cannot be, by option string
    refused: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> Self:
        """Return it with its cluster filled in order, without faults or groups, for the phase alone."""
        return replace(super(ReducerScenario, self).plain(), compute_ps=None)

    def reducers_on(self, workers: int) -> tuple[ReducerSpec, ...]:
        """Return the reducers with the nodes of ``workers`` ranks known to them."""
        return place_reducers(self.healthy(workers), self.reducers)

    def by_recorded_ranks(self, ranks: int) -> dict[int, tuple[ReducerSpec, ...]]:
        """Return the reducers, placed on nodes, by how many of so many ranks have to run for them.

        A few, if sizes are scaled to layers without tables and all that a reducer sends follows from shapes: scripts
        are then those of one rank, and only errors are recorded.
        """
        recorded = self.target is None or any(each.sparse for each in _layers_of(self.trace, self.target))
        found: dict[int, list[ReducerSpec]] = {}
        for item in self.reducers_on(ranks):
            shapes = item.reducer.size_only and not item.reducer.traits.warm and item.reducer.period == 1
            found.setdefault(min(ranks, FEW_RANKS) if shapes and not recorded else ranks, []).append(item)
        return {few: tuple(items) for few, items in found.items()}

    def tensor_sizes(self, reducer: Reducer) -> tuple[list[int], tuple[int, ...]]:
        """Return the elements of each tensor, of a profile as they become ready, and which a reducer compresses."""
        layers = _layers_of(self.trace, self.target, self.training)
        scale = self.target / sum(each.size for each in layers) if isinstance(self.target, int) else 1
        return [round(scale * each.size) for each in layers], reducer.compresses(zero_gradient(layers))

    def buckets(self, ranks: int) -> tuple[Bucket, ...]:
        """Return the buckets of an iteration on so many ranks; none without iterations."""
        if self.training is None:
            return ()
        return self.training.buckets(self.timer(ranks).with_profile(self.library.profile), self.dtype)

    def for_codec(self, reducer: str, ranks: int) -> Self:
        """Return it with what runs the codec of a reducer, by its name, on each of so many ranks."""
        gpu = self.gpu.for_codec(reducer, max(1.0, ranks / (self.shape.processors or ranks)))
        return self if gpu is self.gpu else replace(self, machines=replace(self.machines, gpu=gpu))

    @property
    def library(self) -> Library:
        """The library that executes the collectives."""
        return self.machines.library

    @property
    def gpu(self) -> Gpu:
        """The GPU that encodes and decodes."""
        return self.machines.gpu


def _layers_of(
    trace: AnyTrace, target: Model | int | None, training: TrainingIteration | None = None
) -> Sequence[AnyLayer]:
    if training is not None:
        return training.profile.tensors
    return target.layers if isinstance(target, Model) else trace.manifest.layers


def check_ranks(workers: int, trace: AnyTrace) -> None:
    """Refuse more ranks than can be run, or than memory can store the gradients of."""
    if workers > _MAX_RANKS:
        raise OptionError(
            f"--workers {workers}: each one runs every reducer on its own gradient, and at most {_MAX_RANKS} are run: "
            "ask for fewer, or time one collective of them with s2sim collective"
        )
    needed, there = workers * held_bytes(trace), memory_bytes()
    if there is not None and needed > there:
        raise OptionError(
            f"--workers {workers}: the gradients of {trace.name} take about {format_bytes(needed)}, and there are "
            f"{format_bytes(there)} of memory: ask for fewer workers or smaller gradients"
        )


def held_bytes(trace: AnyTrace) -> int:
    """Return the bytes that the gradient of one rank takes in memory."""
    if isinstance(trace, SyntheticTrace):
        return trace.options.held_bytes
    layers = trace.gradient(0, 0).layers
    dense = sum(each.nbytes for each in layers if not isinstance(each, RowSparse))
    # Drawn ranks have the dense layers of a recorded one.
    own = 0 if isinstance(trace, ExtrapolatedRanks) else dense
    return own + sum(each.rows.nbytes + each.values.nbytes for each in layers if isinstance(each, RowSparse))


def _backend_of_job(spec: RunSpec) -> str | None:
    """Return the library of a job that was recorded on processors, where a cluster's is often one of GPUs."""
    if spec.recorded is None or "library" in map(overridden_field, spec.overrides):
        return None
    job = RecordedJob.read(spec.recorded)
    return job.backend if job.device == PROCESSORS else None


def resolve_run(spec: RunSpec) -> ReducerScenario:
    """Return the scenario of a run."""
    reducers, refused = asked_or_all(spec.reducers)
    compute_ps = None if spec.compute is None else parse_option("--compute", parse_time_ps, spec.compute)
    target: Model | int | None = None if spec.scale_to is None else parse_parameters(spec.scale_to)
    where = resolve_cluster(spec, spec.collective)
    if spec.groups is not None:
        where = replace(where, groups=groups_for_all(spec.groups, spec.workers))
    several = spec.by_default or len(reducers) > 1  # Others are left if one refuses the gradients
    ranks = where.ranks_of(max(spec.workers))
    trace = load_trace(spec.trace, workers=ranks, seed=spec.seed, keep=True)
    check_ranks(ranks, trace)
    for item in reducers:
        # A wrong name of an algorithm is refused now, not once gradients are there.
        where.running(item.reducer.runs_by)
    dtype = trace.manifest.dtype if spec.dtype is None else cast("GradientDtype", spec.dtype)
    machines = resolve_machines(where.shape, where.overrides, spec.library, spec.gpu, backend=_backend_of_job(spec))
    training = resolve_training(spec, where, machines, ranks)
    if training is not None and (job := training.job) is not None:
        compared = predict_recorded(training, job, machines.gpu, trace)
        if compared is not None:
            training, machines = replace(training, recorded=compared), corrected_machines(machines, job, compared)
    if spec.model is not None:
        target = load_model(spec.model)
    if training is not None:
        own = {each.name: each.size for each in training.profile.tensors}
        target = None if own == {each.name: each.size for each in trace.manifest.layers} else training.model
    layers = _layers_of(trace, target, training)
    if spec.gpu is not None:
        # A library treats GPUs by their generation: it is told of those that run, not of those that the file has.
        where = replace(where, shape=replace(where.shape, gpu=spec.gpu))
    asked = tuple(
        replace(item, optional=item.optional or (several and not item.reducer.traits.baseline))
        for item in with_baseline(reducers or parse_reducers(suitable_reducers(layers)), dtype)
    )
    if training is not None and isinstance(training.discipline, ShardedDiscipline):
        asked, more = _with_shards(asked)
        refused |= more
    return ReducerScenario(
        **{each.name: getattr(where, each.name) for each in fields(where)},
        reducers=asked,
        refused=refused,
        machines=machines,
        trace=trace,
        dtype=dtype,
        codec_as=cast("CodecBasis", spec.codec_as),
        target=target,
        compute_ps=compute_ps,
        training=training,
    )
