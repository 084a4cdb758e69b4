"""Predicts measured iterations: cluster, model, reducer and discipline of each row, replayed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError, suggest_nearest
from s2sim.experiment.codec_costs import OPERATION_PS, CodecCosts, charge_codec
from s2sim.experiment.scaled_scripts import record_scaled
from s2sim.experiment.scenario.reducers import ReducerSpec
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.models import ModelLayer
from s2sim.gradients.scaling import scale_to_layers
from s2sim.libraries.constants import Version
from s2sim.libraries.library import Library
from s2sim.libraries.lowering import choose_library
from s2sim.libraries.nccl import NcclProfile
from s2sim.profiles.profile import TensorTiming
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.script import Recording, Work
from s2sim.seeds import named_generator
from s2sim.simulation.accounting import IterationSettings
from s2sim.simulation.bucketing.policy import BucketExchange, Discipline, ReadyTensors, make_discipline
from s2sim.simulation.device import Compute
from s2sim.simulation.iteration import replay_iterations
from s2sim.topology.hardware import Gpu, find_gpu_name, load_gpu
from s2sim.units import PS_PER_S
from s2sim.validation import iteration_machine
from s2sim.validation.curve_machine import machine_timer
from s2sim.validation.iteration_result import MeasuredIterationRow
from s2sim.validation.node_files import names

# Normal values that represent those of a layer.
_VALUES, _VALUE_BYTES = 2**14, 4
_DISCIPLINES: dict[str, str] = names()["overlap"]
_NCCL, _GLOO = "nccl", "gloo"
# A message that a row books apart from the rest of its communication has fewer bytes than this.
_FEW_BYTES = 2**10
# The second iteration is like all that follow, where a forward pass waits for all of the exchange before it; else the
# first and the last are unlike the others.
_ITERATIONS, _ITERATIONS_IN_A_ROW = 2, 5


@cache
def record_on_shapes(option_string: str, shapes: tuple[tuple[int, ...], ...], workers: int) -> Recording:
    """Return the scripts of a reducer on dense layers of these shapes, with normal values in them."""
    layers = [ModelLayer(f"{number}", shape, sparse=False) for number, shape in enumerate(shapes)]
    gradients = [
        Gradient(("values",), (named_generator(0, "iteration", rank).standard_normal(_VALUES, np.float32),))
        for rank in range(workers)
    ]
    asked = ReducerSpec(option_string, make_reducer(option_string))
    (found,), *_ = record_scaled([asked], gradients, scale_to_layers("row", layers, gradients[0], workers), seed=0)
    return found.recording


def with_packing(recording: Recording, elements: int, *, at_once: bool) -> Recording:
    """Return scripts that copy all into one buffer and back; ``at_once``: back while the last call is in flight."""
    copied = 2 * _VALUE_BYTES * elements
    pack, unpack = Work("encode", copied), Work("decode", copied)
    scripts = [(pack, *each[:-1], unpack, each[-1]) if at_once else (pack, *each, unpack) for each in recording.scripts]
    return replace(recording, scripts=tuple(scripts))


def row_discipline(row: MeasuredIterationRow) -> Discipline:
    """Return how a row's gradients are exchanged; `S2SimError` where it does not say."""
    if (name := _DISCIPLINES.get(row.overlap_kind)) is None:
        known = suggest_nearest(row.overlap_kind, _DISCIPLINES)
        raise S2SimError(f"how communication overlaps is not known: overlap_kind {row.overlap_kind!r}{known}")
    latency = iteration_machine.assumed_latency(row) if name == "mg-wfbp" else None
    return make_discipline(name if latency is None else f"{name}:latency={latency}")


