"""Conformance kit for gradient reducers: what every one must do, whatever it compresses.

A plug-in's test is one line: ``check_reducer(MyReducer)``.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimWarning
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.measure import mean_float64, worst_error
from s2sim.reducers.scripts.traffic import ring_bytes
from s2sim.testing.require import require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.rank import Reduced, Reducer
    from s2sim.reducers.scripts.script import Recording

RANK_COUNTS = (1, 2, 3, 7, 65)
"""One rank, a pair, odd counts, and more ranks than the smallest layers have elements."""

_LOSSLESS_ERROR = 1e-6


def example_gradients(ranks: int, *, seed: int = 0, zero: bool = False) -> list[Gradient]:
    """Return one gradient a rank with all kinds of layers: tables, dense, one-dimensional, empty; all read-only."""
    generator = np.random.default_rng(seed)
    return [_example(generator, zero=zero) for _ in range(ranks)]


def _example(generator: np.random.Generator, *, zero: bool) -> Gradient:
    def values(*shape: int) -> Floats32:
        drawn = np.zeros(shape, np.float32) if zero else generator.standard_normal(shape, np.float32)
        drawn.setflags(write=False)
        return drawn

    def table(rows: int, *width: int) -> RowSparse:
        held = np.flatnonzero(generator.random(rows) < (0 if zero else 0.1))
        held.setflags(write=False)
        return RowSparse(held, values(len(held), *width), (rows, *width))

    layers: dict[str, Layer] = {
        "embedding": table(203, 5),
        "weight": values(13, 7),
        "frequencies": table(101),
        "bias": values(3),
        "no rows": table(0, 4),
        "no elements": values(0),
    }
    return Gradient(tuple(layers), tuple(layers.values()))


def check_reducer(make: Callable[[], Reducer]) -> None:
    """Check that a reducer, which ``make`` returns anew, does what every reducer must."""
    with warnings.catch_warnings():
        # That nothing is compressed is right where there is nothing to compress.
        warnings.simplefilter("ignore", S2SimWarning)
        for ranks in RANK_COUNTS:
            gradients = example_gradients(ranks)
            results, recording = run_group(make_instances(make(), ranks), gradients)
            _check_results(results, gradients, f"with {ranks} ranks", agrees=make().traits.agrees)
            _check_accuracy(make(), results, gradients, f"with {ranks} ranks")
            _check_traffic(recording, ranks)
        _check_zero(make())
        _check_no_layers(make())
        _check_determinism(make())
        _check_sent(make())


def check_restore(make: Callable[[], Reducer], *, ranks: int = 3, steps: int = 5) -> None:
    """Check that a reducer goes on from a saved state as if it had not been interrupted, whenever that is.

    What is saved is altered afterwards where it is an array, so that it must be a copy.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", S2SimWarning)
        for interrupted in range(1, steps):
            one, other = make_instances(make(), ranks), make_instances(make(), ranks)
            for step in range(steps):
                gradients = example_gradients(ranks, seed=step)
                expected, expected_recording = run_group(one, gradients, step=step)
                if step == interrupted:
                    saved = [instance.state() for instance in other]
                    other = make_instances(make(), ranks)
                    for instance, state in zip(other, saved, strict=True):
                        instance.restore(state)
                        _spoil(state)
                found, recording = run_group(other, gradients, step=step)
                where = f"step {step} after a restore before step {interrupted}"
                equal = all(_equal(a.mean, b.mean) for a, b in zip(expected, found, strict=True))
                require(equal, f"{where} gives other values")
                require(recording == expected_recording, f"{where} gives another script")


def _spoil(state: object) -> None:
    """Alter every array in a state."""
    if isinstance(state, np.ndarray):
        state.fill(-1)
    elif isinstance(state, dict | list):
        for value in state.values() if isinstance(state, dict) else state:
            _spoil(value)


def _equal(left: Gradient, right: Gradient) -> bool:
    return all(np.array_equal(to_dense(a), to_dense(b)) for a, b in zip(left.layers, right.layers, strict=True))


