"""One reducer on one step's gradients, as a first step or a later one."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from s2sim.arrays import Floats32
from s2sim.errors import S2SimError, S2SimWarning
from s2sim.gradients.gradient import Gradient, RowSparse, add, as_row_sparse, to_dense
from s2sim.reducers import reduction, registry
from s2sim.reducers.process_group import Handle, Member, RankProgress, World, make_instances, run_group
from s2sim.reducers.rank import Contribution, Program, Rank, Reduced, Reducer, T
from s2sim.reducers.script import Call, Post, Recording, join_recordings, recording_bytes

OtherSteps: TypeAlias = Callable[[int], Sequence[Gradient]]
"""Returns the gradients of a training step, one a rank, in turn where there are fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class ReducerRun:
    """One reducer's work on one step's gradients, or those of its period."""

    instances: list[Reducer]  # With the state that they carry to the next step
    results: list[Reduced]  # Of the last step; of all steps of its period where ranks do not end alike
    recording: Recording


@dataclass(slots=True)
class _Learning(Reducer):
    """A reducer in a step of which only the carried state is used."""

    inner: Reducer

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        yield from self.inner.learn(rank, gradient)
        return Reduced(gradient, sent=lambda: gradient)


def make_step_instances(
    reducer: Reducer, gradients: Sequence[Gradient], *, seed: int, others: OtherSteps | None = None
) -> list[Reducer]:
    """Return new instances, one a rank, that are ready for a step on these gradients.

    Those of a warm reducer have run another step, or one on the same gradients where there is none, of which only what
    it carries over is kept.
    """
    instances = make_instances(reducer, len(gradients))
    if reducer.traits.warm:
        # The step that counts warns of the same.
        with warnings.catch_warnings(action="ignore", category=S2SimWarning):
            run_group([_Learning(instance) for instance in instances], others(1) if others else gradients, seed=seed)
    return instances


def dry_run(reducer: Reducer, gradient: Gradient, ranks: int, *, seed: int = 0) -> None:
    """Let rank 0 of so many begin a reduction, until it waits: what there is to warn of gradients like this is said."""
    next(reducer.fresh().reduce(RankProgress(0).member(World(ranks).all, 0, seed), gradient), None)


def run_reducer(
    reducer: Reducer, gradients: Sequence[Gradient], *, seed: int = 0, others: OtherSteps | None = None
) -> ReducerRun:
    """Run one reduction with new instances, see `make_step_instances`, or all steps of a period once it has settled.

    These start with step 0 of the trace, whose gradients are at hand; they are the same in all steps where there are no
    others.
    """
    instances = make_step_instances(reducer, gradients, seed=seed, others=others)
    recordings, moved = [], list[Gradient]()
    for place in range(reducer.period):
        here = others(place) if place and others else gradients
        results, recording = run_group(instances, here, seed=seed, step=reducer.warmup_steps + place)
        recordings.append(recording)
        if not reducer.traits.agrees:
            # Ranks that go on alone end a period with the sum of all their steps.
            means = [each.mean for each in results]
            moved = list(map(add, moved, means)) if moved else means
            results = [Reduced(mean, each.sent) for mean, each in zip(moved, results, strict=True)]
    return ReducerRun(instances, results, join_recordings(recordings))


@dataclass(frozen=True, slots=True, eq=False)
class ReductionResult:
    """The result of `reduce_once`, and one step of `reduce_steps`."""

    # The average over ranks as each rank ends with it, in the input's shape. Read-only; ranks that end with the same
    # object share it.
    values: list[Floats32]
    # bytes_sent, bytes_received: of each rank, under ring collectives
    bytes_sent: list[int]
    bytes_received: list[int]
    recording: Recording  # What every rank did
    notes: tuple[str, ...] = ()  # What the reducer says of its choices, such as the size that it has taken for an error


