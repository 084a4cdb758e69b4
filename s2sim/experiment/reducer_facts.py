"""Facts of every reducer, from its declarations and one run of it."""

import dataclasses
import inspect
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from itertools import groupby
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from s2sim.errors import S2SimError, S2SimWarning
from s2sim.experiment.json_form import JsonForm
from s2sim.gradients.gradient import Gradient
from s2sim.options import value_text
from s2sim.reducers.catalogue import option_text
from s2sim.reducers.registry import PRESETS, REDUCERS, make_reducer, reducer_names, resolved_options
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Recording, count_rounds
from s2sim.reducers.wrappers.error_feedback import Feedback

_SECTION = re.compile(r"^(Attributes|Parameters|Examples|Raises|Notes)\n-+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OptionDoc:
    """An option of a class."""

    # name, type, text: as its class, or one that this class is derived from, documents it; in one line each
    name: str
    type: str
    default: str  # As option strings have it; ``none`` where nothing is given by default
    text: str


def describe_class(cls: type) -> tuple[str, ...]:
    """Return the paragraphs of a class's docstring before its options, one line each."""
    text = _SECTION.split(inspect.getdoc(cls) or "", maxsplit=1)[0]
    return tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())


def describe_options(cls: type) -> tuple[OptionDoc, ...]:
    """Return the options of a dataclass, in the order of its fields.

    >>> from s2sim.reducers.systems.topk import TopKA2A
    >>> [(option.name, option.default) for option in describe_options(TopKA2A)]
    [('density', '0.01'), ('calls', 'separate')]
    """
    documented: dict[str, tuple[str, str]] = {}
    for base in reversed(cls.__mro__):
        documented |= _attribute_docs(base)
    hints = get_type_hints(cls)
    found = []
    for item in dataclasses.fields(cls):
        if item.init:
            type_text, text = documented.get(item.name, ("", ""))
            if (own_text := option_text(cls, item)) is not None:
                type_text, text = _type_text(hints[item.name]), own_text
            default = "none" if item.default is MISSING or item.default is None else value_text(item.default)
            found.append(OptionDoc(item.name, type_text, default, text))
    return tuple(found)


def _type_text(kind: Any) -> str:
    """Return a type as numpydoc has it.

    >>> _type_text(Literal["fp32", "bf16"] | None), _type_text(float)
    ('{"fp32", "bf16"}, optional', 'float')
    """
    if get_origin(kind) in (Union, UnionType):
        return f"{_type_text(get_args(kind)[0])}, optional"
    if get_origin(kind) is Literal:
        return "{" + ", ".join(map(json.dumps, get_args(kind))) + "}"
    return str(getattr(kind, "__name__", kind))


def _attribute_docs(cls: type) -> dict[str, tuple[str, str]]:
    """Return type and description of the entries of the section "Attributes" of a class's own docstring."""
    _, _, section = inspect.cleandoc(cls.__doc__ or "").partition("Attributes\n----------\n")
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for line in _SECTION.split(section, maxsplit=1)[0].splitlines():
        if (entry := re.match(r"^(\w+(?:, \w+)*) : (.+)$", line)) is not None:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, (entry[2], ""))
        elif line.startswith(" "):
            for name in names:
                kind, words = found[name]
                found[name] = kind, f"{words} {line.strip()}".strip()
    return found


# What all ranks hand in is as long as what comes out, however many they are.
_COMBINES = frozenset(("all_reduce", "reduce", "reduce_scatter", "broadcast"))


@dataclass(frozen=True, slots=True)
class FirstStepFacts:
    """The traffic of the first step of a reducer."""

    linear: bool  # Whether nothing but sums and the like travels, so that no message grows with the number of ranks
    # In the order in which they are posted, one after the other of a kind as one with their number
    collectives: tuple[str, ...]
    rounds: int  # Messages that wait for one another
    rounds_grow: bool  # Whether they are more with twice as many ranks
    host_syncs: int  # Times that the host waits for the GPU


@dataclass(frozen=True, slots=True)
class ReducerFacts(JsonForm):
    """The facts of a reducer with default options, by its name."""

    name: str  # Of a reducer or a preset
    stands_for: str | None  # Option string that a preset stands for
    # summary, source, certainty: what it is, who published it, and how that is known, as `Traits.certainty` has it
    summary: str
    source: str
    certainty: str
    formula: str  # Bytes that a rank sends: n elements, k kept, P ranks, L layers
    feedback: str  # Whether training needs error feedback around it
    lossless: bool  # Whether its aggregate is exact but for rounding
    estimates: str  # What ranks end with
    agrees: bool  # Whether all ranks end with the same
    scope: str  # Whether it runs on every bucket of gradients by itself, or waits for the whole gradient
    measured: FirstStepFacts | None  # What its first step is made of; None where it refuses the gradients
    paragraphs: tuple[str, ...]  # What its docstring says
    options: tuple[OptionDoc, ...]  # Its own, without those of wrappers


def all_reducer_facts(gradients: Sequence[Gradient]) -> tuple[ReducerFacts, ...]:
    """Return the facts of every name, measured on gradients of an even number of ranks, on two nodes."""
    return tuple(reducer_facts(name, gradients) for name in reducer_names())


def reducer_facts(name: str, gradients: Sequence[Gradient]) -> ReducerFacts:
    """Return the facts of one name; `UnknownNameError` names the nearest."""
    cls = REDUCERS.get(resolved_options(name)[0])
    preset = PRESETS.get(name)
    traits = make_reducer(name).traits
    told = traits if preset is None else preset
    return ReducerFacts(
        name=name,
        stands_for=None if preset is None else preset.option_string,
        summary=told.summary,
        source=told.source,
        certainty=told.certainty,
        formula=traits.formula,
        feedback="own" if isinstance(make_reducer(name), Feedback) else traits.feedback,
        lossless=traits.lossless,
        estimates=traits.estimates,
        agrees=traits.agrees,
        scope=traits.scope,
        measured=_measure(name, gradients),
        paragraphs=describe_class(cls),
        options=describe_options(cls),
    )


def _measure(name: str, gradients: Sequence[Gradient]) -> FirstStepFacts | None:
    few, many = _run(name, gradients[: len(gradients) // 2]), _run(name, gradients)
    if (recording := few or many) is None:
        return None
    found, larger = count_rounds(recording), count_rounds(many or recording)
    rounds = found.before_gradient + found.after_gradient
    return FirstStepFacts(
        linear=all(call.kind in _COMBINES for call in recording.calls),
        collectives=tuple(_collectives(recording)),
        rounds=rounds,
        rounds_grow=larger.before_gradient + larger.after_gradient > rounds,
        host_syncs=found.host_syncs,
    )


def _run(name: str, gradients: Sequence[Gradient]) -> Recording | None:
    ranks = len(gradients)
    reducer = make_reducer(name).placed([2 * rank // ranks for rank in range(ranks)])
    with warnings.catch_warnings(action="ignore", category=S2SimWarning):
        # The user has chosen neither options nor gradients.
        try:
            return run_reducer(reducer.fitted(gradients, 0), gradients).recording
        except S2SimError:
            return None


def _collectives(recording: Recording) -> list[str]:
    """Return the collectives of a rank that takes part in most."""
    ranks = range(recording.workers)
    own = max(([call for call in recording.calls if not call.ranks or rank in call.ranks] for rank in ranks), key=len)
    kinds = groupby("exchange" if call.op == "peers" else call.kind.replace("_", "-") for call in own)
    counts = ((kind, len(list(same))) for kind, same in kinds)
    return [kind if count == 1 else f"{count} {kind}" for kind, count in counts]
