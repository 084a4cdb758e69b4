"""What a training tells: curves, what each reducer needs to reach the target, and an answer in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from s2sim.study.convergence.intervals import ratio_interval, t_interval
from s2sim.study.progress import INTERRUPTED_NOTE
from s2sim.study.result_form import ResultForm

if TYPE_CHECKING:
    from s2sim.study.convergence.curve import Curve, Reached, Target
    from s2sim.study.convergence.intervals import Interval
    from s2sim.study.convergence.spec import TrainSpec


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One reducer over all seeds."""

    reducer: str  # By its option string
    # What is fed back of what was not sent: ``ef`` and its like, ``own`` of the reducer itself, or ``none``.
    feedback: str
    # trained, seeds: Seeds with which it was trained, and those of them that took all steps.
    trained: int
    seeds: int
    stopped: tuple[str, ...]  # Why others did not
    # loss, accuracy: On held-out data after the last step; None where a seed did not get there.
    loss: Interval | None
    accuracy: Interval | None
    # step_s, step_bytes: Mean over the steps: simulated time, and bytes that the busiest rank sends.
    step_s: Interval
    step_bytes: Interval
    reached: int  # Seeds with which the target was reached
    # iterations, time_s, sent_bytes: Until it was, where it was with every seed.
    iterations: Interval | None
    time_s: Interval | None
    sent_bytes: Interval | None
    # time_ratio, bytes_ratio: The same over dense's, seed by seed.
    time_ratio: Interval | None
    bytes_ratio: Interval | None


@dataclass(frozen=True, slots=True)
class Trained(ResultForm):
    """The answer of `s2sim.study.convergence.run.train`.

    Attributes
    ----------
    spec : TrainSpec
        What was asked.
    headline : str
        Model, cluster and machines in a line.
    score : str
        What accuracy is the share of.
    target : Target or None
        What was to be reached; None where dense reached nothing.
    target_why : str
        Who chose it.
    rows : tuple of TrainRow
        One a reducer, dense first.
    curves : tuple of Curve
        One a reducer and seed.
    verdict : tuple of str
        The answer, a line a reducer.
    compute_why : str
        What a rank computes in a step, and where that is from.
    notes : tuple of str
        What is to be known.
    provenance : dict
        The run record.
    """

    answers: ClassVar[str] = "train"

    spec: TrainSpec
    headline: str
    score: str
    target: Target | None
    target_why: str
    rows: tuple[TrainRow, ...]
    curves: tuple[Curve, ...]
    verdict: tuple[str, ...]
    compute_why: str
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def complete(self) -> bool:
        """Whether nobody interrupted it."""
        return INTERRUPTED_NOTE not in self.notes


def make_row(
    reducer: str,
    feedback: str,
    curves: dict[int, Curve],
    reaches: dict[int, Reached | None],
    base: dict[int, Reached | None],
    steps: int,
) -> TrainRow:
    """Return the row of a reducer: its curves and when they reach the target by seed, beside dense's."""
    whole = [each for each in curves.values() if len(each.step_loss) >= steps and not each.stopped]
    finished = whole if len(whole) == len(curves) else []
    there = {seed: found for seed, found in reaches.items() if found is not None}
    every = list(there.values()) if len(there) == len(curves) else []
    pairs = [(found, base[seed]) for seed, found in there.items() if base.get(seed) is not None] if every else []
    own, other = [one for one, _ in pairs], [beside for _, beside in pairs if beside is not None]
    step_s = t_interval([float(each.step_s.mean()) for each in curves.values() if len(each.step_s)])
    step_bytes = t_interval([float(each.step_bytes.mean()) for each in curves.values() if len(each.step_s)])
    assert step_s is not None
    assert step_bytes is not None
    return TrainRow(
        reducer=reducer,
        feedback=feedback,
        trained=len(curves),
        seeds=len(whole),
        stopped=tuple(f"seed {seed}: {each.stopped}" for seed, each in curves.items() if each.stopped),
        loss=t_interval([float(each.eval_loss[-1]) for each in finished]),
        accuracy=t_interval([float(each.accuracy[-1]) for each in finished]),
        step_s=step_s,
        step_bytes=step_bytes,
        reached=len(there),
        iterations=t_interval([each.iterations for each in every]),
        time_s=t_interval([each.time_s for each in every]),
        sent_bytes=t_interval([each.sent_bytes for each in every]),
        time_ratio=ratio_interval([each.time_s for each in own], [each.time_s for each in other]),
        bytes_ratio=ratio_interval([each.sent_bytes for each in own], [each.sent_bytes for each in other]),
    )
