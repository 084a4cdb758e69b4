"""The compute of a training iteration, its exchange of gradients, and the number of simulated iterations."""

import csv
import io
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log, sqrt

import numpy as np

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.concurrent_groups import ConcurrentGroupsTimer
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.cluster_spec import flag_of, options_of
from s2sim.experiment.scenario.cluster import Machines, Scenario
from s2sim.experiment.scenario.groups import ParallelGroups
from s2sim.experiment.scenario.recorded import RecordedComparison, recorded_discipline
from s2sim.experiment.spec import RunSpec
from s2sim.files import read_text, user_path
from s2sim.gradients.models import LayerGroup, LayerTable, Model, PublishedCount
from s2sim.profiles.profile import VALUE_BYTES, ComputeProfile
from s2sim.profiles.read import PROCESSORS, ProfileSource, RecordedJob, open_profile, profile_names
from s2sim.profiles.sharding import ShardedCompute, layer_blocks, shard_profile
from s2sim.reducers.rank import GradientDtype, Traits
from s2sim.seeds import named_generator
from s2sim.simulation.accounting import LEAST_PERIODS, IterationSettings
from s2sim.simulation.bucketing.policy import Bucket, Discipline, ReadyTensors, make_discipline
from s2sim.simulation.bucketing.sharded import ParameterGathers, ShardedDiscipline
from s2sim.simulation.device import Compute
from s2sim.topology.cluster import Cluster
from s2sim.topology.hardware import Gpu
from s2sim.units import PS_PER_S, format_seconds, parse_option, parse_time_ps


def shard_on_cluster(
    profile: ComputeProfile, groups: ParallelGroups, cluster: Cluster, mini_batches: int, library: LibraryProfile
) -> ShardedCompute:
    """Return the compute of a rank of the first stage; all groups of a kind send concurrently.

    ``profile`` is of the whole model on one GPU, for the batch that passes the stages as one; ``groups`` are of all
    workers of the cluster.
    """

    def all_reduce_ps(size_bytes: int) -> int:
        demand = Demand("all_reduce", (size_bytes,) * groups.tp, 1)
        return _timer(cluster, groups, "tp", library).time(demand).duration_ps

    def send_ps(size_bytes: int) -> int:
        # The last stage sends nothing on.
        demand = Demand("send_recv", (*(size_bytes,) * (groups.pp - 1), 0), 1)
        return _timer(cluster, groups, "pp", library).time(demand).duration_ps

    return shard_profile(
        profile,
        tp=groups.tp,
        pp=groups.pp,
        mini_batches=mini_batches,
        value_bytes=VALUE_BYTES[profile.precision],
        all_reduce_ps=all_reduce_ps,
        send_ps=send_ps,
    )


# Mini-batches are tried one after the other on one cluster.
@lru_cache(maxsize=4)
def _timer(cluster: Cluster, groups: ParallelGroups, kind: str, library: LibraryProfile) -> Timer:
    return ConcurrentGroupsTimer(cluster, groups.of(kind), profile=library)


def sharding_notes(share: ShardedCompute, groups: ParallelGroups) -> tuple[str, ...]:
    """Return the notes on the times of a rank that shares a model with others."""
    if groups.count == 1:
        return ()
    shown = f"one rank of {groups.tp} that share the first of {groups.pp} stages is shown, which ends backward last"
    notes = [f"{shown}; all {groups.count} groups exchange gradients as it does"]
    parts = (
        (share.tensor_parallel_ps, "all-reduces between tensor-parallel ranks"),
        (share.pipeline_ps, "activations sent to the next stage"),
    )
    told = [f"{format_seconds(ps / PS_PER_S)} of {what}" for ps, what in parts if ps]
    if told:
        notes.append(f"forward and backward of a mini-batch have {' and '.join(told)} in them")
    if share.idle_ps:
        notes.append(
            f"the rank waits {format_seconds(share.idle_ps / PS_PER_S)} of an iteration for other stages, with one "
            "forward and one backward in turns; more mini-batches (--accumulate) make that a smaller share"
        )
    return (*notes, *((share.unmodelled,) if share.unmodelled else ()))


_SHOWN = 40
# Milliseconds: beyond is a slip of the pen.
_MAX_MS = 1e9