def reduce_once(reducer: str | Reducer, gradients: Sequence[Floats32], *, seed: int = 0) -> ReductionResult:
    """Average one array of each rank with a reducer, as the first step of a training run.

    `S2SimError` without arrays, if one is not finite float32 of the first one's shape, and for what does not exchange
    every step.

    Parameters
    ----------
    reducer : str or Reducer
        Option string or object; its state, if any, is neither used nor changed.
    gradients : list or tuple of float32 array
        One a rank, of one shape: (n,), whose elements are the keys of a sparse layer, or (n, width), whose rows are.
    seed : int
        Root of all randomness.

    Examples
    --------
    >>> once = reduce_once("union", [np.array([0, 2, 0], np.float32), np.array([0, 0, 4], np.float32)])
    >>> once.values[0], once.bytes_sent
    (array([0., 1., 2.], dtype=float32), [9, 9])
    """
    made = _prepare_reducer(reducer, seed)
    if made.period > 1:
        raise S2SimError(f"{reducer!r} exchanges once in {made.period} steps: give their arrays to reduce_steps")
    layers = _layers(gradients)
    ran = run_reducer(made.fitted(layers, seed), layers, seed=seed)
    return _as_arrays(ran.results, ran.recording, ran.instances[0].notes())


def reduce_steps(
    reducer: str | Reducer, steps: Sequence[Sequence[Floats32]], *, seed: int = 0
) -> list[ReductionResult]:
    """Average one array of each rank in each of several steps of training, in which the reducer keeps what it carries.

    `S2SimError` if there is no step, or one does not have the arrays that it should.

    Parameters
    ----------
    reducer : str or Reducer
        Option string or object; the state of an object is neither used nor changed.
    steps : list or tuple of list of float32 array
        The arrays of each step, as `reduce_once` takes them, all of one shape and from as many ranks.
    seed : int
        Root of all randomness.

    Examples
    --------
    Of four elements one is sent in each step; error feedback sends the others later.

    >>> gradient = np.array([4, 3, 0, 0], np.float32)
    >>> [found.values[0].tolist() for found in reduce_steps("topk:density=0.25,ef=true", [[gradient]] * 3)]
    [[4.0, 0.0, 0.0, 0.0], [0.0, 6.0, 0.0, 0.0], [8.0, 0.0, 0.0, 0.0]]
    """
    made = _prepare_reducer(reducer, seed)
    if not isinstance(steps, list | tuple) or not steps:
        raise S2SimError("no steps were given: reduce_steps takes a list of steps, each a list with one array a rank")
    layers = [_layers(gradients) for gradients in steps]
    for step, (gradients, found) in enumerate(zip(steps, layers, strict=True)):
        if len(found) != len(layers[0]) or gradients[0].shape != steps[0][0].shape:
            raise S2SimError(
                f"step {step} has {len(found)} arrays of the shape {gradients[0].shape}, step 0 {len(layers[0])} of "
                f"{steps[0][0].shape}: all steps need the same"
            )
    instances = make_step_instances(made.fitted(layers[0], seed), layers[0], seed=seed)
    return [
        _as_arrays(*run_group(instances, gradients, seed=seed, step=step), instances[0].notes())
        for step, gradients in enumerate(layers)
    ]


def _prepare_reducer(reducer: Any, seed: Any) -> Reducer:
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise S2SimError(f"seed {seed!r} is not a whole number from 0: give a Python int")
    made = registry.make_reducer(reducer) if isinstance(reducer, str) else reducer
    if not isinstance(made, Reducer):
        raise S2SimError(f"{reducer!r} is no reducer: give an option string such as 'union', or a Reducer")
    return made


def _as_arrays(results: Sequence[Reduced], recording: Recording, notes: tuple[str, ...]) -> ReductionResult:
    means = {id(result.mean): result.mean for result in results}
    dense = {key: to_dense(*mean.layers) for key, mean in means.items()}
    for array in dense.values():
        array.setflags(write=False)
    sent, received = recording_bytes(recording)
    values = [dense[id(result.mean)] for result in results]
    return ReductionResult(values, sent.tolist(), received.tolist(), recording, notes)


