"""Scripts of a larger model: the sizes of the scripts at hand, plus what doubling a part adds, as often as it grows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s2sim.errors import S2SimError, S2SimWarning
from s2sim.experiment.record import RecordedReducer, record
from s2sim.experiment.row_parts import Refused
from s2sim.experiment.scenario.reducers import ReducerSpec
from s2sim.gradients.gradient import Gradient, stored
from s2sim.gradients.scaling import Scaling
from s2sim.reducers.measure import Error, Errors, mean_float64
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Call, Recording, Script, Step, Work

_OTHER_SEEDS = 3

Outcome: TypeAlias = "Recording | S2SimError"
"""Scripts, or why an optional reducer has none."""


def record_scaled(
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    scaling: Scaling,
    *,
    seed: int,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run each reducer on the gradients and on doubled parts of them; return scripts of the size asked for.

    Errors are those of the gradients that ran, each layer weighted by its size in the model asked for. A reducer that
    makes other calls at another size, so that its scripts cannot be scaled, refuses: an optional one as in `record`,
    and `S2SimError` for others.
    """
    scaled, refused, ran = record_copies(reducers, gradients, scaling, seed=seed, on_reducer=on_reducer)
    if scaling.weights is None:
        return scaled, refused
    squares = weighted_squares(scaling.weights, ran)
    return [
        replace(item, errors=weighted_errors(item.errors, squares, item.reducer.compresses(ran[0]))) for item in scaled
    ], refused


def record_copies(
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    scaling: Scaling,
    *,
    seed: int,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused], list[Gradient]]:
    """Return what `record_scaled` does, with errors of the gradients that ran, and these."""
    ran = [scaling.run(gradient) for gradient in gradients]
    sizes = _target_sizes(scaling, ran[0])
    sized = [replace(item, reducer=item.reducer.sized(sizes)) for item in reducers]
    records, refused = record(sized, ran, seed=seed, on_reducer=on_reducer)
    optional = {item.option_string for item in reducers if item.optional}
    # As the gradients have fitted them: what grows is their sizes, not their choices.
    fitted = [ReducerSpec(item.option_string, item.reducer, item.option_string in optional) for item in records]
    scripts = scale_scripts(fitted, [item.recording for item in records], ran, scaling, seed=seed)
    scaled = []
    for item, script in zip(records, scripts, strict=True):
        if isinstance(script, Recording):
            # Bounds are those of a sketch as large as recorded, and so are the largest errors.
            scaled.append(replace(item, recording=script, bound=None, errors=without_largest(item.errors)))
        else:
            refused.append(Refused(item.option_string, len(gradients), str(script)))
    return scaled, refused, ran


def _target_sizes(scaling: Scaling, ran: Gradient) -> dict[str, int]:
    weights = scaling.weights or [scaling.parameters / ran.size] * len(ran.layers)
    return {name: round(weight * layer.size) for weight, (name, layer) in zip(weights, ran, strict=True)}


def weighted_squares(weights: Sequence[float], ran: Sequence[Gradient]) -> list[float]:
    """Return the squared L2 norm of each layer's exact mean, times its weight, of the gradients that ran."""
    exact = mean_float64(ran)
    return [weight * float(np.square(stored(layer)).sum()) for weight, layer in zip(weights, exact.layers, strict=True)]


def relative_error(predicted: int, recorded: int) -> float:
    """Return how much more was predicted, relatively; on one rank nothing is sent and nothing is predicted."""
    return predicted / recorded - 1 if recorded else 0.0


def run_without_warnings(reducers: Sequence[ReducerSpec], gradients: Sequence[Gradient], *, seed: int) -> list[Outcome]:
    """Return what comes of each reducer on gradients that others have run on: its warnings have been heard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", S2SimWarning)
        return [_catch_refusal(item, partial(_scripts, item, gradients, seed)) for item in reducers]


def _scripts(asked: ReducerSpec, gradients: Sequence[Gradient], seed: int) -> Recording:
    return run_reducer(asked.reducer, gradients, seed=seed).recording


def _catch_refusal(asked: ReducerSpec, compute: Callable[[], Recording]) -> Outcome:
    try:
        return compute()
    except S2SimError as error:
        if not asked.optional:
            raise
        return error


def scale_scripts(
    reducers: Sequence[ReducerSpec],
    base: Sequence[Outcome],
    gradients: Sequence[Gradient],
    scaling: Scaling,
    *,
    seed: int,
) -> list[Outcome]:
    """Return what becomes of each reducer's scripts ``base`` on ``gradients`` at the size that ``scaling`` asks for."""
    grown = [
        (_run_matching(reducers, base, [growth.double(gradient) for gradient in gradients], seed=seed), growth.times)
        for growth in scaling.growths
    ]
    found = []
    for index, (item, small) in enumerate(zip(reducers, base, strict=True)):
        larger = [(doubled[index], times) for doubled, times in grown]
        found.append(_catch_refusal(item, partial(_scaled, item.option_string, small, larger)))
    return found


def _scaled(reducer: str, base: Outcome, grown: Sequence[tuple[Outcome, float]]) -> Recording:
    return scale_recording(reducer, _recording(base), [(_recording(outcome), times) for outcome, times in grown])


