"""The disciplines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.options import build, split_option_string
from s2sim.registry import Registry

if TYPE_CHECKING:
    from s2sim.replay.iteration.disciplines.discipline import Discipline

_HERE = "s2sim.replay.iteration.disciplines"

DISCIPLINES = Registry(
    "discipline",
    "s2sim.disciplines",
    {
        "after-backward": f"{_HERE}.after_backward:AfterBackward",
        "per-tensor": f"{_HERE}.per_tensor:PerTensor",
        "ddp": f"{_HERE}.ddp:Ddp",
        "mg-wfbp": f"{_HERE}.mg_wfbp:MgWfbp",
        "topka2a": f"{_HERE}.topka2a:TopKA2A",
        "two-priorities": f"{_HERE}.two_priorities:TwoPriorities",
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