def _check_results(results: Sequence[Reduced], gradients: Sequence[Gradient], where: str, *, agrees: bool) -> None:
    """Check that shapes and types are the input's, and that all ranks end with the same if they say so."""
    for gradient, result in zip(gradients, results, strict=True):
        for what, found in (("mean", result.mean), ("sent", result.sent())):
            require(found.names == gradient.names, f"{what} has other layers than the gradient {where}")
            for (name, layer), like in zip(found, gradient.layers, strict=True):
                require(layer.shape == like.shape, f"{what} of {name!r} has shape {layer.shape}, not {like.shape}")
                require(layer.dtype == np.float32, f"{what} of {name!r} is {layer.dtype}, not float32")
                require(bool(np.isfinite(to_dense(layer)).all()), f"{what} of {name!r} is not finite {where}")
        if agrees and result.mean is not results[0].mean:
            require(_equal(result.mean, results[0].mean), f"the ranks end with different values {where}")


def _check_accuracy(reducer: Reducer, results: Sequence[Reduced], gradients: Sequence[Gradient], where: str) -> None:
    """Check that a lossless reducer gives the mean, and the input on one rank; other layers are exact in all."""
    compressed = reducer.compresses(gradients[0])
    count = len(gradients[0].layers)
    require(
        list(compressed) == sorted(set(compressed) & set(range(count))), f"compresses() gives {compressed} of {count}"
    )
    errors = worst_error(results, mean_float64(gradients), compressed)
    for index, (name, error) in enumerate(errors.layers.items()):
        if reducer.traits.lossless or index not in compressed:
            exact = error.relative_l2 is not None and error.relative_l2 <= _LOSSLESS_ERROR
            require(exact, f"{name!r} is off by {error.relative_l2} {where}, though it should be exact")
    if reducer.traits.lossless:
        require(len(gradients) > 1 or _equal(results[0].mean, gradients[0]), "one rank does not get its own gradient")
        for gradient, result in zip(gradients, results, strict=True):
            require(_equal(result.sent(), gradient), f"a lossless reducer's sent is not its input {where}")


def _check_traffic(recording: Recording, ranks: int) -> None:
    """Check that every member takes part in every collective and that what is sent is received."""
    for call in recording.calls:
        members = call.ranks or range(ranks)
        require(
            len(call.elements) == len(members), f"{call.label!r} has {len(call.elements)} of {len(members)} members"
        )
        require(list(members) == sorted(set(members) & set(range(ranks))), f"{call.label!r} is of ranks {call.ranks}")
        alike = call.kind in ("all_reduce", "reduce", "broadcast")
        require(not alike or len(set(call.elements)) == 1, f"{call.label!r} differs in size")
        whole = tuple(map(sum, call.blocks))
        require(call.kind != "all_to_all" or whole == call.elements, f"{call.label!r} has blocks of other sizes")
        sent, received = ring_bytes(call)
        require(int(sent.sum()) == int(received.sum()), f"{call.label!r} does not receive what is sent")
        require(len(members) > 1 or not sent.any(), f"{call.label!r} sends bytes on a single rank")


def _check_zero(reducer: Reducer) -> None:
    results, _ = run_group(make_instances(reducer, 3), example_gradients(3, zero=True))
    for name, layer in results[0].mean:
        require(not to_dense(layer).any(), f"zero gradients do not give zero in {name!r}")


def _check_no_layers(reducer: Reducer) -> None:
    results, _ = run_group(make_instances(reducer, 3), [Gradient((), ())] * 3)
    require(results[0].mean.layers == (), "a gradient without layers does not give one without layers")


def _check_determinism(reducer: Reducer) -> None:
    """Check that the same steps with the same seed give the same bits and scripts on fresh instances."""
    runs = []
    for _ in range(2):
        instances = make_instances(reducer, 3)
        runs.append([run_group(instances, example_gradients(3, seed=step), seed=5, step=step) for step in range(3)])
    for step, ((results, recording), (again, recording_again)) in enumerate(zip(*runs, strict=True)):
        equal = all(_equal(one.mean, other.mean) for one, other in zip(results, again, strict=True))
        require(equal, f"step {step} gives other values when it is run again")
        require(recording == recording_again, f"step {step} gives another script when it is run again")


def _check_sent(reducer: Reducer) -> None:
    """Check that on a single rank the mean is what that rank sent, in every step: there is nothing else in it."""
    instances = make_instances(reducer, 1)
    for step in range(3):
        (result,), _ = run_group(instances, example_gradients(1, seed=step), step=step)
        for (name, mean), sent in zip(result.mean, result.sent().layers, strict=True):
            scale = float(np.abs(to_dense(mean)).max(initial=0.0))
            gap = float(np.abs(to_dense(mean) - to_dense(sent)).max(initial=0.0))
            require(gap <= _LOSSLESS_ERROR * scale, f"one rank's sent of {name!r} is not the mean in step {step}")