def _layers(gradients: Any) -> list[Gradient]:
    if not isinstance(gradients, list | tuple):
        raise S2SimError(f"the gradients are a {type(gradients).__name__}: give a list with one array a rank")
    if len(gradients) == 0:
        raise S2SimError("no gradient was given: reduce_once takes one float32 array a rank")
    for rank, array in enumerate(gradients):
        if fault := _fault(array, gradients[0]):
            raise S2SimError(f"the gradient of rank {rank} {fault}")
    return [Gradient(("gradient",), (as_row_sparse(array),)) for array in gradients]


def _fault(array: Any, first: Any) -> str:
    if type(array) is not np.ndarray:
        return f"is a {type(array).__name__}: give a NumPy array of float32"
    if array.dtype.newbyteorder("=") == np.float32 and not array.dtype.isnative:
        return "has another byte order than this machine: convert with .astype(np.float32)"
    if array.dtype != np.float32:
        return f"is {array.dtype}: convert with .astype(np.float32)"
    if array.ndim not in (1, 2):
        return f"has the shape {array.shape}: give one or two dimensions, or reshape it"
    if array.shape != first.shape:
        return f"has the shape {array.shape}, that of rank 0 {first.shape}: all ranks need the same"
    return "" if np.isfinite(array).all() else "holds NaN or infinity: check the training step it is from"


@dataclass(slots=True, eq=False)
class SymmetricRank(Member):
    """Rank 0 of some that all do the same with arrays of the same shapes; implements `s2sim.reducers.rank.Rank`.

    What other ranks hand in is taken to be what this one does, so that only shapes are as in a run of all.
    """

    for_shapes: ClassVar[bool] = True  # Reducers may leave out what values alone need
    calls: list[Call] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def subgroup(self, ranks: Iterable[int]) -> Member:
        raise self._refusal("a group of some ranks")

    def replicated(self, compute: Callable[[], T]) -> T:
        try:
            return compute()
        except (IndexError, ValueError, S2SimError):
            # Other ranks have shares of another size: it is the mean, which nobody reads here.
            return cast("T", None)

    def value(self, call: int) -> Any:
        return self.values[call]

    def _post(self, heading: reduction.CallHeader, payloads: Mapping[int, Contribution]) -> Handle:
        if heading.kind in ("reduce", "broadcast") or heading.op == "peers":
            raise self._refusal(heading.label)
        self.calls.append(reduction.Collective(heading, self.group.ranks).record_alike(payloads))
        combines = heading.kind in ("all_reduce", "reduce_scatter")
        self.values.append(payloads[0] if combines else (payloads[0],) * self.size)
        self.progress.script.append(Post(len(self.calls) - 1))
        return Handle(((self, len(self.calls) - 1),))

    def _refusal(self, what: str) -> S2SimError:
        return S2SimError(f"{what!r} is not the same on all ranks: the scripts do not follow from those of one")


def is_symmetric(reducer: Reducer, gradient: Gradient) -> bool:
    """Return whether what every rank sends of such a gradient follows from its shapes, in every step."""
    tables = any(isinstance(layer, RowSparse) for layer in gradient.layers)
    return reducer.size_only and not reducer.traits.warm and reducer.period == 1 and not tables


def run_symmetric(reducer: Reducer, gradient: Gradient, ranks: int, *, seed: int = 0) -> Recording:
    """Return the scripts of ``ranks`` ranks that hold gradients such as this one, of which `is_symmetric` holds.

    Only one rank's program runs, see `SymmetricRank`. They are those of `s2sim.reducers.run.run_reducer` on as many
    gradients, but that a rank's share of a layer may differ by an element.
    """
    progress = RankProgress(0)
    rank = SymmetricRank(World(ranks).all, progress, 0, ranks, reducer.warmup_steps, seed)
    with np.errstate(all="ignore"):
        for pending in reducer.fresh().reduce(rank, gradient):
            progress.wait(pending)
    return Recording(tuple(rank.calls), (tuple(progress.script),) * ranks)
