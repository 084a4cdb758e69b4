"""Scripts of a larger model: recorded sizes plus the increments of doubled parts, times their growth."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s2sim.arrays import BlockTable
from s2sim.errors import S2SimError, S2SimWarning
from s2sim.experiment.record import RecordedReducer, record
from s2sim.experiment.row_parts import Refused
from s2sim.experiment.scenario.reducers import ReducerSpec
from s2sim.gradients.gradient import Gradient, stored
from s2sim.gradients.scaling import Scaling
from s2sim.reducers.measure import Error, Errors, mean_float64
from s2sim.reducers.rank import Reducer
from s2sim.reducers.run import run_reducer, run_symmetric
from s2sim.reducers.script import Call, Recording, Script, Work

_OTHER_SEEDS = 3

Outcome: TypeAlias = "Recording | S2SimError"
"""Scripts, or why an optional reducer has none."""


def record_scaled(
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    scaling: Scaling,
    *,
    seed: int,
    ranks: int | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused], list[float]]:
    """Run each reducer on the gradients and on doubled parts of them; return scripts of the target size.

    With more ``ranks`` than gradients, scripts are those of so many, by `run_symmetric`.

    Errors are those of the gradients that ran, each layer weighted by its target size. A reducer that makes other
    calls at another size refuses: an optional one as in `record`, else with `S2SimError`. Returns also the squared L2
    norm of the exact mean of each layer at its target size, or none if all layers grow alike.
    """
    ran = [scaling.run(gradient) for gradient in gradients]
    weights = scaling.weights or [scaling.parameters / ran[0].size] * len(ran[0].layers)
    sizes = {name: round(weight * layer.size) for weight, (name, layer) in zip(weights, ran[0], strict=True)}
    sized = [replace(item, reducer=item.reducer.sized(sizes)) for item in reducers]
    records, refused = record(sized, ran, seed=seed, on_reducer=on_reducer)
    optional = {item.option_string for item in reducers if item.optional}
    # Options stay as fitted: only sizes grow.
    fitted = [ReducerSpec(item.option_string, item.reducer, item.option_string in optional) for item in records]
    base: list[Outcome] = [item.recording for item in records]
    symmetric = ranks if ranks is not None and ranks > len(ran) else None
    like = ran if symmetric is None else ran[:1]
    if symmetric is not None:
        base = run_without_warnings(fitted, like, seed=seed, symmetric=symmetric)
    scripts = scale_scripts(fitted, base, like, scaling, seed=seed, symmetric=symmetric)
    squares: list[float] = []
    if scaling.weights is not None:
        layers = zip(scaling.weights, mean_float64(ran).layers, strict=True)
        squares = [weight * float(np.square(stored(layer)).sum()) for weight, layer in layers]
    scaled = []
    for item, script in zip(records, scripts, strict=True):
        if isinstance(script, S2SimError):
            refused.append(Refused(item.option_string, len(gradients), str(script)))
            continue
        # Bounds and largest errors hold for the recorded size only.
        errors = Errors(
            whole=item.errors.whole._replace(largest=None),
            compressed=item.errors.compressed._replace(largest=None),
            layers={name: error._replace(largest=None) for name, error in item.errors.layers.items()},
        )
        if squares:
            errors = weighted_errors(errors, squares, item.reducer.compresses(ran[0]))
        scaled.append(replace(item, recording=script, bound=None, errors=errors))
    return scaled, refused, squares


def run_without_warnings(
    reducers: Sequence[ReducerSpec], gradients: Sequence[Gradient], *, seed: int, symmetric: int | None = None
) -> list[Outcome]:
    """Return the outcome of each reducer on gradients, or on ``symmetric`` ranks that hold such as the first."""

    def scripts(reducer: Reducer) -> Recording:
        if symmetric is None:
            return run_reducer(reducer, gradients, seed=seed).recording
        return run_symmetric(reducer, gradients[0], symmetric, seed=seed)

    with warnings.catch_warnings(action="ignore", category=S2SimWarning):
        return [_catch_refusal(item, partial(scripts, item.timed)) for item in reducers]


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
    symmetric: int | None = None,
) -> list[Outcome]:
    """Return each reducer's scripts ``base`` at the size of ``scaling``; ``symmetric``: see `run_without_warnings`."""
    grown: list[tuple[list[Outcome], float]] = []
    for growth in scaling.growths:
        larger = [growth.double(each) for each in gradients]
        found = run_without_warnings(reducers, larger, seed=seed, symmetric=symmetric)
        for index, (item, small) in enumerate(zip(reducers, base, strict=True)):
            # With a chance below 1 % an exact sketch cannot be decoded and sends some rows again: calls then differ.
            for other in range(1, _OTHER_SEEDS + 1):
                large = found[index]
                if isinstance(small, S2SimError) or isinstance(large, S2SimError):
                    break
                if _recording_structure(large) == _recording_structure(small):
                    break
                (found[index],) = run_without_warnings([item], larger, seed=seed + other, symmetric=symmetric)
        grown.append((found, growth.times))
    scaled: list[Outcome] = []
    for index, (item, small) in enumerate(zip(reducers, base, strict=True)):
        outcomes = [small, *(doubled[index] for doubled, _ in grown)]
        recordings = [each for each in outcomes if isinstance(each, Recording)]
        if len(recordings) < len(outcomes):
            scaled.append(next(each for each in outcomes if isinstance(each, S2SimError)))
            continue
        larger_ones = [(each, times) for each, (_, times) in zip(recordings[1:], grown, strict=True)]
        scaled.append(_catch_refusal(item, partial(scale_recording, item.option_string, recordings[0], larger_ones)))
    return scaled


