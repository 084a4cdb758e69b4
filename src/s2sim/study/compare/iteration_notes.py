"""What a reader must know of compute, and of whole iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.libraries.profile import Profile
from s2sim.reducers.scripts.script import AwaitGradient
from s2sim.study.measuring.record import names_of
from s2sim.units import PS_PER_S, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.record import Recorded
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.scenario.training import Training
    from s2sim.study.spec import RunSpec


def compute_notes(spec: RunSpec, scenario: ReducerScenario, recorded: Sequence[Recorded]) -> list[str]:
    """Return what is known of compute, and what runs beside it."""
    if scenario.training is not None:
        notes = _iteration_notes(scenario, scenario.training, recorded)
    elif spec.compute is None:
        notes = ["communication phase only: s2sim run --profile resnet-50 or --compute 120ms compares whole iterations"]
    else:
        notes = [f"iteration = {spec.compute} of compute + communication phase, without overlap"]
    early = [item for item in recorded if AwaitGradient() in item.recording.scripts[0]]
    if early:
        known = spec.compute or scenario.training
        hidden = "as far as it is long enough" if known else "which is taken to be long enough without --compute"
        notes.append(
            f"{names_of(early)}: the batch alone tells the rows, as for embeddings; merging them runs beside forward "
            f"and backward, {hidden}"
        )
    return notes


def _iteration_notes(scenario: ReducerScenario, training: Training, recorded: Sequence[Recorded]) -> list[str]:
    """Return on what iterations rest: compute, discipline, streams, and what contends."""
    profile = training.profile
    times = ", ".join(
        f"{what} {format_seconds(time_ps / PS_PER_S)}"
        for what, time_ps in (
            ("forward", profile.forward_ps),
            ("backward", profile.backward_ps),
            ("optimizer", profile.optimizer_ps),
        )
    )
    batch = f"{profile.batch} x {profile.sample} a GPU"
    notes = [f"iterations of {profile.model} on {profile.gpu}, {batch}: {times} ({profile.kind}: {profile.source})"]
    if training.accumulate > 1:
        notes.append(f"{training.accumulate} mini-batches are computed before gradients are exchanged")
    if training.compute_cv:
        notes.append(
            f"ranks' compute times vary by {training.compute_cv:.0%} from iteration to iteration (lognormal): times "
            "are those of the median iteration"
        )
    if training.compute_times_ms:
        notes.append("ranks compute as long as measured times say: times are those of the median iteration")
    notes.append(f"exchange by {training.discipline.text}, {_streams(training)}; {_kernels(scenario)}")
    waiting = [item.option_string for item in recorded if item.reducer.traits.scope == "gradient"]
    if waiting and any(len(item.exchange) > 1 for item in recorded):
        notes.append(f"{', '.join(waiting)}: defined over the whole gradient, and wait until all of it is there")
    return notes


def _streams(training: Training) -> str:
    if training.streams == 1:
        return "codec kernels between those of compute on one stream"
    return "codec kernels beside compute on a stream of their own, sharing memory bandwidth"


def _kernels(scenario: ReducerScenario) -> str:
    profile, gpu = scenario.library.profile, scenario.gpu
    known = type(profile).blocks is not Profile.blocks and gpu.multiprocessors
    if not known:
        return "communication kernels take nothing from compute: how many blocks they have is not known here"
    return f"communication kernels take their share of {gpu.multiprocessors} multiprocessors and of memory from compute"
