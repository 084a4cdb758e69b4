"""What `s2sim.pytorch.JobRecorder` adds to a training step on the CPU: steps of one loop with and without, in turn.

Ratios are of times taken one after the other; they are printed for steps before, in and after a recording.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from measure import REPEATS, SMALL
from torch import nn

from s2sim.pytorch import JobRecorder

STEPS = 3 if SMALL else 30
WIDTH = 16 if SMALL else 256


def make_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a small transformer with its optimizer."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True) for _ in range(4)]
    found = nn.Sequential(*layers)
    return found, torch.optim.SGD(found.parameters(), lr=0.01)


def step(module: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Train one step; return its seconds."""
    begin = time.perf_counter()
    module(torch.ones(4, 32, WIDTH)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - begin


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Of layers that have no fast path here.
    ratios: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        plain, recorded = make_model(), make_model()
        with tempfile.TemporaryDirectory() as folder:
            recorder = JobRecorder(recorded[0], Path(folder) / "mine", batch=4, steps=STEPS)
            # The kinds of all steps of the recording, and as many after it.
            kinds = ["warm-up"] * 5 + ["all"] * STEPS + ["none", "few"] * STEPS + ["gradients"] + ["after"] * STEPS
            for kind in kinds:
                without_s, begin = step(*plain), time.perf_counter()
                step(*recorded)
                recorder.step()
                ratios.setdefault(kind, []).append((time.perf_counter() - begin) / without_s)
            recorder.close()
    for kind in ("all", "few", "none", "gradients", "after"):
        low, middle, high = np.quantile(ratios[kind], (0.25, 0.5, 0.75))
        print(f"steps with marks: {kind:10} {middle:.3f} of a step without recorder ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
