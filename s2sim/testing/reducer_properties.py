"""Gradients that reducers are checked with, and properties of their results over one and several steps."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.reducers.measure import final_results, mean_float64, worst_error
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.reducers.registry import with_feedback
from s2sim.reducers.run import is_symmetric, run_symmetric
from s2sim.reducers.script import Recording, ring_bytes
from s2sim.testing.collectives import require

LOSSLESS_ERROR = 1e-6

_Layers: TypeAlias = "dict[str, NDArray[np.float64]]"
# Of rounding before and after a sum: an eighth of a per cent in bfloat16, of values that partly cancel.
_ROUNDED = 1e-2
_STEPS = 3


def example_gradients(ranks: int, *, seed: int = 0, zero: bool = False) -> list[Gradient]:
    """Return one gradient per rank with all kinds of layers: tables, dense, one-dimensional, empty; all read-only."""
    generator = np.random.default_rng(seed)

    def values(*shape: int) -> Floats32:
        sampled = np.zeros(shape, np.float32) if zero else generator.standard_normal(shape, np.float32)
        sampled.setflags(write=False)
        return sampled

    def table(rows: int, *width: int) -> RowSparse:
        stored = np.flatnonzero(generator.random(rows) < (0 if zero else 0.1))
        stored.setflags(write=False)
        return RowSparse(stored, values(len(stored), *width), (rows, *width))

    names = ("embedding", "weight", "frequencies", "bias", "no rows", "no elements")
    return [
        Gradient(names, (table(203, 5), values(13, 7), table(101), values(3), table(0, 4), values(0)))
        for _ in range(ranks)
    ]


def small_gradient(seed: int, *, heavy: bool = False) -> Gradient:
    """Return a gradient of 48 elements, normal or with a ``heavy`` tail, in a dense matrix and a table."""
    generator = np.random.default_rng(seed)
    values = generator.standard_t(1.5, 48) if heavy else generator.standard_normal(48)
    return _in_two_layers(values.astype(np.float32))


def edge_gradients(ranks: int) -> dict[str, list[Gradient]]:
    """Return difficult gradients, one per rank, by their description."""
    alternating = np.where(np.arange(48) % 2, -1, 1).astype(np.float32)
    nothing, tiny = np.zeros(48, np.float32), np.float32(1e-41)
    huge = np.float32(0.9 * np.finfo(np.float32).max / ranks)
    one = np.array([[-2.5]], np.float32)
    return {
        "one element": [Gradient(("only",), (one,))] * ranks,
        "one row": [Gradient(("only",), (RowSparse(np.array([0]), one, (1, 1)),))] * ranks,
        "equal magnitudes": [_in_two_layers(alternating)] * ranks,
        "subnormal values": [_in_two_layers(alternating * tiny)] * ranks,
        "huge values": [_in_two_layers(alternating * huge)] * ranks,
        "values on one rank alone": [_in_two_layers(alternating if rank == 0 else nothing) for rank in range(ranks)],
    }


def _in_two_layers(values: Floats32) -> Gradient:
    values.setflags(write=False)
    table = RowSparse(np.arange(0, 24, 2), values[24:].reshape(12, 2), (24, 2))
    return Gradient(("weight", "table"), (values[:24].reshape(6, 4), table))


def equal(left: Gradient, right: Gradient) -> bool:
    """Return whether two gradients have the same values."""
    return all(np.array_equal(to_dense(a), to_dense(b)) for a, b in zip(left.layers, right.layers, strict=True))


def check_results(results: Sequence[Reduced], gradients: Sequence[Gradient], where: str, *, agrees: bool) -> None:
    """Check that shapes and types are the input's, and that all ranks end with the same if they promise it."""
    for gradient, result in zip(gradients, results, strict=True):
        for what, output in (("mean", result.mean), ("sent", result.sent())):
            require(output.names == gradient.names, f"{what} has other layers than the gradient {where}")
            for (name, layer), like in zip(output, gradient.layers, strict=True):
                require(layer.shape == like.shape, f"{what} of {name!r} has shape {layer.shape}, not {like.shape}")
                require(layer.dtype == np.float32, f"{what} of {name!r} is {layer.dtype}, not float32")
                require(bool(np.isfinite(to_dense(layer)).all()), f"{what} of {name!r} is not finite {where}")
        if agrees and result.mean is not results[0].mean:
            require(equal(result.mean, results[0].mean), f"the ranks end with different values {where}")


