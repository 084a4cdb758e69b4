"""What another mini-batch, GPU or precision makes of a measured profile: an estimate, told in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.profiles.precision import VALUE_BYTES, reached

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


def on_gpu(profile: Profile, measured: tuple[Gpu, Precision], asked: tuple[Gpu, Precision]) -> Profile:
    """Return a profile on another GPU or in another precision.

    What is bound by memory goes with its bandwidth and the bytes of a value, the rest with the peak and the share of it
    that products reach.
    """
    (here, held), (gpu, precision) = measured, asked
    if gpu.name == here.name and precision == held:
        return profile
    by_bandwidth = here.stream_Bps / gpu.stream_Bps
    by_memory = by_bandwidth * VALUE_BYTES[precision] / VALUE_BYTES[held]
    by_peak = here.peak(held) / (gpu.peak(precision) * reached(precision, held))
    memory = profile.memory_bound * by_memory
    whole = memory + (1 - profile.memory_bound) * by_peak
    scaled = _scaled(profile, whole)
    # Frameworks take TF32 where a GPU has it, some of them unasked.
    more = "; not TF32, which precision=tf32 takes" if precision == "fp32" and _has_tf32(gpu) else ""
    return replace(
        scaled,
        gpu=gpu.name,
        optimizer_ps=round(profile.optimizer_ps * by_bandwidth),
        memory_bound=memory / whole,
        source=f"{profile.source}; carried from {held} on {here.name} to {precision} on {gpu.name}: matrix products by "
        f"what they reach of the peak (times {by_peak:.3g}), the rest by memory (times {by_memory:.3g}){more}",
    )


def _has_tf32(gpu: Gpu) -> bool:
    return "tf32" in dict(gpu.peak_flop_per_s)


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