def _recording(outcome: Outcome) -> Recording:
    if isinstance(outcome, S2SimError):
        raise outcome
    return outcome


def _run_matching(
    reducers: Sequence[ReducerSpec], base: Sequence[Outcome], gradients: Sequence[Gradient], *, seed: int
) -> list[Outcome]:
    """Return what comes of each reducer on larger gradients, by other seeds where its calls are not those of ``base``.

    An exact sketch that by a chance of less than one per cent cannot be read sends some rows again.
    """
    found = run_without_warnings(reducers, gradients, seed=seed)
    for index, (item, small) in enumerate(zip(reducers, base, strict=True)):
        for other in range(1, _OTHER_SEEDS + 1):
            large = found[index]
            if (
                isinstance(small, Recording)
                and isinstance(large, Recording)
                and _recording_structure(large) != _recording_structure(small)
            ):
                (found[index],) = run_without_warnings([item], gradients, seed=seed + other)
    return found


def scale_recording(reducer: str, base: Recording, grown: Sequence[tuple[Recording, float]]) -> Recording:
    """Return scripts whose sizes are those of ``base`` plus, for each (recording, times), times what it has more.

    Kernels are as many as in the largest of them: their number grows with the logarithm of a size, if at all.
    ``reducer`` names whose scripts they are, for the error.
    """
    every = [base, *(recording for recording, _ in grown)]
    times = [factor for _, factor in grown]
    if any(_recording_structure(recording) != _recording_structure(base) for recording in every):
        raise S2SimError(
            f"{reducer} makes other calls at another size, so that its scripts cannot be scaled: leave it out, or "
            "--scale-to and --model"
        )
    calls = tuple(_scale_call(same, times) for same in zip(*(recording.calls for recording in every), strict=True))
    scripts = tuple(_scale_script(same, times) for same in zip(*(each.scripts for each in every), strict=True))
    return Recording(calls, scripts, base.steps)


def _scale_call(calls: Sequence[Call], times: Sequence[float]) -> Call:
    if calls[0].blocks:
        blocks = _extrapolate_sizes([call.blocks for call in calls], times)
        return replace(calls[0], elements=tuple(blocks.sum(axis=1).tolist()), blocks=tuple(map(tuple, blocks.tolist())))
    return replace(calls[0], elements=tuple(_extrapolate_sizes([call.elements for call in calls], times).tolist()))


def _scale_script(scripts: Sequence[Script], times: Sequence[float]) -> Script:
    steps: list[Step] = []
    for step, *same in zip(*scripts, strict=True):
        if isinstance(step, Work):
            works = [step, *(other for other in same if isinstance(other, Work))]
            sizes = _extrapolate_sizes([list(work.sizes.values()) for work in works], times)
            launches = max(work.launches for work in works)
            steps.append(replace(step, launches=launches, **dict(zip(step.sizes, sizes.tolist(), strict=True))))
        else:
            steps.append(step)
    return tuple(steps)


def _extrapolate_sizes(sizes: Sequence[ArrayLike], times: Sequence[float]) -> NDArray[np.int64]:
    """Return the first of ``sizes`` plus ``times`` what each of the others has more; never below 0."""
    base, *others = (np.asarray(size, np.int64) for size in sizes)
    grown = base + sum(factor * (other - base) for factor, other in zip(times, others, strict=True))
    return np.maximum(0, np.rint(grown)).astype(np.int64)


def _recording_structure(recording: Recording) -> tuple[object, ...]:
    """Return what a recording is but for its sizes."""
    calls = [replace(call, elements=(), blocks=()) for call in recording.calls]
    scripts = [
        [(type(step), step.phase) if isinstance(step, Work) else step for step in script]
        for script in recording.scripts
    ]
    return calls, scripts


def without_largest(errors: Errors) -> Errors:
    """Return errors without those of single elements, which do not scale."""
    return Errors(
        whole=errors.whole._replace(largest=None),
        compressed=errors.compressed._replace(largest=None),
        layers={name: error._replace(largest=None) for name, error in errors.layers.items()},
    )


def weighted_errors(errors: Errors, squares: Sequence[float], compressed: Sequence[int]) -> Errors:
    """Return errors of the whole and of the compressed layers, put together from those of the layers.

    Parameters
    ----------
    errors : Errors
        Of the layers that ran.
    squares : sequence of float
        Squared L2 norm of each layer's exact mean, as large as it is in the model asked for.
    compressed : sequence of int
        Indices of the layers that do not travel as plain float32.
    """
    layers = list(errors.layers.values())

    def over(indices: Iterable[int]) -> Error:
        # A layer's error is undefined only where its exact mean is zero, which adds nothing to the norm.
        parts = [(layers[index].relative_l2 or 0.0, squares[index]) for index in indices]
        norm = sum(square for _, square in parts)
        distance = sum(relative**2 * square for relative, square in parts)
        return Error(sqrt(distance / norm) if norm else 0.0, None)

    return Errors(whole=over(range(len(layers))), compressed=over(compressed), layers=errors.layers)