def check_accuracy(reducer: Reducer, results: Sequence[Reduced], gradients: Sequence[Gradient], where: str) -> None:
    """Check that uncompressed layers are exact, and that lossless reducers give the mean, or the input on one rank."""
    compressed = reducer.compresses(gradients[0])
    count = len(gradients[0].layers)
    valid = list(compressed) == sorted(set(compressed) & set(range(count)))
    require(valid, f"compresses() gives {compressed} of {count}")
    errors = worst_error(final_results(results, reducer.traits), mean_float64(gradients), compressed)
    for index, (name, error) in enumerate(errors.layers.items()):
        if reducer.traits.lossless or index not in compressed:
            exact = error.relative_l2 is not None and error.relative_l2 <= LOSSLESS_ERROR
            require(exact, f"{name!r} is off by {error.relative_l2} {where}, though it should be exact")
    if reducer.traits.lossless:
        require(len(gradients) > 1 or equal(results[0].mean, gradients[0]), "one rank does not get its own gradient")
        for gradient, result in zip(gradients, results, strict=True):
            require(equal(result.sent(), gradient), f"a lossless reducer's sent is not its input {where}")


def check_bound(ran: Reducer, gradient: Gradient) -> None:
    """Check that a reducer that has run, if it has an error bound, has one for every layer that it compresses."""
    if (bound := ran.error_bound()) is not None:
        count = sum(gradient.layers[index].size > 0 for index in ran.compresses(gradient))
        require(len(bound.element) == count, f"error_bound() is of {len(bound.element)} layers, {count} are compressed")


def check_traffic(recording: Recording, ranks: int) -> None:
    """Check that every member takes part in every collective and that what is sent is received."""
    for call in recording.calls:
        members = call.ranks or range(ranks)
        counts = len(call.elements), len(members)
        require(counts[0] == counts[1], f"{call.label!r} has {counts[0]} of {counts[1]} members")
        require(list(members) == sorted(set(members) & set(range(ranks))), f"{call.label!r} is of ranks {call.ranks}")
        equal_sizes = call.kind in ("all_reduce", "reduce", "broadcast")
        require(not equal_sizes or len(set(call.elements)) == 1, f"{call.label!r} differs in size")
        sums = tuple(map(sum, call.blocks))
        require(call.kind != "all_to_all" or sums == call.elements, f"{call.label!r} has blocks of other sizes")
        sent, received = ring_bytes(call)
        require(int(sent.sum()) == int(received.sum()), f"{call.label!r} does not receive what is sent")
        require(len(members) > 1 or not sent.any(), f"{call.label!r} sends bytes on a single rank")


def check_symmetric(reducer: Reducer, ranks: int) -> None:
    """Check that scripts which are to follow from shapes alone are those of a run of all ranks."""
    gradients = []
    for seed in range(ranks):
        random = np.random.default_rng(seed)
        layers = [random.normal(size=shape).astype(np.float32) for shape in ((16 * ranks, 8), (8 * ranks,))]
        gradients.append(Gradient(("matrix", "vector"), tuple(layers)))
    if is_symmetric(reducer, gradients[0]):
        _, recording = run_group(make_instances(reducer, ranks), gradients, step=reducer.warmup_steps)
        require(recording == run_symmetric(reducer, gradients[0], ranks), "size_only, and scripts depend on values")


def check_restore(reducer: Reducer, ranks: int, *, interrupted: int = 2, steps: int = 4) -> None:
    """Check that a reducer continues from a saved state as if uninterrupted, also if the state is altered later."""
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
        results, recording = run_group(other, gradients, step=step)
        where = f"step {step} after a restore before step {interrupted}"
        same = all(equal(a.mean, b.mean) for a, b in zip(expected, results, strict=True))
        require(same, f"{where} gives other values: are all its state() and restore() complete?")
        require(recording == expected_recording, f"{where} gives another script")


