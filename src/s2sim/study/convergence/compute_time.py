"""What a rank computes in a training step: stated, of a profile, or estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.profiles.read import read_profile
from s2sim.units import PS_PER_S, format_seconds, parse_option, parse_time_ps

if TYPE_CHECKING:
    from s2sim.study.convergence.spec import TrainSpec
    from s2sim.topology.files.hardware import Gpu

_LAUNCHES = 3
"""Kernels that a parameter takes at least: forward, backward, optimizer."""


@dataclass(frozen=True, slots=True)
class ComputeTime:
    """What a rank computes in a step, and where that is from."""

    ps: int
    why: str


def compute_time(spec: TrainSpec, gpu: Gpu, operations: int, tensors: int) -> ComputeTime:
    """Return what a rank computes in a step: as given, as a profile has it, or of so many operations on a GPU."""
    if spec.compute is not None:
        return ComputeTime(parse_option("--compute", parse_time_ps, spec.compute), f"{spec.compute}, as asked for")
    if spec.profile is not None:
        profile = read_profile(spec.profile).on(gpu)
        spent_ps = profile.forward_ps + profile.backward_ps + profile.optimizer_ps
        said = f"{format_seconds(spent_ps / PS_PER_S)}, forward, backward and optimizer of the profile {profile.name}"
        return ComputeTime(spent_ps, said)
    spent_ps = round(gpu.flops_s(operations) * PS_PER_S) + _LAUNCHES * tensors * gpu.kernel_launch_ps
    why = (
        f"{format_seconds(spent_ps / PS_PER_S)}, estimated: {operations / 1e6:.0f} million operations of a mini-batch "
        f"at the rate of {gpu.name}, and {_LAUNCHES} kernels started for each of {tensors} parameters; --compute sets "
        "it"
    )
    return ComputeTime(spent_ps, why)