def row_exchange(
    row: MeasuredIterationRow,
    tensors: Sequence[TensorTiming],
    compute: Compute,
    discipline: Discipline,
    option_string: str,
    timer: Timer,
    gpu: Gpu,
) -> tuple[BucketExchange, ...]:
    """Return the buckets of a row's gradients in order of departure, each with its recording."""
    ready = ReadyTensors(
        bytes=np.array([_VALUE_BYTES * tensor.size for tensor in tensors], np.int64),
        ready_ps=np.cumsum(compute.backward_ps),
        sparse=np.zeros(len(tensors), np.bool_),
    )

    def exchange_ps(size_bytes: int) -> int:
        return timer.time(make_demand("all_reduce", size_bytes, row.workers)).duration_ps

    costs, exchanges = iteration_machine.codec_costs_of(row), []
    for bucket in discipline.buckets(ready, exchange_ps):
        within = [tensors[place] for place in bucket.tensors]
        recording = record_on_shapes(option_string, tuple(tensor.shape for tensor in within), row.workers)
        sizes = [tensor.size for tensor in within]
        recording = charge_codec(recording, replace(costs, operations_ps=0), sizes, gpu)
        if row.packs:
            recording = with_packing(recording, sum(sizes), at_once=row.sent_densely)
        looped = charge_codec(recording, CodecCosts(operations_ps=costs.operations_ps), sizes, gpu)
        exchanges.append(BucketExchange(bucket, looped))
    return tuple(exchanges)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Times of an iteration in seconds, communication as its row counts it, and the option strings of who made them."""

    iteration_s: float
    communication_s: float
    codec_s: float
    ran_as: str


@cache
def _library(name: str, version: Version) -> Library:
    library = choose_library(f"{name}:timing=measured")
    profile = library.profile
    return replace(library, profile=replace(profile, version=version)) if isinstance(profile, NcclProfile) else library


class IterationPredictor:
    """Predicts rows; equal clusters are built once."""

    def __init__(self) -> None:
        self._timers: dict[object, Timer] = {}

    def predict(self, row: MeasuredIterationRow) -> Prediction:
        """Return the prediction of a row; `S2SimError` says why there is none."""
        name = _GLOO if _GLOO in row.notes.lower() else _NCCL
        library = _library(name, iteration_machine.software_of(row.source).nccl)
        machine = iteration_machine.row_machine(row)
        timer = machine_timer(machine, self._timers).with_profile(library.profile)
        if (gpu_name := find_gpu_name(machine.gpu_model)) is None:
            raise S2SimError(f"the GPU {row.gpu!r} is not in the hardware catalogue")
        profile = iteration_machine.row_profile(row, gpu_name)
        discipline = row_discipline(row)
        option_string = iteration_machine.option_string_of(row, profile.parameters)
        compute = iteration_machine.row_compute(row, profile)
        gpu = load_gpu(gpu_name)
        exchange = row_exchange(row, profile.tensors, compute, discipline, option_string, timer, gpu)
        iterations = replay_iterations(
            exchange,
            compute,
            timer,
            gpu,
            library,
            IterationSettings(
                slower=np.ones((_ITERATIONS if discipline.waits_for_all else _ITERATIONS_IN_A_ROW, row.workers)),
                waits_for_all=discipline.waits_for_all,
            ),
        )
        parts = iterations.typical
        communication_ps = parts.exposed_communication + parts.waiting
        if row.packs or not row.exposed:
            communication_ps += parts.hidden_communication
        if row.first_message_ms is not None:
            begun_ps = iterations.activity.begun_ps[-2]
            communication_ps -= sum(
                launch.timed.duration_ps
                for launch in iterations.launches
                if launch.start_ps >= begun_ps and launch.timed.schedule.demand.buffer_bytes <= _FEW_BYTES
            )
        more_ps = 0
        if row.packs:
            # To time parts separately, the host waits for the GPU before and after each.
            call_ps = iteration_machine.CALL_OPERATIONS * OPERATION_PS + 2 * gpu.host_sync_ps
            more_ps = call_ps * len(exchange[0].recording.calls)
            communication_ps += call_ps
            if row.sent_densely and row.decode_ms is None:
                # Copying back counts to what it waits for.
                loop_ps = iteration_machine.codec_costs_of(row).operations_ps
                communication_ps = max(communication_ps, loop_ps * len(profile.tensors))
        elif iteration_machine.implementation_of(row).one_stream:
            more_ps = parts.hidden_communication
            communication_ps = parts.exposed_communication + parts.waiting + parts.hidden_communication
        return Prediction(
            iteration_s=(parts.iteration + more_ps) / PS_PER_S,
            communication_s=max(0, communication_ps) / PS_PER_S,
            codec_s=parts.codec / PS_PER_S,
            ran_as=f"{option_string} {discipline.text}",
        )
