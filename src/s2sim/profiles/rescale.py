"""What another mini-batch or GPU makes of a measured profile: an estimate, told in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.profiles.form import Precision
    from s2sim.profiles.profile import Profile
    from s2sim.topology.files.hardware import Gpu


def with_batch(profile: Profile, batch: int) -> Profile:
    """Return a profile whose forward and backward grow with the mini-batch; the optimizer stays as it is."""
    if batch == profile.batch:
        return profile
    scaled = _scaled(profile, batch / profile.batch)
    return replace(
        scaled, batch=batch, source=f"{profile.source}; scaled from a mini-batch of {profile.batch} in proportion"
    )


def on_gpu(profile: Profile, measured: Gpu, gpu: Gpu, precision: Precision) -> Profile:
    """Return a profile on another GPU: what is bound by memory goes with its bandwidth, the rest with its peak."""
    if gpu.name == measured.name:
        return profile
    by_memory = measured.stream_Bps / gpu.stream_Bps
    by_peak = measured.peak(precision) / gpu.peak(precision)
    memory = profile.memory_bound * by_memory
    whole = memory + (1 - profile.memory_bound) * by_peak
    scaled = _scaled(profile, whole)
    return replace(
        scaled,
        gpu=gpu.name,
        optimizer_ps=round(profile.optimizer_ps * by_memory),
        memory_bound=memory / whole,
        source=f"{profile.source}; carried from {measured.name} to {gpu.name} by their {precision} peaks (times "
        f"{by_peak:.3g}) and memory bandwidths (times {by_memory:.3g})",
    )


def _scaled(profile: Profile, factor: float) -> Profile:
    tensors = tuple(
        replace(
            tensor,
            forward_ps=round(tensor.forward_ps * factor),
            backward_ps=round(tensor.backward_ps * factor),
        )
        for tensor in profile.tensors
    )
    return replace(profile, tensors=tensors, kind="estimated")
