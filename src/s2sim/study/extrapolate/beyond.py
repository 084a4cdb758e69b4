"""Runs beyond what was recorded: more ranks, more parameters, and the mark that every such row carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.gradients.extrapolation.law import LAW
from s2sim.gradients.extrapolation.law_ranks import MoreRanks
from s2sim.gradients.extrapolation.models import Model
from s2sim.gradients.extrapolation.scaling import SIZE_LAW, scale_to, scale_to_model
from s2sim.study.extrapolate.hold_out import HoldOut, hold_out
from s2sim.study.extrapolate.scaled_scripts import record_scaled
from s2sim.study.measuring.record import Recorded, record
from s2sim.study.measuring.row_parts import Extrapolation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.gradients.extrapolation.scaling import Scaling
    from s2sim.gradients.gradient import Gradient
    from s2sim.study.measuring.result import Row
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario

# The check predicts a whole from its half.
_CHECKED_REACH = 2


def make_scaling(target: Model | int | None, like: Gradient, workers: int) -> Scaling | None:
    """Return how to get the scripts of the size that is asked for from gradients such as ``like``, if any is."""
    if isinstance(target, Model):
        return scale_to_model(target, like, workers)
    return None if target is None else scale_to(target, like)


def record_as_asked(
    scenario: ReducerScenario,
    gradients: Sequence[Gradient],
    earlier: Sequence[Gradient] | None,
    *,
    forgiving: bool,
    on_reducer: Callable[[], None] = lambda: None,
) -> list[Recorded]:
    """Run each reducer on the gradients, one a rank; its scripts have the size that is asked for.

    Warm ones carry over from ``earlier``; where sizes are scaled, from the same gradients.
    """
    reducers, seed = scenario.reducers, scenario.seed
    scaling = make_scaling(scenario.target, gradients[0], len(gradients))
    if scaling is None:
        return record(reducers, gradients, seed=seed, earlier=earlier, forgiving=forgiving, on_reducer=on_reducer)
    return record_scaled(reducers, gradients, scaling, seed=seed, on_reducer=on_reducer)


@dataclass(frozen=True, slots=True, eq=False)
class Beyond:
    """How far a run goes beyond what was recorded, and what the check of its law found.

    Attributes
    ----------
    recorded_ranks : int
        Ranks that the trace has.
    workers : int
        Most ranks of the run.
    from_parameters, to_parameters : int
        Parameters of the trace and of the run.
    model : str or None
        Model whose layers were asked for.
    checks : tuple of HoldOut
        One a reducer.
    notes : tuple of str
        What a reader must know.
    """

    recorded_ranks: int
    workers: int
    from_parameters: int
    to_parameters: int
    model: str | None
    checks: tuple[HoldOut, ...]
    notes: tuple[str, ...]

    @property
    def scaled(self) -> bool:
        """Whether sizes were scaled."""
        return self.to_parameters != self.from_parameters or self.model is not None

    def mark(self, row: Row) -> Extrapolation | None:
        """Return the mark of a row; None if all of it was recorded."""
        more = row.workers > self.recorded_ranks
        if not more and not self.scaled:
            return None
        check = next(check for check in self.checks if check.reducer == row.option_string)
        return Extrapolation(
            law="; ".join([*([LAW] if more else []), *([SIZE_LAW] if self.scaled else [])]),
            from_workers=min(row.workers, self.recorded_ranks),
            to_workers=row.workers,
            from_parameters=self.from_parameters,
            to_parameters=self.to_parameters,
            model=self.model,
            hold_out=check.what,
            hold_out_error_bytes=check.error_bytes,
            hold_out_error_time=check.error_time,
        )

    def sentence(self) -> str:
        """Return in one sentence how far the run reaches and what the check found."""
        reach = []
        if self.workers > self.recorded_ranks:
            reach.append(f"{self.workers} workers from {self.recorded_ranks} recorded ranks")
        if self.scaled:
            reach.append(f"{self.to_parameters} parameters{self._of_model()} from {self.from_parameters} recorded ones")
        worst = max(self.checks, key=lambda check: abs(check.error_bytes))
        slowest = max(abs(check.error_time) for check in self.checks)
        return (
            f"extrapolated: {' and '.join(reach)}; where {worst.what}, bytes are off by at most "
            f"{abs(worst.error_bytes):.1%} ({worst.reducer}) and times by at most {slowest:.1%}"
        )

    def _of_model(self) -> str:
        return "" if self.model is None else f" of {self.model}"


def look_beyond(scenario: ReducerScenario, workers: int, progress: Progress) -> Beyond | None:
    """Return what of a run is extrapolated, after checking its law on a held-back half; None if all was recorded."""
    trace, asked = scenario.trace, scenario.target
    recorded_ranks = trace.source.world_size if isinstance(trace, MoreRanks) else trace.world_size
    scaling = make_scaling(asked, trace.gradient(0, 0), workers)
    if workers <= recorded_ranks and scaling is None:
        return None
    progress.start(1, "predicting what was held back")
    ranks = min(workers, recorded_ranks)
    checks = hold_out(scenario, ranks)
    notes: tuple[str, ...] = () if scaling is None else scaling.notes
    if workers > recorded_ranks:
        notes = (f"ranks beyond the {recorded_ranks} recorded ones are drawn: {LAW}", *notes)
    if workers > _CHECKED_REACH * recorded_ranks:
        further = (
            f"the check predicts twice the ranks, this run goes to {workers / recorded_ranks:.3g} times as many: "
            "s2sim trace show tells how far off the law is further out"
        )
        notes = (*notes, further)
    parameters = trace.manifest.parameters
    target = parameters if scaling is None else scaling.parameters
    model = asked.name if isinstance(asked, Model) else None
    return Beyond(recorded_ranks, workers, parameters, target, model, checks, notes)
