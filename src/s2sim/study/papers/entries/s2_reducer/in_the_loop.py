"""S2 Reducer in the loop: the accuracy that its authors' code never put to the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.papers.in_loop import Loop, loop_part, loss_claim

if TYPE_CHECKING:
    from s2sim.study.papers.paper import Effort, Part
    from s2sim.study.progress import Progress

_REDUCERS = {
    "union": "union",
    "S2, authors": "s2:preset=authors-lstm,ef=false",
    "S2, authors, with feedback": "s2:preset=authors-lstm,ef=true",
    "S2, repaired": "s2:rows=3,cells=4,ef=false",
    "S2, repaired, with feedback": "s2:rows=3,cells=4,ef=true",
    "S2, exact": "s2-exact",
}
_SAME = 0.01
_WHY = {
    "S2, authors": "cells for a thousandth of the values: the optimizer steps by noise",
    "S2, authors, with feedback": "feedback adds up errors that are larger than the gradient",
    "S2, repaired": "what is read from three rows is off by some per cent",
    "S2, repaired, with feedback": "rows are off by some per cent; what is fed back fills ever more of them",
    "S2, exact": "every value comes back but for float32's rounding of a sum",
}


def in_the_loop(effort: Effort, progress: Progress) -> Part:
    """Return the accuracy claim for every setting."""
    loop = Loop(
        "lstm-lm:width=32,sequences=8,length=16",
        _REDUCERS,
        workers=4,
        steps=50 if effort.quick else 400,
        seeds=3,
        reads_text=True,
    )
    texts = {name: f"same accuracy in the loop: {name}" for name in _WHY}
    source = "abstract; accuracy of the paper not read"
    return loop_part(
        loop,
        progress,
        [(text, "abstract", "no loss") for text in texts.values()],
        lambda found: [
            loss_claim(found, name, _SAME, texts[name], source, "no loss", why) for name, why in _WHY.items()
        ],
    )
