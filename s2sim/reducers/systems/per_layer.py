"""A reducer for each pattern of layer names: sketches on tables, say, and low rank on the rest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from glob import escape
from math import ceil, lcm
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from s2sim.arrays import Floats
from s2sim.errors import OptionError, warn
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost, process_group, script
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Reducer, Traits, Waits
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.layers import merge_layers, run_interleaved, select_layers
from s2sim.reducers.systems import dense, low_rank, stochastic_rounding, topk

_MAX_NAMES = 8


@dataclass(frozen=True, slots=True)
class PatternPart:
    """A pattern of layer names with ``*``, ``?`` and ``[]``, and the reducer of those that it is the first to fit.

    ``text`` is the reducer's option string, as it stands among the options of `PerLayer`.
    """

    pattern: str
    text: str
    reducer: Reducer


@dataclass(slots=True)
class PerLayer(Reducer):
    """Any reducers side by side, each on the layers of its pattern; what no pattern fits is sent densely.

    Written ``per-layer:embed*=s2-exact,*=topk:density=0.05;ef=true``: the pattern, then an option string with ``;``
    where others have ``,``. The first pattern that fits has a layer. What all of them post before they wait is in
    flight together, and one launch where it is of one kind. One of them may prefetch: what it sends before there is a
    gradient goes alone.
    """

    takes_reducers, needs_parts = True, "a reducer for each pattern of layer names"
    parts: tuple[PatternPart, ...] = ()

    def __post_init__(self) -> None:
        for part in self.parts:
            if part.reducer.takes_reducers:
                raise OptionError(
                    f"per-layer: {part.pattern}={part.text} has patterns of its own: give one list of them"
                )
            if part.reducer.period > 1:
                raise OptionError(
                    f"per-layer: {part.pattern}={part.text} exchanges once in {part.reducer.period} steps: give that "
                    "for all layers, beside the patterns"
                )
        if len(ahead_of_it := [part for part in self.parts if part.reducer.traits.before_gradient]) > 1:
            named = " and ".join(f"{part.pattern}={part.text}" for part in ahead_of_it)
            raise OptionError(f"per-layer: {named} both begin before there is a gradient: give them one pattern")
        self.parts = tuple(replace(part, reducer=part.reducer.fresh()) for part in self.parts)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Start the parts, those first that do not need the gradient yet, and put their means together."""
        layers, rest = self._assigned(rank, gradient)
        chosen = [(part.reducer, own) for part, own in zip(self.parts, layers, strict=True) if own]
        if rest or not chosen:
            chosen.append((dense.Dense().with_dtype(self.held), rest))
        chosen.sort(key=lambda each: not each[0].traits.before_gradient)
        programs = []
        for reducer, own in chosen:
            handle = GradientWatcher(rank)
            program = reducer.reduce(cast("Rank", handle), select_layers(gradient, own))
            if reducer.traits.before_gradient:
                program = yield from run_until_gradient(handle, program)
            programs.append(program)
        found = yield from run_interleaved(programs)
        places = [own for _, own in chosen]

        def mean() -> Gradient:
            return merge_layers(zip(places, (each.mean for each in found), strict=True), gradient)

        whole = rank.replicated(mean) if self.traits.agrees else mean()
        return Reduced(whole, lambda: merge_layers(zip(places, (each.sent() for each in found), strict=True), gradient))

    def learn(self, rank: Rank, gradient: Gradient) -> Waits[None]:
        """Learn what the parts do; where single ones are a later step, what these do."""
        layers, _ = self._assigned(rank, gradient)
        only_warm = self.traits.warm
        yield from run_interleaved(
            [
                part.reducer.learn(rank, select_layers(gradient, own))
                for part, own in zip(self.parts, layers, strict=True)
                if own and (part.reducer.traits.warm or not only_warm)
            ]
        )

    @property
    def traits(self) -> Traits:
        """What all parts promise, and what any of them needs."""
        if not self.parts:
            return replace(self.about, lossless=True)
        each = [part.reducer.traits for part in self.parts]
        estimates = {traits.estimates for traits in each}
        feedback = {traits.feedback for traits in each}
        return replace(
            self.about,
            lossless=all(traits.lossless for traits in each),
            rounds_only=all(traits.rounds_only or traits.lossless for traits in each),
            agrees=all(traits.agrees for traits in each),
            granularity=", ".join(dict.fromkeys(traits.granularity for traits in each if traits.granularity)),
            carries=any(traits.carries for traits in each),
            warm=any(traits.warm for traits in each),
            before_gradient=any(traits.before_gradient for traits in each),
            estimates=next((name for name in ("weights", "shards", "sign", "update") if name in estimates), "mean"),
            feedback=next((name for name in ("needed", "own") if name in feedback), "no"),
            adds_up=all(traits.adds_up for traits in each),
            state_bytes=max(traits.state_bytes for traits in each),
            scope="gradient" if any(traits.scope == "gradient" for traits in each) else "bucket",
        )

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        layers, _ = assign_by_pattern(gradient.names, [part.pattern for part in self.parts])
        found: list[int] = []
        for part, own in zip(self.parts, layers, strict=True):
            found += [own[index] for index in part.reducer.compresses(select_layers(gradient, own))] if own else []
        return tuple(sorted(found))

    @property
    def least_side(self) -> int:
        return max((part.reducer.least_side for part in self.parts), default=0)

    def alignment(self, ranks: int) -> int:
        return lcm(*(part.reducer.alignment(ranks) for part in self.parts))

    def layer_classes(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return by which pattern each layer is taken; those that none fits come last."""
        layers, rest = assign_by_pattern(names, [part.pattern for part in self.parts])
        found = {index: place for place, own in enumerate([*layers, rest]) for index in own}
        return tuple(found[index] for index in range(len(names)))

    def with_dtype(self, dtype: GradientDtype) -> Self:
        return self._map(lambda _, reducer: reducer.with_dtype(dtype), held=dtype)

    def placed(self, nodes: Sequence[int]) -> Self:
        return self._map(lambda _, reducer: reducer.placed(nodes))

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        layers, _ = assign_by_pattern(gradients[0].names, [part.pattern for part in self.parts])
        return self._map(
            lambda place, reducer: (
                reducer.fitted([select_layers(gradient, layers[place]) for gradient in gradients], seed)
                if layers[place]
                else reducer
            )
        )

    def sized(self, elements: Mapping[str, int]) -> Self:
        names = tuple(elements)
        layers, _ = assign_by_pattern(names, [part.pattern for part in self.parts])
        return self._map(
            lambda place, reducer: reducer.sized({names[index]: elements[names[index]] for index in layers[place]})
        )

    def state(self) -> dict[str, Any]:
        return {str(place): part.reducer.state() for place, part in enumerate(self.parts)}

    def restore(self, state: Mapping[str, Any]) -> None:
        for place, part in enumerate(self.parts):
            part.reducer.restore(state.get(str(place), {}))

    def notes(self) -> tuple[str, ...]:
        if not self.parts:
            return ("no pattern was given, so that all layers are sent densely",)
        return tuple(f"{part.pattern}: {note}" for part in self.parts for note in part.reducer.notes())

    def later_options(self) -> tuple[str, ...]:
        return tuple(f"{option} of {part.pattern}" for part in self.parts for option in part.reducer.later_options())

    def written(self) -> dict[str, str]:
        return {part.pattern: part.text for part in self.parts}

    def options(self) -> dict[str, Any]:
        return {"layers": ",".join(f"{part.pattern}={part.text}" for part in self.parts)}

    def _map(self, change: Callable[[int, Reducer], Reducer], **fitted: Any) -> Self:
        parts = [replace(part, reducer=change(place, part.reducer)) for place, part in enumerate(self.parts)]
        return self.variant(parts=tuple(parts), **fitted)

    def _assigned(self, rank: Rank, gradient: Gradient) -> tuple[list[list[int]], list[int]]:
        """Return the layers of each part and those of none; warn of these, and of parts that have none."""
        patterns = [part.pattern for part in self.parts]
        layers, rest = assign_by_pattern(gradient.names, patterns)
        if rank.index == 0 and rank.step == 0 and gradient.names:
            idle, names = [place for place, own in enumerate(layers) if not own], _list_names(gradient.names)
            texts = [f"no layer is left for the pattern {patterns[place]}: there are {names}" for place in idle]
            if rest and patterns:
                texts.append(f"no pattern fits {_list_names([gradient.names[index] for index in rest])}: sent densely")
            for text in texts:
                warn(f"per-layer: {text}")
        return layers, rest


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def assign_by_pattern(names: Sequence[str], patterns: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """Return the indices of the names that each pattern is the first to match, and of those that match none.

    >>> assign_by_pattern(["embed.weight", "out.weight", "bias"], ["embed*", "*.weight"])
    ([[0], [1]], [2])
    """
    groups: list[list[int]] = [[] for _ in (*patterns, "")]
    for index, name in enumerate(names):
        first = next((place for place, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), -1)
        groups[first].append(index)
    return groups[:-1], groups[-1]


class GradientWatcher:
    """A handle on a rank that records whether a program has awaited the gradient."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.awaited = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def await_gradient(self) -> None:
        """Await the gradient and record that."""
        self._rank.await_gradient()
        self.awaited = True


def run_until_gradient(watched: GradientWatcher, program: Program) -> Waits[Program]:
    """Run a program with the handle ``watched`` until it waits for the gradient; return the remaining program."""

    def ended(result: Reduced) -> Program:
        yield from ()
        return result

    def resumed(pending: Pending) -> Program:
        yield pending
        return (yield from program)

    while True:
        try:
            pending = next(program)
        except StopIteration as stop:
            return ended(stop.value)
        if watched.awaited:
            return resumed(pending)
        yield pending


_STEPS = 10_000  # Of the allowed error, in the dynamic programme

_FAMILIES: Mapping[str, tuple[Callable[[Any], Reducer], Sequence[float], int]] = {
    "powersgd": (lambda rank: low_rank.PowerSGD(rank=rank), range(2, 9), 2),
    "topk": (lambda density: topk.TopK(density, "layer"), (0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02), 2),
    "qsgd": (lambda bits: stochastic_rounding.Qsgd(bits=bits), range(2, 9), 2),
}
"""What makes a reducer of a parameter, the parameters, and the place of the usual one."""


@dataclass(slots=True)
class LGreCo(Reducer):
    """A parameter for each layer by a dynamic programme: the fewest bytes at no more error than that of the usual one.

    M. Alimohammadi et al., "L-GreCo: Layerwise-Adaptive Gradient Compression", MLSys 2024, arXiv:2210.17357, of which
    an abstract was read; read in the authors' github.com/LGrCo/L-GreCo. Once in ``every`` steps rank 0 compresses each
    layer of its gradient with each parameter, and tells all which of them have the fewest bytes with L2 norms of what
    is lost that add up to ``alpha`` times (1 there) those of the usual one at most. Layers whose parameter stays keep
    their state. The code takes the sum of 10 gradients, and has PowerSGD; densities and bits are our choice. A row has
    the parameters that suit its gradients, at the size that layers are scaled to, and each step an ``every``-th of the
    work of choosing.
    """

    compresses_all = True
    intervals: ClassVar = {"every": "[1, inf)", "alpha": "(0, inf)"}
    of: Literal["powersgd", "topk", "qsgd"] = "powersgd"
    every: int = 100
    alpha: float = 1.0

    names: list[str] = field(init=False, repr=False, default_factory=list)  # Of the layers
    chosen: list[float] = field(init=False, repr=False, default_factory=list)  # Their parameters
    # By layer: its elements where this one is a small copy, and the parameter to begin with
    elements: Mapping[str, int] = field(
        init=False, repr=False, compare=False, default_factory=dict, metadata={"fitted": True}
    )
    first: Mapping[str, float] = field(
        init=False, repr=False, compare=False, default_factory=dict, metadata={"fitted": True}
    )
    inner: PerLayer = field(init=False, repr=False, compare=False, default_factory=PerLayer)

    @property
    def traits(self) -> Traits:
        make, parameters, usual = _FAMILIES[self.of]
        return replace(self.about, feedback=make(parameters[usual]).about.feedback)

    @property
    def least_side(self) -> int:
        return int(max(_FAMILIES[self.of][1])) if self.of == "powersgd" else 0

    def sized(self, elements: Mapping[str, int]) -> Self:
        return self.variant(elements=dict(elements))

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        return self.variant(first=dict(zip(gradients[0].names, self._choose(gradients[0]), strict=True)))

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        if gradient.layers:
            names = list(gradient.names)
            if not self.chosen and self.first.keys() >= {*names}:
                self._take(names, [self.first[name] for name in names])
            elif not self.chosen or (rank.step and rank.step % self.every == 0):
                found = np.array(self._choose(gradient)) if rank.index == 0 else None
                if rank.index == 0:
                    rank.synchronise()
                told = yield from rank.broadcast(found, root=0, label="parameters")
                self._take(names, told.tolist())
            if rank.index == 0:
                tried = len(_FAMILIES[self.of][1]) * gradient.size
                rank.work(gpu_cost.encode_values(ceil(tried / self.every), 0))
        return (yield from self.inner.reduce(rank, gradient))

    def _choose(self, gradient: Gradient) -> list[float]:
        """Return the parameter of each layer by what a rank's gradient loses and sends with each."""
        if not gradient.layers:
            return []
        make, parameters, usual = _FAMILIES[self.of]
        layers = [select_layers(gradient, [index]) for index in range(len(gradient.layers))]
        tried = [make(each).with_dtype(self.held) for each in parameters]
        ran = [[_lost_and_sent(each.fresh(), layer) for each in tried] for layer in layers]
        errors, sizes = np.moveaxis(np.array(ran), 2, 0)
        # A layer of so many times the elements has so many times the squares, and bytes by its sides or its elements.
        times = np.array([self.elements.get(name, own.size) / max(own.size, 1) for name, own in gradient])[:, None]
        errors, sizes = errors * np.sqrt(times), sizes * (np.sqrt(times) if self.least_side else times)
        places = fewest_bytes(errors, sizes, self.alpha * float(errors[:, usual].sum()))
        # Rounded up, the errors of the usual choice may be above a budget that they are within.
        own_bytes = sizes[:, usual].sum() if self.alpha >= 1 else np.inf
        if not places or sizes[np.arange(len(layers)), places].sum() > own_bytes:
            places = [usual] * len(layers)
        return [parameters[place] for place in places]

    def _take(self, names: list[str], chosen: list[float]) -> None:
        make, old = _FAMILIES[self.of][0], self.inner.parts
        parts = [PatternPart(escape(name), f"{each:g}", make(each)) for name, each in zip(names, chosen, strict=True)]
        self.names, self.chosen, self.inner = names, chosen, PerLayer(tuple(parts)).with_dtype(self.held)
        for part, before in zip(self.inner.parts, old, strict=False):
            if part.text == before.text:
                part.reducer.restore(before.reducer.state())

    def state(self) -> dict[str, Any]:
        return Reducer.state(self) | {"inner": self.inner.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._take(list(state["names"]), list(state["chosen"]))
        self.inner.restore(state["inner"])


def _lost_and_sent(reducer: Reducer, gradient: Gradient) -> tuple[float, float]:
    """Return the L2 norm of what a reducer loses of a rank's gradient, and the bytes that the rank hands in."""
    for _ in range(2 if reducer.traits.carries else 1):  # Of PowerSGD's first step little comes through.
        (result,), recording = process_group.run_group([reducer], [gradient])
    lost = flat_vector(gradient).astype(np.float64) - flat_vector(result.sent())
    return float(np.sqrt(np.square(lost).sum())), float(script.payload_bytes(recording)[0])


def fewest_bytes(errors: Floats, sizes: Floats, budget: float) -> list[int]:
    """Return the parameter of each layer, in the choice of fewest bytes whose errors add up to at most a budget.

    ``errors`` and ``sizes`` are float64 of shape (layers, parameters); errors count in ten thousandths of the budget,
    rounded up. Empty if no choice is within it.

    >>> fewest_bytes(np.array([[3.0, 1.0], [3.0, 1.0]]), np.array([[1.0, 9.0], [1.0, 5.0]]), 4.0)
    [0, 1]
    """
    used = np.ceil(errors / budget * _STEPS if budget else np.where(errors, np.inf, 0)).clip(0, _STEPS + 1).astype(int)
    # Fewest bytes of the layers so far for each error at most, and by which parameter of the last of them.
    fewest, picks = np.zeros(_STEPS + 1), []
    for own_sizes, own_used in zip(sizes, used, strict=True):
        table = np.full((len(own_sizes), _STEPS + 1), np.inf)
        for row, size, error in zip(table, own_sizes, own_used, strict=True):
            row[error:] = fewest[: max(0, _STEPS + 1 - error)] + size
        picks.append(table.argmin(axis=0))
        fewest = table.min(axis=0)
    if not np.isfinite(fewest[-1]):
        return []
    left, chosen = _STEPS, []
    for pick, own_used in zip(reversed(picks), used[::-1], strict=True):
        chosen.append(int(pick[left]))
        left -= int(own_used[chosen[-1]])
    return chosen[::-1]
