"""What training iterations cost: CPU seconds, events of the simulation, choices of algorithms, and overheads found.

One replay of ten iterations has some thousand events; each bucket size is timed once a rate, and what a library adds
to a pattern is found once for all sizes and rates. CPU seconds are told as multiples of those of the first row too,
which hold on any machine. Run with ``python benchmarks/iterations.py``.
"""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import simpy
from measure import SMALL

import s2sim
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimWarning
from s2sim.experiment import execute as executed
from s2sim.libraries import message_latency as software

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTED = (
    (executed, "replay_iterations"),
    (simpy.Environment, "step"),
    (Timer, "_choose"),
    (software, "message_overheads"),
)
ON_DGX = {"topology": "dgx-a100", "profile": "resnet-50", "reducers": ("dense", "fp16")}
CASES = {
    "main run, no iterations, 64 ranks, all reducers": {"topology": "fat-tree", "workers": 64},
    "resnet-50, ddp, 64 ranks, no break-even": {**ON_DGX, "workers": 64, "break_even": False},
    "the same with break-even": {**ON_DGX, "workers": 64},
    "the same, all reducers": {"topology": "dgx-a100", "profile": "resnet-50", "workers": 64},
    "a bucket a tensor, 16 ranks, no break-even": {
        **ON_DGX,
        "workers": 16,
        "discipline": "per-tensor",
        "break_even": False,
    },
    "llama-7b, ddp, 1,024 ranks, bf16, with break-even": {
        "topology": "dgx-h100",
        "workers": 1024,
        "profile": "llama-7b",
        "reducers": ("dense", "bf16"),
    },
    **{
        f"every rank by itself, {ranks} ranks, no break-even": {
            **ON_DGX,
            "workers": ranks,
            "compute_cv": 0.05,
            "break_even": False,
        }
        for ranks in (16, 64)
    },
}


def counting(function: Callable[..., Any], counts: list[int], place: int) -> Callable[..., Any]:
    """Return a function that does the same and adds up its calls in ``counts[place]``."""

    def counted(*arguments: Any, **options: Any) -> Any:
        counts[place] += 1
        return function(*arguments, **options)

    return counted


def show(name: str, options: dict[str, object], unit_s: float) -> float:
    """Run it, print one line, and return its CPU seconds; ``unit_s`` are those of the first row, 0 for it itself."""
    counts = [0] * len(COUNTED)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", S2SimWarning)
        for place, (owner, function) in enumerate(COUNTED):
            stack.enter_context(patch.object(owner, function, counting(getattr(owner, function), counts, place)))
        start = time.process_time()
        s2sim.run(**options)
        seconds = time.process_time() - start
    numbers = "".join(f"  {count:9,}" for count in counts)
    print(f"{name:48}  {seconds:6.2f}  {seconds / (unit_s or seconds):5.2f}{numbers}", flush=True)
    return seconds


def main() -> None:
    """Print the table."""
    titles = "".join(f"  {title:>9}" for title in ("replays", "events", "choices", "overheads"))
    print(f"{'work':48}  {'CPU s':>6}  {'times':>5}{titles}")
    unit_s = 0.0
    for name, options in ({"small": {**ON_DGX, "workers": 2, "break_even": False}} if SMALL else CASES).items():
        seconds = show(name, options, unit_s)
        unit_s = unit_s or seconds


if __name__ == "__main__":
    main()