def scale_recording(reducer: str, base: Recording, grown: Sequence[tuple[Recording, float]]) -> Recording:
    """Return scripts of ``base`` plus, for each (recording, factor), so many increments; launches of the largest."""
    every = [base, *(recording for recording, _ in grown)]
    times = [factor for _, factor in grown]
    if any(_recording_structure(recording) != _recording_structure(base) for recording in every):
        raise S2SimError(
            f"{reducer} makes other calls at another size, so that its scripts cannot be scaled: leave it out, or "
            "--scale-to and --model"
        )
    calls = tuple(_scale_call(same, times) for same in zip(*(recording.calls for recording in every), strict=True))
    # Ranks that do the same share a script.
    scripts: dict[tuple[int, ...], Script] = {}
    keys = [tuple(map(id, same)) for same in zip(*(each.scripts for each in every), strict=True)]
    for key, same in zip(keys, zip(*(each.scripts for each in every), strict=True), strict=True):
        if key not in scripts:
            scripts[key] = _scale_script(same, times)
    return Recording(calls, tuple(scripts[key] for key in keys), base.steps)


def _scale_call(calls: Sequence[Call], times: Sequence[float]) -> Call:
    tables = [call.blocks for call in calls if call.blocks]
    if tables:
        rows, row = np.unique(np.stack([table.row for table in tables]), axis=1, return_inverse=True)
        sizes = [table.rows[own] for table, own in zip(tables, rows, strict=True)]
        blocks = BlockTable(_extrapolate_sizes(sizes, times), row.reshape(-1))
        return replace(calls[0], elements=tuple(blocks.totals[0].tolist()), blocks=blocks)
    return replace(calls[0], elements=tuple(_extrapolate_sizes([call.elements for call in calls], times).tolist()))


def _scale_script(scripts: Sequence[Script], times: Sequence[float]) -> Script:
    works = [[step for step in script if isinstance(step, Work)] for script in scripts]
    sizes = _extrapolate_sizes([[work.sizes for work in own] for own in works], times)
    scaled = (
        same[0].with_sizes(own, max(work.launches for work in same))
        for same, own in zip(zip(*works, strict=True), sizes.tolist(), strict=True)
    )
    return tuple(next(scaled) if isinstance(step, Work) else step for step in scripts[0])


def _extrapolate_sizes(sizes: Sequence[ArrayLike], times: Sequence[float]) -> NDArray[np.int64]:
    """Return the first of ``sizes`` plus ``times`` the increments of the others, at least 0."""
    base, *others = (np.asarray(size, np.int64) for size in sizes)
    grown = base + sum(factor * (other - base) for factor, other in zip(times, others, strict=True))
    return np.maximum(0, np.rint(grown)).astype(np.int64)


def _recording_structure(recording: Recording) -> tuple[object, ...]:
    calls = [replace(call, elements=(), blocks=()) for call in recording.calls]
    kinds = {
        id(script): [(type(step), step.phase) if isinstance(step, Work) else step for step in script]
        for script in {id(each): each for each in recording.scripts}.values()
    }
    return calls, [kinds[id(script)] for script in recording.scripts]


def weighted_errors(errors: Errors, squares: Sequence[float], compressed: Sequence[int]) -> Errors:
    """Return errors of all and of ``compressed`` layers (indices); ``squares``: squared L2 norms of exact means."""
    layers = list(errors.layers.values())

    def over(indices: Iterable[int]) -> Error:
        # A layer's error is undefined only where its exact mean is zero, which adds nothing to the norm.
        parts = [(layers[index].relative_l2 or 0.0, squares[index]) for index in indices]
        norm = sum(square for _, square in parts)
        return Error(sqrt(sum(relative**2 * square for relative, square in parts) / norm) if norm else 0.0, None)

    return Errors(whole=over(range(len(layers))), compressed=over(compressed), layers=errors.layers)
