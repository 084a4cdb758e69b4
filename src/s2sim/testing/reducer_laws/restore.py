"""What a reducer carries from step to step, saved and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.testing.reducer_laws.examples import example_gradients
from s2sim.testing.reducer_laws.outcome import equal
from s2sim.testing.require import require

if TYPE_CHECKING:
    from s2sim.reducers.rank import Reducer


def check_restore(reducer: Reducer, ranks: int, *, interrupted: int = 2, steps: int = 4) -> None:
    """Check that a reducer goes on from a saved state as if it had not been interrupted before a step.

    What was saved is altered once it has been restored, so that both have to be copies.
    """
    one, other = make_instances(reducer, ranks), make_instances(reducer, ranks)
    for step in range(steps):
        gradients = example_gradients(ranks, seed=step)
        expected, expected_recording = run_group(one, gradients, step=step)
        if step == interrupted:
            saved = [instance.state() for instance in other]
            other = make_instances(reducer, ranks)
            for instance, state in zip(other, saved, strict=True):
                instance.restore(state)
                _spoil(state)
        found, recording = run_group(other, gradients, step=step)
        where = f"step {step} after a restore before step {interrupted}"
        same = all(equal(a.mean, b.mean) for a, b in zip(expected, found, strict=True))
        require(same, f"{where} gives other values: are all its state() and restore() complete?")
        require(recording == expected_recording, f"{where} gives another script")


def _spoil(state: object) -> None:
    """Alter every array in a state."""
    if isinstance(state, np.ndarray):
        state.fill(-1 if state.dtype.kind in "if" else 1)
    elif isinstance(state, dict | list):
        for value in state.values() if isinstance(state, dict) else state:
            _spoil(value)
