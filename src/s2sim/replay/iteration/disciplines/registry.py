"""The disciplines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.options import build, split_option_string
from s2sim.registry import Registry

if TYPE_CHECKING:
    from s2sim.replay.iteration.disciplines.discipline import Discipline

DISCIPLINES = Registry(
    "discipline",
    "s2sim.disciplines",
    {
        "after-backward": "s2sim.replay.iteration.disciplines.after_backward:AfterBackward",
        "per-tensor": "s2sim.replay.iteration.disciplines.per_tensor:PerTensor",
        "ddp": "s2sim.replay.iteration.disciplines.ddp:Ddp",
        "mg-wfbp": "s2sim.replay.iteration.disciplines.mg_wfbp:MgWfbp",
        "topka2a": "s2sim.replay.iteration.disciplines.topka2a:TopKA2A",
        "two-priorities": "s2sim.replay.iteration.disciplines.two_priorities:TwoPriorities",
    },
)


def make_discipline(text: str) -> Discipline:
    """Return the discipline of an option string.

    >>> make_discipline("ddp:bucket=50MiB").bucket.bytes
    52428800
    """
    name, options = split_option_string(text)
    discipline: Discipline = build(DISCIPLINES.get(name), options, name)
    return discipline
