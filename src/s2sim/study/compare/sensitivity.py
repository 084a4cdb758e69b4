"""Whether constants of the hardware that are only estimated decide the choice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.study.compare.choice import choose
from s2sim.study.measuring.verdict_row import Flip
from s2sim.study.scenario.estimates import estimates_of, taken_text, with_constant
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.reducers.scripts.script import Recording
    from s2sim.study.compare.choice import Candidate, Choice
    from s2sim.study.measuring.executed import Executed
    from s2sim.topology.files.hardware import Gpu


def find_flips(
    candidates: Sequence[Candidate], executed: Sequence[Executed], choice: Choice, max_error: float | None
) -> tuple[Flip, ...]:
    """Return the estimated constants of the GPU with which another choice is made, each at the end where it is.

    Parameters
    ----------
    candidates, executed : sequences of Candidate and Executed
        One a reducer, in one order, as the constants were taken.
    choice : Choice
        What was chosen of them.
    max_error : float or None
        As `choose` takes it.
    """
    scenario = executed[0].scenario
    flips = []
    for constant, value, gpu in _others(scenario.gpu, [one.recording for one in executed]):
        again = replace(scenario, machines=replace(scenario.machines, gpu=gpu))
        times_s: dict[object, float] = {}
        varied = []
        for each, one in zip(candidates, executed, strict=True):
            if each.baseline or each.rejected:
                varied.append(each)
                continue
            # Reducers that leave everything to another have its recordings, and take as long.
            same = (one.timer, *(id(leaving.recording) for leaving in one.leaving))
            if same not in times_s:
                times_s[same] = _time_s(replace(one, scenario=again))
            varied.append(replace(each, time_s=times_s[same]))
        best = outcome(choose(varied, max_error))
        if best != outcome(choice):
            flips.append(Flip(constant, value, taken_text(scenario.gpu, constant), best))
    return tuple(flips)


def outcome(choice: Choice) -> str:
    """Return in a word what a choice comes to: an option string, ``dense`` for no compression, or ``undecided``."""
    if choice.decision == "undecided":
        return choice.decision
    return "dense" if choice.best.baseline else choice.best.name


def _time_s(executed: Executed) -> float:
    return executed.judged_ps / PS_PER_S


def _others(gpu: Gpu, recordings: Sequence[Recording]) -> Iterator[tuple[str, str, Gpu]]:
    """Yield the name of each estimated constant, what it may be, and the GPU with that."""
    for constant, ends in estimates_of(gpu, recordings).items():
        for value in ends:
            yield constant, value, with_constant(gpu, constant, value)