def read_compute_times(text: str) -> tuple[tuple[float, ...], ...]:
    """Return the compute times in milliseconds of a CSV file: a row per iteration, a column per rank."""
    path = user_path(text, S2SimError)
    rows: list[tuple[float, ...]] = []
    reader = csv.reader(io.StringIO(read_text(path)))
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path.name}, row {reader.line_num}"
        rows.append(tuple(_time_ms(cell, where) for cell in cells))
        if len(rows[-1]) != len(rows[0]):
            raise S2SimError(f"{where}: it has {len(rows[-1])} ranks and the first row {len(rows[0])}")
    if not rows:
        raise S2SimError(f"{path.name} has no row: write a line an iteration, a time in ms a rank, separated by commas")
    return tuple(rows)


def _time_ms(cell: str, where: str) -> float:
    try:
        time_ms = float(cell)
    except ValueError:
        time_ms = float("nan")
    if not 0 < time_ms <= _MAX_MS:
        raise S2SimError(f"{where}: {cell.strip()[:_SHOWN]!r} is no time in milliseconds above 0")
    return time_ms


DEFAULT_DISCIPLINE = "ddp"
"""What PyTorch does unless told otherwise."""

# Fields of a spec that mean nothing without a profile.
_ITERATION = ("discipline", "batch", "accumulate", "streams", "host_loop", "compute_cv", "compute_times", "iterations")
_PS_PER_MS = 10**9
# Iterations that run where they differ by chance, and where one reaches into the next.
_BY_CHANCE, _IN_A_ROW = 20, 5


@dataclass(frozen=True, slots=True)
class RankWork:
    """What one rank computes and gathers in an iteration, and holds from one to the next."""

    compute: Compute
    gathers: ParameterGathers
    # Of parameters, gradients, optimizer states and what a reducer keeps, of float32 parameters, without activations
    state_bytes: int
    shards: int  # Ranks that divide the states


