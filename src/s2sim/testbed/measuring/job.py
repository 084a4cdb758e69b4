"""What the process of a rank does on a testbed: one task after another, each timed together with all others."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sim.testbed.measuring.task import COLLECTIVES, ITEM_BYTES, Effort, Task
from s2sim.testbed.measuring.together import Done, timed_together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JOB = f"{__name__}:measure"
# Of square matrices whose product takes some tens of microseconds.
_SIDE = 96


def measure(rank: int, ranks: int, arguments: Mapping[str, Any], tell: Callable[[Any], None]) -> None:
    """Do all tasks; rank 0 tells of each by its number, and what was measured.

    Parameters
    ----------
    arguments : mapping
        ``tasks`` and ``effort``, the fields of `Task` and `Effort`; ``seed``; and ``spin``, whether workers compute or
        sleep before they exchange.
    """
    _before_all_others()
    effort = Effort(**arguments["effort"])
    for number, fields in enumerate(arguments["tasks"]):
        task = Task(**fields)
        if task.what in COLLECTIVES:
            prepare = _collective(task, ranks)
        else:
            prepare = _reduction(task, rank, ranks, spin=arguments["spin"], seed=arguments["seed"])
        summary = timed_together(rank, prepare, effort)
        if rank == 0:
            tell({"number": number, "summary": asdict(summary)})


def _before_all_others() -> None:
    """Let whatever else runs on the machine wait while this process has something to do.

    Ordinary processes keep a processor for some milliseconds that a small message would not take.
    """
    for thread in Path("/proc/self/task").iterdir():
        # Only root may, who is needed for a network but not for processes on one machine.
        with suppress(PermissionError):
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def _collective(task: Task, ranks: int) -> Callable[[], Callable[[], Done]]:
    """Return what prepares a collective on float32 zeros, whose sums stay zeros however often they are taken."""
    import torch
    import torch.distributed as dist

    elements = task.payload_bytes // ITEM_BYTES
    whole, other = torch.zeros(elements), torch.zeros(elements)
    part = torch.zeros(elements // ranks)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
    }

    def act() -> Done:
        calls[task.what]()
        return Done()

    return lambda: act


def _reduction(task: Task, rank: int, ranks: int, *, spin: bool, seed: int) -> Callable[[], Callable[[], Done]]:
    """Return what prepares a step of a reducer on this rank's gradient, after it has computed for a while."""
    from s2sim.bridge.processes.rank import learn_here, reduce_here
    from s2sim.gradients.load import load_trace
    from s2sim.reducers.registry import make_reducer

    trace = load_trace(task.trace, workers=ranks, seed=seed)
    gradients = [trace.gradient(0, each) for each in range(ranks)]
    reducer, gradient = make_reducer(task.what).fitted(gradients, seed), gradients[rank]

    def prepare() -> Callable[[], Done]:
        fresh = reducer.fresh()
        if reducer.traits.warm:
            learn_here(fresh, gradient, seed=seed)

        def act() -> Done:
            computed_s = _compute(task.compute_s, spin=spin)
            here = reduce_here(fresh, gradient, seed=seed)
            return Done(here.total_s - here.waited_s, computed_s)

        return act

    return prepare


def _compute(seconds: float, *, spin: bool) -> float:
    """Let so much time pass, computing or asleep, and return the CPU seconds that it took."""
    import numpy as np

    if not seconds:
        return 0.0
    cpu_s, until_s = time.process_time(), time.monotonic() + seconds
    if spin:
        matrix = np.ones((_SIDE, _SIDE), np.float32)
        product = np.empty_like(matrix)
        while time.monotonic() < until_s:
            np.matmul(matrix, matrix, out=product)
    else:
        time.sleep(seconds)
    return time.process_time() - cpu_s
