"""Predicts measured iterations: cluster, model, reducer and discipline of each row, replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.own_choice import OwnChoice
from s2sim.collectives.libraries.tables import choose_library
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.errors import S2SimError
from s2sim.replay.iteration.conditions import Conditions
from s2sim.replay.iteration.run import replay_iterations
from s2sim.study.validate.iterations.exchange import discipline_of, exchange_of
from s2sim.study.validate.iterations.implementations import (
    CALL_OPERATIONS,
    OPERATION_PS,
    host_loop_ps,
    implementation_of,
    option_string_of,
)
from s2sim.study.validate.iterations.machine import machine_of
from s2sim.study.validate.iterations.tensors import compute_of, profile_of
from s2sim.study.validate.machine import MachineClusters
from s2sim.topology.files.hardware import load_gpu
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.libraries.library import Library
    from s2sim.replay.iteration.iterations import Iterations
    from s2sim.study.validate.iterations.row import IterationRow
    from s2sim.topology.files.links import LinkCatalogue

_NCCL = replace(choose_library("nccl:timing=measured"), profile=OwnChoice("nccl"))
_GLOO = "gloo"
# A message that a row books apart from the rest of its communication has fewer bytes than this.
_FEW_BYTES = 2**10
# The second iteration is like all that follow, where a forward pass waits for all of the exchange before it; else the
# first and the last are unlike the others.
_ITERATIONS, _ITERATIONS_IN_A_ROW = 2, 5


@dataclass(frozen=True, slots=True)
class Prediction:
    """What an iteration takes in seconds, and option strings of what stands for the row's reducer and discipline.

    Communication is as the row counts it: what no compute hides where the row says so, and without a first message of
    few bytes where that is told apart.
    """

    iteration_s: float
    communication_s: float
    codec_s: float
    ran_as: str


class IterationPredictor:
    """Predicts rows one after the other; clusters that are alike are laid out once."""

    def __init__(self, catalogue: LinkCatalogue) -> None:
        self._catalogue = catalogue
        self._clusters = MachineClusters(catalogue)
        self._timers: dict[tuple[int, str], Timer] = {}

    def predict(self, row: IterationRow) -> Prediction:
        """Return the prediction of a row; `S2SimError` says why there is none."""
        library = choose_library(f"{_GLOO}:timing=measured") if _GLOO in row.notes.lower() else _NCCL
        timer, gpu_name = self._cluster(row, library)
        profile = profile_of(row, gpu_name)
        discipline = discipline_of(row)
        option_string = option_string_of(row, profile.parameters)
        compute = compute_of(row, profile)
        exchange = exchange_of(row, profile.tensors, compute, discipline, option_string, timer)
        gpu = load_gpu(gpu_name)
        loop_ps = host_loop_ps(row)
        iterations = replay_iterations(
            exchange,
            compute,
            timer,
            gpu,
            library,
            Conditions(
                slower=np.ones((_ITERATIONS if discipline.waits_for_all else _ITERATIONS_IN_A_ROW, row.workers)),
                waits_for_all=discipline.waits_for_all,
                host_loop_ps=loop_ps,
            ),
        )
        parts = iterations.typical
        communication_ps = parts.exposed_communication + parts.waiting
        if row.packs or not row.exposed:
            communication_ps += parts.hidden_communication
        if row.first_message_ms is not None:
            communication_ps -= _first_message_ps(iterations)
        more_ps = 0
        if row.packs:
            # Who tells parts apart lets the host wait for the GPU before and after each.
            call_ps = CALL_OPERATIONS * OPERATION_PS + 2 * gpu.host_sync_ps
            more_ps = call_ps * len(exchange[0].recording.calls)
            communication_ps += call_ps
            if row.sent_densely and row.decode_ms is None:
                # Copying back counts to what it waits for.
                communication_ps = max(communication_ps, loop_ps * len(profile.tensors))
        elif implementation_of(row).one_stream:
            more_ps = parts.hidden_communication
            communication_ps = parts.exposed_communication + parts.waiting + parts.hidden_communication
        return Prediction(
            iteration_s=(parts.iteration + more_ps) / PS_PER_S,
            communication_s=max(0, communication_ps) / PS_PER_S,
            codec_s=parts.codec / PS_PER_S,
            ran_as=f"{option_string} {discipline.text}",
        )

    def _cluster(self, row: IterationRow, library: Library) -> tuple[Timer, str]:
        """Return what times collectives on a row's cluster, and the name of its GPU in the catalogue."""
        machine = machine_of(row)
        cluster, ways = self._clusters.of(machine)
        name = self._catalogue.gpu_name(machine.gpu_model)
        if name is None:
            raise S2SimError(f"the GPU {row.gpu!r} is not in the hardware catalogue")
        key = id(cluster), library.name
        if key not in self._timers:
            self._timers[key] = Timer(cluster, AUTO, ways, library.profile)
        return self._timers[key], name


def _first_message_ps(iterations: Iterations) -> int:
    """Return what the last iteration's messages of few bytes took."""
    begun_ps = iterations.spent.begun_ps[-2]
    small = [
        launch
        for launch in iterations.launches
        if launch.start_ps >= begun_ps and launch.timed.schedule.demand.buffer_bytes <= _FEW_BYTES
    ]
    return sum(launch.timed.duration_ps for launch in small)
