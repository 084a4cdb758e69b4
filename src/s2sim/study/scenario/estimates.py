"""Constants of a GPU that are only estimated, and what else they may be."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from s2sim.units import PS_PER_S, format_seconds, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s2sim.topology.files.hardware import Gpu

# Least and most that people have measured on GPUs and hosts of the last ten years.
_PLAUSIBLE = {"kernel_launch": ("2 us", "10 us"), "host_sync": ("5 us", "50 us"), "memory_efficiency": ("0.3", "0.9")}


def estimates_of(gpu: Gpu) -> dict[str, tuple[str, str]]:
    """Return the least and the most that each estimated constant may be, by its field."""
    fields = (quantity.field.rpartition(".")[2] for quantity in gpu.quantities if quantity.kind == "estimated")
    return {constant: _PLAUSIBLE[constant] for constant in fields if constant in _PLAUSIBLE}


def taken_text(gpu: Gpu, constant: str) -> str:
    """Return what was taken for a constant, for people."""
    if constant == "memory_efficiency":
        return f"{gpu.memory_efficiency:g}"
    taken_ps = gpu.kernel_launch_ps if constant == "kernel_launch" else gpu.host_sync_ps
    return format_seconds(taken_ps / PS_PER_S)


def with_constant(gpu: Gpu, constant: str, value: str) -> Gpu:
    """Return a GPU with another value of one constant."""
    if constant == "memory_efficiency":
        return replace(gpu, memory_efficiency=float(value))
    if constant == "kernel_launch":
        return replace(gpu, kernel_launch_ps=parse_time_ps(value))
    return replace(gpu, host_sync_ps=parse_time_ps(value))


def corners_of(gpu: Gpu) -> Iterator[Gpu]:
    """Yield a GPU for each choice of the ends of its estimated constants; none where nothing is estimated."""
    estimates = estimates_of(gpu)
    for values in product(*estimates.values()) if estimates else ():
        corner = gpu
        for constant, value in zip(estimates, values, strict=True):
            corner = with_constant(corner, constant, value)
        yield corner
