"""A reducer for each pattern of layer names: sketches on tables, say, and low rank on the rest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import lcm
from typing import Any, Self, cast

from s2sim.errors import OptionError, S2SimWarning
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.shared.layers import merge_layers, run_interleaved, select_layers
from s2sim.reducers.systems.dense import Dense

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

    takes_reducers = True
    parts: tuple[PatternPart, ...] = option((), "Patterns and reducers, in the order in which they are tried.")

    about = Traits(
        name="per-layer",
        summary="a reducer for each pattern of layer names, side by side; all else densely",
        source="no system: combines others",
        formula="those of its parts",
        certainty="code read",
    )

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
        ahead_of_it = [part for part in self.parts if part.reducer.traits.before_gradient]
        if len(ahead_of_it) > 1:
            named = " and ".join(f"{part.pattern}={part.text}" for part in ahead_of_it)
            raise OptionError(f"per-layer: {named} both begin before there is a gradient: give them one pattern")
        self.parts = tuple(replace(part, reducer=part.reducer.fresh()) for part in self.parts)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Start the parts, those first that do not need the gradient yet, and put their means together."""
        layers, rest = self._assigned(rank, gradient)
        chosen = [(part.reducer, own) for part, own in zip(self.parts, layers, strict=True) if own]
        if rest or not chosen:
            chosen.append((Dense().with_dtype(self.held), rest))
        chosen.sort(key=lambda each: not each[0].traits.before_gradient)
        programs = []
        for reducer, own in chosen:
            handle = GradientWatcher(rank)
            program = reducer.reduce(cast("Rank", handle), select_layers(gradient, own))
            if reducer.traits.before_gradient:
                program = yield from run_until_gradient(handle, program)
            programs.append(program)
        found = yield from run_interleaved(programs)
        indices = [own for _, own in chosen]

        def mean() -> Gradient:
            return merge_layers(zip(indices, (each.mean for each in found), strict=True), gradient)

        def sent() -> Gradient:
            return merge_layers(zip(indices, (each.sent() for each in found), strict=True), gradient)

        return Reduced(rank.replicated(mean) if self.traits.agrees else mean(), sent)

    def learn(self, rank: Rank, gradient: Gradient) -> Generator[Pending, None, None]:
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
            estimates=next((name for name in ("weights", "shards", "sign") if name in estimates), "mean"),
            feedback=next((name for name in ("needed", "own") if name in feedback), "no"),
            adds_up=all(traits.adds_up for traits in each),
            scope="gradient" if any(traits.scope == "gradient" for traits in each) else "bucket",
        )

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return what the parts compress."""
        layers, _ = assign_by_pattern(gradient.names, [part.pattern for part in self.parts])
        found: list[int] = []
        for part, own in zip(self.parts, layers, strict=True):
            found += [own[index] for index in part.reducer.compresses(select_layers(gradient, own))] if own else []
        return tuple(sorted(found))

    @property
    def least_side(self) -> int:
        """The longest that a part needs."""
        return max((part.reducer.least_side for part in self.parts), default=0)

    def alignment(self, ranks: int) -> int:
        """Return what holds for all parts."""
        return lcm(*(part.reducer.alignment(ranks) for part in self.parts))

    def layer_classes(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return by which pattern each layer is taken; those that none fits come last."""
        layers, rest = assign_by_pattern(names, [part.pattern for part in self.parts])
        found = {index: place for place, own in enumerate([*layers, rest]) for index in own}
        return tuple(found[index] for index in range(len(names)))

    def with_dtype(self, dtype: GradientDtype) -> Self:
        """Return a fresh instance whose parts are for gradients of this type."""
        return self._map(lambda _, reducer: reducer.with_dtype(dtype), held=dtype)

    def placed(self, nodes: Sequence[int]) -> Self:
        """Return the same with parts that know which ranks share a node."""
        return self._map(lambda _, reducer: reducer.placed(nodes))

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        """Return the same with parts that are sized for their layers."""
        layers, _ = assign_by_pattern(gradients[0].names, [part.pattern for part in self.parts])
        return self._map(
            lambda place, reducer: (
                reducer.fitted([select_layers(gradient, layers[place]) for gradient in gradients], seed)
                if layers[place]
                else reducer
            )
        )

    def sized(self, elements: Mapping[str, int]) -> Self:
        """Return the same with parts that run on small copies of their layers."""
        names = tuple(elements)
        layers, _ = assign_by_pattern(names, [part.pattern for part in self.parts])
        return self._map(
            lambda place, reducer: reducer.sized({names[index]: elements[names[index]] for index in layers[place]})
        )

    def state(self) -> dict[str, Any]:
        """Return what the parts carry, by their places."""
        return {str(place): part.reducer.state() for place, part in enumerate(self.parts)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the states of the parts."""
        for place, part in enumerate(self.parts):
            part.reducer.restore(state.get(str(place), {}))

    def notes(self) -> tuple[str, ...]:
        """Return those of the parts, and whether there is none."""
        if not self.parts:
            return ("no pattern was given, so that all layers are sent densely",)
        return tuple(f"{part.pattern}: {note}" for part in self.parts for note in part.reducer.notes())

    def later_options(self) -> tuple[str, ...]:
        """Return those of the parts."""
        return tuple(f"{option} of {part.pattern}" for part in self.parts for option in part.reducer.later_options())

    def written(self) -> dict[str, str]:
        """Return the patterns with their reducers."""
        return {part.pattern: part.text for part in self.parts}

    def options(self) -> dict[str, Any]:
        """Return the patterns with their reducers, in order."""
        return {"layers": ",".join(f"{part.pattern}={part.text}" for part in self.parts)}

    def _map(self, change: Callable[[int, Reducer], Reducer], **fitted: Any) -> Self:
        parts = [replace(part, reducer=change(place, part.reducer)) for place, part in enumerate(self.parts)]
        return self.variant(parts=tuple(parts), **fitted)

    def _assigned(self, rank: Rank, gradient: Gradient) -> tuple[list[list[int]], list[int]]:
        """Return the layers of each part and those of none; warn of these, and of parts that have none."""
        patterns = [part.pattern for part in self.parts]
        layers, rest = assign_by_pattern(gradient.names, patterns)
        texts = []
        if rank.index == 0 and rank.step == 0 and gradient.names:
            for pattern, own in zip(patterns, layers, strict=True):
                if not own:
                    texts.append(f"no layer is left for the pattern {pattern}: there are {_list_names(gradient.names)}")
            if rest and patterns:
                texts.append(f"no pattern fits {_list_names([gradient.names[index] for index in rest])}: sent densely")
        for text in texts:
            warnings.warn(f"per-layer: {text}", S2SimWarning, stacklevel=2)
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


def run_until_gradient(watched: GradientWatcher, program: Program) -> Generator[Pending, None, Program]:
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
