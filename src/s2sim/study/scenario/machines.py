"""What a cluster's machines compute with and communicate by: as asked for, or as the topology says."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.profile import PLAIN
from s2sim.collectives.libraries.tables import IDEAL, choose_library
from s2sim.errors import S2SimWarning
from s2sim.topology.files.fields import MACHINE_FIELDS
from s2sim.topology.files.hardware import load_gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.libraries.library import Library
    from s2sim.topology.files.hardware import Gpu
    from s2sim.topology.shape import ClusterShape

# Where neither an option nor the topology says: GPU clusters run NCCL.
_USUAL_LIBRARY, _USUAL_GPU = "nccl", "a100"


@dataclass(frozen=True, slots=True)
class Machines:
    """What a cluster's machines run.

    Attributes
    ----------
    library : Library
        What executes the collectives.
    real_library : Library
        The same, or where that is ideal a real one: the topology's, or else the usual one.
    gpu : Gpu
        What encodes and decodes.
    text : str
        Library and GPU in words, and who chose them.
    """

    library: Library
    real_library: Library
    gpu: Gpu
    text: str


def resolve_machines(
    shape: ClusterShape,
    overrides: Sequence[str],
    library: str | None = None,
    gpu: str | None = None,
    *,
    latency_holds_library: bool = False,
) -> Machines:
    """Return what options ask for, and without them (None) what the topology says.

    Libraries run by their constants where the topology says its network, unless its latencies are meant to hold a
    library's (``latency_holds_library``) or something else was asked for.

    >>> from s2sim.topology.files.catalogue import load_shape
    >>> resolve_machines(load_shape("torus"), (), gpu="rtx-2080").text
    'library ideal, as torus says; GPU rtx-2080, as asked for'
    """

    def choose(text: str) -> Library:
        chosen = choose_library(text)
        return chosen if latency_holds_library else chosen.on(shape)

    said_library = shape.library or _USUAL_LIBRARY
    taken = choose(said_library if library is None else library)
    card = load_gpu((shape.gpu or _USUAL_GPU) if gpu is None else gpu)
    real = taken
    if real == IDEAL:
        real = choose(_USUAL_LIBRARY if said_library == IDEAL.name else said_library)
    asked = {"library": library, "gpu": gpu}
    for override, field in _of_machines(overrides):
        if asked[field] is not None:
            text = f"--set {override} changes nothing beside --{field} {asked[field]}: leave one out"
            warnings.warn(text, S2SimWarning, stacklevel=4)
    chosen_by = {
        f"library {taken.option_string}{_assumed(taken, shape)}": _chosen_by(shape, library, shape.library),
        f"GPU {card.name}": _chosen_by(shape, gpu, shape.gpu),
    }
    texts = [
        f"{' and '.join(what for what, who in chosen_by.items() if who == each)}, {each}"
        for each in dict.fromkeys(chosen_by.values())
    ]
    return Machines(taken, real, card, "; ".join(texts))


def _assumed(library: Library, shape: ClusterShape) -> str:
    """Return what is taken for granted of a library, in brackets; nothing of the ideal one."""
    if library == IDEAL:
        return ""
    return " (the wire alone)" if library.profile == PLAIN else f" ({library.profile.assumed(shape)})"


def _chosen_by(shape: ClusterShape, asked: str | None, said: str | None) -> str:
    if asked is not None:
        return "as asked for"
    return f"as {shape.name} says" if said else f"by default, as {shape.name} does not say"


def warn_of_machines(overrides: Sequence[str]) -> None:
    """Warn of each override of the topology's library or GPU where nothing runs on either."""
    for override, _ in _of_machines(overrides):
        text = f"--set {override} changes nothing here: no GPU encodes, and collectives run as asked"
        warnings.warn(text, S2SimWarning, stacklevel=4)


def _of_machines(overrides: Sequence[str]) -> list[tuple[str, str]]:
    fields = [(override, override.partition("=")[0].strip()) for override in overrides]
    return [(override, field) for override, field in fields if field in MACHINE_FIELDS]