@dataclass(frozen=True, slots=True)
class TrainingIteration:
    """The settings of training iterations."""

    source: ProfileSource  # What the profile is made from, for any mini-batch
    profile: ComputeProfile  # What a GPU computes, for the mini-batch and on the GPU of the run
    discipline: Discipline  # Which gradients leave together, and when
    streams: int  # 1 where codec work stands between kernels of compute, 2 where it runs beside them
    # What a loop of the host over tensors takes for each, before a bucket is encoded and before it is decoded
    host_loop_ps: int
    accumulate: int  # Mini-batches before gradients are exchanged
    compute_cv: float  # Standard deviation of a rank's compute time over its mean, by a lognormal distribution
    # Forward and backward times of the ranks in each iteration, as measured; empty where nobody gave them
    compute_times_ms: tuple[tuple[float, ...], ...]
    iterations: int | None  # How many are simulated; None for as many as are needed
    idle_ps: int = 0  # What a rank waits in each iteration for stages of a pipeline
    notes: tuple[str, ...] = ()  # What is to be known of ranks that share the model
    processors: int | None = None  # That all ranks share; None if each has its own, or a GPU
    job: RecordedJob | None = None  # Where it was recorded
    recorded: RecordedComparison | None = None  # That job as predicted, which corrects what follows

    @property
    def value_bytes(self) -> int:
        """Bytes of a value that layers pass on."""
        return VALUE_BYTES[self.profile.precision]

    @property
    def compute(self) -> Compute:
        """The compute of the profile in the form of the engine."""
        tensors, profile = self.profile.tensors, self.profile
        forward_ps = np.array([each.forward_ps for each in tensors], np.int64)
        backward_ps = np.array([each.backward_ps for each in tensors], np.int64)
        return Compute(forward_ps, backward_ps, profile.optimizer_ps, profile.memory_bound, self.host_ps)

    @property
    def host_ps(self) -> int:
        """What the host, and ranks that wait for each other, take of each iteration, as far as it was recorded."""
        found = self.recorded
        return 0 if found is None else round((found.measured.other_s + found.waiting_s) * PS_PER_S)

    @property
    def samples(self) -> int:
        """Samples of one GPU in an iteration."""
        return self.profile.batch * self.accumulate

    def conditions(self, workers: int, period: int, seed: int) -> IterationSettings:
        """Return the settings of iterations on ``workers`` ranks that repeat with a period."""
        wanted = 1 if self.discipline.waits_for_all else _IN_A_ROW
        if self.compute_cv or self.compute_times_ms:
            wanted = len(self.compute_times_ms) or _BY_CHANCE
        least = period if self.discipline.waits_for_all or period == 1 else LEAST_PERIODS * period
        iterations = max(-(-(self.iterations or wanted) // period) * period, least)
        slower, shared = np.ones((iterations, workers)), 1.0
        if self.compute_times_ms:
            # In turn where there are fewer.
            times_ms = np.array(self.compute_times_ms)
            rows, columns = np.arange(iterations) % len(times_ms), np.arange(workers) % times_ms.shape[1]
            stated_ms = self.accumulate * (self.profile.forward_ps + self.profile.backward_ps) / _PS_PER_MS
            slower = times_ms[np.ix_(rows, columns)] / stated_ms
        elif self.compute_cv:
            # Lognormal, of mean 1.
            sigma = sqrt(log(1 + self.compute_cv**2))
            draws = named_generator(seed, "compute").standard_normal((iterations, workers))
            slower = np.exp(sigma * draws - sigma**2 / 2)
        if self.processors is not None:
            # Processes that share processors take turns, as they did where the job was recorded.
            there = 1.0 if self.job is None else self.job.processes_per_processor
            shared = max(1.0, workers / self.processors) / there
        return IterationSettings(
            slower=slower * shared,
            optimizer=shared if self.compute_times_ms else None,
            waits_for_all=self.discipline.waits_for_all,
            streams=self.streams,
            accumulate=self.accumulate,
            idle_ps=self.idle_ps,
            processor_s_per_byte=0.0 if self.recorded is None else self.recorded.processor_s_per_byte,
        )

    def ready_tensors(self, held: GradientDtype) -> ReadyTensors:
        """Return the gradients of a dtype as they become ready."""
        tensors = self.profile.tensors
        return ReadyTensors(
            bytes=np.array([each.size * VALUE_BYTES[held] for each in tensors], np.int64),
            ready_ps=np.cumsum([each.backward_ps for each in tensors]),
            sparse=np.array([each.sparse for each in tensors], np.bool_),
            itemsize=VALUE_BYTES[held],
            blocks=layer_blocks([each.name for each in tensors]),
        )

    def buckets(self, timer: Timer, held: GradientDtype) -> tuple[Bucket, ...]:
        """Return the buckets on the timer's cluster of gradients of a dtype."""

        def exchange_ps(size_bytes: int) -> int:
            return timer.time(Demand("all_reduce", (size_bytes,) * timer.workers, 1)).duration_ps

        return self.discipline.buckets(self.ready_tensors(held), exchange_ps)

    def on_ranks(self, timer: Timer, held: GradientDtype, gpu: Gpu, reducer: Traits | None = None) -> RankWork:
        """Return what one of the timer's ranks computes, gathers and holds, of gradients of a dtype.

        A rank that holds shards copies between tensors and buffers of collectives, and its optimizer works on its
        shard alone. What a ``reducer`` keeps is of the gradient that the rank computes, and whole.
        """
        ready, compute, discipline = self.ready_tensors(held), self.compute, self.discipline
        parameters = int(ready.elements.sum())
        # Where the profile's file has the optimizer's time alone it is taken to be Adam's.
        states = 4 if self.source.file.optimizer.rule == "sgd-momentum" else 8
        carried_bytes = 0
        if reducer is not None:
            # An optimizer within takes the place of the profile's.
            states = 0 if reducer.estimates == "update" else states
            carried_bytes = parameters * reducer.state_bytes
        kept_bytes, gradient_bytes = parameters * (VALUE_BYTES["fp32"] + states), parameters * VALUE_BYTES[held]
        if not isinstance(discipline, ShardedDiscipline):
            return RankWork(compute, ParameterGathers(), kept_bytes + gradient_bytes + carried_bytes, 1)
        nodes = [0] * timer.workers if timer.cluster.workers != timer.workers else timer.cluster.node_of_rank.tolist()
        buckets = self.buckets(timer, held)
        shards = max(map(len, discipline.groups(nodes)), default=timer.workers)
        copied_ps = [
            np.ceil(each / gpu.stream_Bps * PS_PER_S).astype(np.int64)
            for each in discipline.copied_bytes(ready, self.value_bytes)
        ]
        return RankWork(
            replace(
                compute,
                forward_ps=compute.forward_ps + copied_ps[0],
                backward_ps=compute.backward_ps + copied_ps[1],
                optimizer_ps=-(-self.profile.optimizer_ps // shards),
            )
            if shards > 1
            else compute,
            discipline.gathers(ready, buckets, nodes, self.value_bytes) if timer.workers > 1 else ParameterGathers(),
            (discipline.whole_parameters(ready, buckets) + discipline.copied_parameters(ready, nodes))
            * self.value_bytes
            # Gradients that are exchanged after several mini-batches are whole until then.
            - (-kept_bytes // shards)
            - (-gradient_bytes // (shards if self.accumulate == 1 else 1))
            + carried_bytes,
            shards,
        )

    def with_batch(self, batch: int, where: Scenario, machines: Machines, ranks: int) -> "TrainingIteration":
        """Return the same iterations with another mini-batch."""
        return replace(self, profile=self.source.on(machines.gpu, batch)).shared_by(where, machines, ranks)

    def shared_by(self, where: Scenario, machines: Machines, ranks: int) -> "TrainingIteration":
        """Return the iterations of one of the ranks that share the model, if there are such groups."""
        if where.groups is None:
            return self
        groups, cluster = where.all_groups(ranks)
        share = shard_on_cluster(self.profile, groups, cluster, self.accumulate, machines.library.profile)
        return replace(self, profile=share.profile, idle_ps=share.idle_ps, notes=sharding_notes(share, groups))

    @property
    def model(self) -> Model:
        """The profile's parameters as a layer table, in the order of forward."""
        profile = self.profile
        groups = tuple(
            LayerGroup(each.name, each.shape, sparse=each.sparse, rows=each.rows) for each in reversed(profile.tensors)
        )
        counted = PublishedCount(profile.parameters, 0.0, "user", f"parameters of the profile {profile.name}")
        table = LayerTable(f"parameters of the profile {profile.name}", "user", profile.source, groups, counted)
        return Model(profile.model, table, profile.batch * self.accumulate)


def resolve_training(spec: RunSpec, where: Scenario, machines: Machines, ranks: int) -> TrainingIteration | None:
    """Return the iterations of a spec with ``ranks`` replicas; None without a compute profile."""
    name = spec.profile
    if name is None and spec.discipline is not None and spec.model in profile_names():
        name = spec.model
    if name is None:
        options = options_of(RunSpec)
        for field_name in _ITERATION:
            each, option = options[field_name]
            given = getattr(spec, field_name)
            # One mini-batch stands in specs that earlier versions wrote.
            if given != each.default and (field_name, given) != ("accumulate", 1):
                flag = flag_of(field_name, option)
                raise OptionError(
                    f"{flag} needs the times of a model's layers: add --profile NAME (s2sim list profiles tells which)"
                )
        return None
    source = open_profile(name)
    job = None if spec.recorded is None else RecordedJob.read(spec.recorded)
    profile = source.on(machines.gpu, spec.batch)
    if job is not None and spec.discipline is None and where.groups is None:
        discipline = recorded_discipline(job, profile)
    else:
        discipline = make_discipline(spec.discipline or (job and job.discipline) or DEFAULT_DISCIPLINE)
    if where.groups is not None and isinstance(discipline, ShardedDiscipline) and discipline.within_nodes:
        raise OptionError(
            f"--discipline {discipline.text}: ranks of one data-parallel group are on nodes as --groups has it: shards "
            "of a node are not known there, take fsdp without shard and secondary"
        )
    accumulate = spec.accumulate or (1 if job is None else job.mini_batches)
    if accumulate > 1 and not discipline.accumulates:
        raise OptionError(
            f"{accumulate} mini-batches a step: {discipline.name} exchanges the gradients of each, which is not "
            "simulated: take a discipline that adds them up, such as ddp or fsdp"
        )
    training = TrainingIteration(
        source=source,
        profile=profile,
        discipline=discipline,
        streams=spec.streams,
        host_loop_ps=0 if spec.host_loop is None else parse_option("--host-loop", parse_time_ps, spec.host_loop),
        accumulate=accumulate,
        compute_cv=spec.compute_cv,
        compute_times_ms=() if spec.compute_times is None else read_compute_times(spec.compute_times),
        iterations=spec.iterations,
        processors=where.shape.processors if source.file.gpu == PROCESSORS else None,
        job=job,
    )
    return training.shared_by(where, machines, ranks)