def _spoil(state: object) -> None:
    if isinstance(state, np.ndarray):
        state.fill(-1 if state.dtype.kind in "if" else 1)
    elif isinstance(state, dict | list):
        for value in state.values() if isinstance(state, dict) else state:
            _spoil(value)


def check_determinism(reducer: Reducer, ranks: int) -> None:
    """Check that the same steps with the same seed give the same bits and scripts on fresh instances."""
    instances, others = make_instances(reducer, ranks), make_instances(reducer, ranks)
    for step in range(_STEPS):
        gradients = example_gradients(ranks, seed=step)
        results, recording = run_group(instances, gradients, seed=5, step=step)
        results_again, recording_again = run_group(others, gradients, seed=5, step=step)
        same = all(equal(one.mean, other.mean) for one, other in zip(results, results_again, strict=True))
        require(same, f"step {step} gives other values when it is run again")
        require(recording == recording_again, f"step {step} gives another script when it is run again")


def check_sent(reducer: Reducer) -> None:
    """Check that on a single rank the mean is what that rank sent, in every step."""
    instances = make_instances(reducer, 1)
    for step in range(_STEPS):
        (result,), _ = run_group(instances, example_gradients(1, seed=step), step=step)
        mean, sent = _sum([result.mean]), _sum([result.sent()])
        _require_near(mean, sent, sent, LOSSLESS_ERROR, f"one rank's sent of {{}} is not the mean in step {step}")


def check_nothing_lost(reducer: Reducer, ranks: int) -> None:
    """Check that the ranks' sent contributions arrive, and that feedback keeps the rest.

    Over all ranks they add up to the mean times the ranks unless ``adds_up=False``. On each rank, sent + residual is
    the gradient + the residual of the step before, or without that as in EF21.
    """
    traits = reducer.traits
    instances = make_instances(with_feedback(reducer), ranks)
    for step in range(_STEPS):
        gradients = example_gradients(ranks, seed=step)
        before = [instance.held_back() for instance in instances]
        results, _ = run_group(instances, gradients, step=step)
        if traits.adds_up and traits.agrees and traits.estimates == "mean":
            sent = [result.sent() for result in results]
            _require_near(
                _sum(repeat(results[0].mean, len(results))),
                _sum(sent),
                _sum(gradient.map(np.abs) for gradient in sent),
                _ROUNDED if traits.rounds_only else 10 * LOSSLESS_ERROR,
                f"what ranks have sent of {{}} is not so many times the mean in step {step}: "
                "mend sent, or say adds_up=False",
            )
        for instance, gradient, old, result in zip(instances, gradients, before, results, strict=True):
            new = instance.held_back()
            conserves = instance.traits.conserves
            if new is not None and conserves != "nothing":
                given = _sum([gradient, old] if old is not None and conserves == "sum" else [gradient])
                kept = _sum([result.sent(), new])
                what = "the gradient + the residual before" if conserves == "sum" else "the gradient"
                text = f"sent + residual is not {what}, in {{}} in step {step}"
                _require_near(kept, given, _sum([gradient, new]), 10 * LOSSLESS_ERROR, text)


def _sum(gradients: Iterable[Gradient]) -> _Layers:
    first, *others = gradients
    total = {name: to_dense(layer).astype(np.float64) for name, layer in first}
    for gradient in others:
        for name, layer in gradient:
            total[name] = total[name] + to_dense(layer)
    return total


def _require_near(values: _Layers, expected: _Layers, sizes: _Layers, share: float, text: str) -> None:
    """Require errors of all layers below a share of the largest of ``sizes``, as layers may be encoded together."""
    scale = max((float(np.abs(layer).max(initial=0.0)) for layer in sizes.values()), default=0.0)
    for name, layer in values.items():
        require(float(np.abs(layer - expected[name]).max(initial=0.0)) <= share * scale, text.format(repr(name)))
