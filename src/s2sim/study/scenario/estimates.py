"""Constants of a GPU that are only estimated, and what else they may be."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from s2sim.reducers.scripts.script import Work
from s2sim.units import PS_PER_S, format_seconds, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s2sim.reducers.scripts.script import Recording
    from s2sim.topology.files.hardware import Gpu

# Ranges assumed for hosts and GPUs of the last ten years, around what the sources in the catalogue say.
_ALWAYS = {"kernel_launch": ("2 us", "10 us"), "host_sync": ("5 us", "50 us"), "memory_efficiency": ("0.3", "0.9")}
_FOR_FLOPS = {"flops_efficiency": ("0.3", "0.95")}
_FOR_HOSTS = {"host_step": ("0.3 ns", "3 ns")}
_TIMES = ("kernel_launch", "host_sync", "host_step")


def estimates_of(gpu: Gpu, recordings: Iterable[Recording] = ()) -> dict[str, tuple[str, str]]:
    """Return the least and the most that each estimated constant may be, by its field.

    What matrix products and the host's CPU reach is among them where one of ``recordings`` has such work.
    """
    works = [
        step
        for recording in recordings
        for script in set(recording.scripts)
        for step in script
        if isinstance(step, Work)
    ]
    ranges = (
        _ALWAYS
        | (_FOR_FLOPS if any(work.flops for work in works) else {})
        | (_FOR_HOSTS if any(work.host_steps for work in works) else {})
    )
    fields = (quantity.field.rpartition(".")[2] for quantity in gpu.quantities if quantity.kind == "estimated")
    return {constant: ranges[constant] for constant in fields if constant in ranges}


def taken_text(gpu: Gpu, constant: str) -> str:
    """Return what was taken for a constant, for people."""
    taken = getattr(gpu, _attribute(constant))
    return format_seconds(taken / PS_PER_S) if constant in _TIMES else f"{taken:g}"


def with_constant(gpu: Gpu, constant: str, value: str) -> Gpu:
    """Return a GPU with another value of one constant."""
    taken: Any = parse_time_ps(value) if constant in _TIMES else float(value)
    return replace(gpu, **{_attribute(constant): taken})


def _attribute(constant: str) -> str:
    return f"{constant}_ps" if constant in _TIMES else constant


def corners_of(gpu: Gpu) -> Iterator[Gpu]:
    """Yield a GPU for each choice of the ends of its estimated constants; none where nothing is estimated."""
    estimates = estimates_of(gpu)
    for values in product(*estimates.values()) if estimates else ():
        corner = gpu
        for constant, value in zip(estimates, values, strict=True):
            corner = with_constant(corner, constant, value)
        yield corner
