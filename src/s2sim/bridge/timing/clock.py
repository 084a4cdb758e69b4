"""Marks in time: on the host's clock, or in the stream of a GPU."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from s2sim.errors import OptionError, S2SimError

if TYPE_CHECKING:
    import torch

DEVICES = ("cpu", "cuda")


class Clock(Protocol):
    """Where a step is now; marks of a GPU tell their times once it has passed them."""

    def mark(self) -> Any:
        """Return a mark of this moment."""

    def wait(self, mark: Any) -> None:
        """Return when a mark has been passed."""

    def between_us(self, first: Any, second: Any) -> float:
        """Return the microseconds from one mark to another, both passed."""


class HostClock:
    """The host's own clock: an operation on the CPU has ended when its call returns."""

    def mark(self) -> float:
        """Return a mark of this moment."""
        return time.perf_counter()

    def wait(self, mark: float) -> None:
        """Return at once."""

    def between_us(self, first: float, second: float) -> float:
        """Return the microseconds from one mark to another."""
        return (second - first) * 1e6


class GpuClock:
    """Events in the current stream of a GPU: passed when all that was launched before them is done."""

    def mark(self) -> torch.cuda.Event:
        """Return an event after all that was launched until now."""
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]  # annotated in some versions of PyTorch only
        event.record()
        return event

    def wait(self, mark: torch.cuda.Event) -> None:
        """Return when the GPU has passed an event."""
        mark.synchronize()

    def between_us(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        """Return the microseconds from one event to another, both passed."""
        return float(first.elapsed_time(second)) * 1e3


def clock_of(device: str) -> Clock:
    """Return the clock of a device, ``cpu`` or ``cuda``; `S2SimError` where there is none."""
    if device not in DEVICES:
        raise OptionError(f"--device {device} is none that is recorded on: cpu or cuda")
    if device == "cpu":
        return HostClock()
    import torch

    if not torch.cuda.is_available():
        raise S2SimError("--device cuda: PyTorch finds no GPU here; record on the CPU with --device cpu, or elsewhere")
    return GpuClock()
