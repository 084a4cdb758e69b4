"""What there is to choose from, as (name, summary, source) by kind."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.collectives.libraries.library import Library
    from s2sim.registry import Registry

    Entries = list[tuple[str, str, str]]


def _registered(registry: Registry, describe: Callable[[Any], str]) -> Entries:
    entries = [(name, registry.get(name)) for name in registry.names()]
    return [(name, describe(entry), entry.source) for name, entry in entries]


def _reducers() -> Entries:
    from s2sim.reducers.registry import REDUCERS
    from s2sim.reducers.systems.presets import PRESETS

    abouts = [(name, REDUCERS.get(name).about) for name in REDUCERS.names()]
    presets = [(name, f"{item.summary} (is {item.option_string})", item.source) for name, item in PRESETS.items()]
    return [*((name, about.summary, about.source) for name, about in abouts), *presets]


def _codecs() -> Entries:
    from s2sim.codecs.registry import CODECS

    return _registered(CODECS, lambda codec: str(codec.summary))


def _collectives() -> Entries:
    from s2sim.collectives.algorithms.registry import ALGORITHMS

    def describe(algorithm: Any) -> str:
        # The first sentence of the documentation says what it is.
        what = (inspect.getdoc(algorithm) or "").partition("\n")[0].rstrip(".")
        return f"{what}; runs {', '.join(algorithm.kinds)}"

    return _registered(ALGORITHMS, describe)


def _libraries() -> Entries:
    from s2sim.collectives.libraries.tables import LIBRARIES

    def describe(library: Library) -> str:
        options = "; ".join(f"{key}={'|'.join(values)}" for key, values in library.options)
        return f"{library.summary}{f'; options {options}' if options else ''}"

    return [(library.name, describe(library), library.source) for library in LIBRARIES.values()]


def _faults() -> Entries:
    from s2sim.replay.faults.registry import FAULTS

    def describe(fault: Any) -> str:
        what = (inspect.getdoc(fault) or "").partition("\n")[0].rstrip(".")
        return f"{what}; options {', '.join(field.name for field in dataclasses.fields(fault))}"

    return [(name, describe(fault), fault.example) for name, fault in FAULTS.items()]


def _disciplines() -> Entries:
    from s2sim.replay.iteration.disciplines.registry import DISCIPLINES

    def describe(discipline: Any) -> str:
        options = ", ".join(field.name for field in dataclasses.fields(discipline))
        return f"{discipline.summary}{f'; options {options}' if options else ''}"

    return _registered(DISCIPLINES, describe)


def _topologies() -> Entries:
    from s2sim.topology.files.catalogue import list_topologies

    return list_topologies()


def _traces() -> Entries:
    from s2sim.gradients.traces.shipped import shipped_traces

    return shipped_traces()


def _models() -> Entries:
    from s2sim.gradients.extrapolation.models import list_models

    return list_models()


def _profiles() -> Entries:
    from s2sim.profiles.read import list_profiles

    return list_profiles()


def _parts(kind: str) -> Entries:
    from s2sim.topology.files.parts import list_parts

    return list_parts(kind)


KINDS: dict[str, Callable[[], Entries]] = {
    "reducers": _reducers,
    "codecs": _codecs,
    "collectives": _collectives,
    "libraries": _libraries,
    "faults": _faults,
    "disciplines": _disciplines,
    "topologies": _topologies,
    "traces": _traces,
    "models": _models,
    "profiles": _profiles,
    "gpus": lambda: _parts("gpus"),
    "nics": lambda: _parts("nics"),
    "switches": lambda: _parts("switches"),
    "transports": lambda: _parts("transports"),
}


def group_of(kind: str, name: str) -> str | None:
    """Return under which heading an entry of a kind stands; None where the kind has no headings."""
    if kind != "topologies":
        return None
    from s2sim.topology.files.shipped import group_of_topology

    return group_of_topology(name) or "installed"


HARDWARE = ("gpus", "nics", "switches", "transports")
"""Those of the hardware catalogue, which are listed together under this name."""
