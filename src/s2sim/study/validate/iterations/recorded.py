"""Scripts of a reducer on some tensors of a model: run on small copies of them, and scaled to their size."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.extrapolation.models import LayerGroup, LayerTable, Model, Published
from s2sim.gradients.extrapolation.scaling import scale_to_model
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.scripts.script import Recording, Work
from s2sim.seeds import named_generator
from s2sim.study.extrapolate.scaled_scripts import record_scaled
from s2sim.study.scenario.asked import AskedReducer

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Phase, Script, Step
    from s2sim.study.validate.iterations.implementations import Implementation

# Normal values that stand for those of a layer.
_VALUES = 2**14
_VALUE_BYTES = 4


@cache
def record_on(option_string: str, shapes: tuple[tuple[int, ...], ...], workers: int) -> Recording:
    """Return the scripts of a reducer on dense layers of these shapes, with normal values in them."""
    layers = tuple(LayerGroup(f"{number}", shape) for number, shape in enumerate(shapes))
    published = Published(sum(layer.size for layer in layers), 0.0, "user", "the row")
    model = Model("row", LayerTable("of a row", "user", "the row", layers, published))
    gradients = [
        Gradient(("values",), (named_generator(0, "iteration", rank).standard_normal(_VALUES, np.float32),))
        for rank in range(workers)
    ]
    asked = AskedReducer(option_string, make_reducer(option_string))
    (found,), _ = record_scaled([asked], gradients, scale_to_model(model, gradients[0], workers), seed=0)
    return found.recording


def as_implemented(recording: Recording, implementation: Implementation, elements: int) -> Recording:
    """Return scripts whose kernels make the passes over memory that an implementation makes."""
    passes = {"encode": implementation.encode_passes, "decode": implementation.decode_passes}
    if all(each is None for each in passes.values()):
        return recording
    whole = {phase: _VALUE_BYTES * elements * each for phase, each in passes.items() if each is not None}
    return replace(recording, scripts=tuple(_with_passes(script, whole) for script in recording.scripts))


def _with_passes(script: Script, whole: dict[str, float]) -> Script:
    """Return a script in which the first work of a phase has all its passes."""
    steps: list[Step] = []
    done: set[Phase] = set()
    for step in script:
        if isinstance(step, Work) and step.phase in whole:
            if step.phase not in done:
                steps.append(Work(step.phase, round(whole[step.phase]), launches=step.launches))
            done.add(step.phase)
        else:
            steps.append(step)
    return tuple(steps)


def with_packing(recording: Recording, elements: int, *, at_once: bool) -> Recording:
    """Return scripts that first copy all gradients into one buffer, and at last back.

    With ``at_once`` the host starts copying back while the last collective is in flight: nothing is decoded before it.
    """
    copied = 2 * _VALUE_BYTES * elements
    pack, unpack = Work("encode", copied), Work("decode", copied)
    scripts = [
        (pack, *script[:-1], unpack, script[-1]) if at_once else (pack, *script, unpack) for script in recording.scripts
    ]
    return replace(recording, scripts=tuple(scripts))
