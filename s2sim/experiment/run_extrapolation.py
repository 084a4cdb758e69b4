"""Extrapolated runs: more ranks, more parameters, and the mark of every such row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log

from s2sim.collectives.timing.timer import Timer
from s2sim.experiment.hold_out import HoldOut, PhaseCheck, check_extrapolation, measure_transfers
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.experiment.record import Gradients, RecordedReducer, describe_gradients, record
from s2sim.experiment.row_parts import Extrapolation, Refused, Transfer, worst_factor
from s2sim.experiment.rows import Row
from s2sim.experiment.scaled_buckets import record_scaled_buckets
from s2sim.experiment.scaled_scripts import record_scaled
from s2sim.experiment.scenario.reducers import ReducerScenario, ReducerSpec
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.law import LAW
from s2sim.gradients.models import Model
from s2sim.gradients.scaling import SIZE_LAW, Scaling, scale_to, scale_to_model
from s2sim.reducers.run import OtherSteps
from s2sim.simulation.bucketing.policy import Bucket
from s2sim.units import format_count

# The check predicts a whole from its half.
_CHECKED_REACH = 2
# Sizes grow alike at any number of ranks.
_RANKS_TO_CHECK_SIZES = 8
# A factor that is told as none.
_NEGLIGIBLE_FACTOR = 1.01
# One that percents tell better.
_SMALL_FACTOR = 1.2


def record_at_size(
    scenario: ReducerScenario,
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    others: OtherSteps | None,
    *,
    ranks: int,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run reducers on the gradients, one per rank, at the target size; return also the optional refusals.

    ``reducers`` know the nodes of their ranks; ``ranks`` is the number of ranks of the run, of which only some may have
    to run. Reducers that need other steps take ``others``; with scaled sizes all steps have the same gradients.
    """
    seed, target = scenario.seed, scenario.target
    if target is None:
        return record(reducers, gradients, seed=seed, others=others, on_reducer=on_reducer)
    if isinstance(target, Model):
        whole = (Bucket(tuple(range(len(target.layers)))),)
        found, refused = record_scaled_buckets(
            reducers, gradients, target.layers, whole, target, seed=seed, ranks=ranks, on_reducer=on_reducer
        )
        return [replace(item, exchange=()) for item in found], refused
    scaling = scale_to(target, gradients[0])
    found, refused, _ = record_scaled(reducers, gradients, scaling, seed=seed, ranks=ranks, on_reducer=on_reducer)
    return found, refused


@dataclass(frozen=True, slots=True, eq=False)
class RunExtrapolation:
    """The extrapolation of a run, and the checks of its laws."""

    gradients: Gradients  # What was recorded, and what the run reduces
    workers: int  # Most ranks of the run
    checks: tuple[HoldOut, ...]  # One a reducer
    # By reducer, what the trace's statistics are worth for other models, where sizes were scaled
    transfers: dict[str, list[tuple[Transfer, PhaseCheck]]]
    notes: tuple[str, ...]
    # Why optional reducers could not be checked, without which the run goes on
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def toy(self) -> bool:
        """Whether a small model's gradients stand for others."""
        return self.gradients.toy

    def mark(self, row: Row, ranks: int) -> Extrapolation | None:
        """Return the mark of a row of ``ranks`` ranks that exchange gradients; None if all of it was recorded."""
        gradients = self.gradients
        more = ranks > gradients.recorded_ranks
        if not more and not gradients.scaled:
            return None
        check = next(check for check in self.checks if check.reducer == row.reducer)
        return Extrapolation(
            law="; ".join([*([LAW] if more else []), *([SIZE_LAW] if gradients.scaled else [])]),
            from_workers=min(ranks, gradients.recorded_ranks),
            to_workers=ranks,
            from_parameters=gradients.recorded_parameters,
            to_parameters=gradients.parameters,
            model=gradients.to_model,
            hold_out=check.what,
            hold_out_error_bytes=check.error_bytes,
            hold_out_error_time=check.error_time,
            transfer=tuple(transfer for transfer, _ in self.transfers.get(row.reducer, ())),
        )

    def time_doubt(self, reducer: str, timer_of: Callable[[int], Timer]) -> float:
        """Return by which factor a reducer's time may be off on another cluster; 1 or more.

        ``timer_of`` returns the timer of a number of ranks there, on the plain cluster.
        """
        phases = [check.phase for check in self.checks if check.reducer == reducer]
        phases += [phase for _, phase in self.transfers.get(reducer, ())]
        return worst_factor(phase.errors(timer_of(phase.recorded.workers))[1] for phase in phases)

    def sentence(self) -> str:
        """Return the extent of the extrapolation and its measured errors in one sentence."""
        gradients, reach = self.gradients, []
        if gradients.drawn_ranks:
            reach.append(f"{self.workers} workers from {gradients.recorded_ranks} recorded ranks")
        if gradients.scaled:
            toy = ", which are toy gradients" if gradients.toy else ""
            model = "" if gradients.to_model is None else f" of {gradients.to_model}"
            parameters, recorded = format_count(gradients.parameters), format_count(gradients.recorded_parameters)
            reach.append(f"{parameters} parameters{model} from {recorded} recorded ones{toy}")
        return f"extrapolated: {' and '.join(reach)}; {self._transferred() or self._held_out()}"

    def notes_with_checks(self) -> tuple[str, ...]:
        """Return the sentence and further notes."""
        inside = (f"{self._held_out()}: a check of how they grow, not of other models' gradients",)
        return (self.sentence(), *(inside if self._transferred() else ()), *self.notes)

    def _held_out(self) -> str:
        worst = max(self.checks, key=lambda check: abs(check.error_bytes))
        slowest = max(abs(check.error_time) for check in self.checks)
        return (
            f"where {worst.what}, bytes are off by at most {abs(worst.error_bytes):.1%} ({worst.reducer}) and times by "
            f"at most {slowest:.1%}"
        )

    def _transferred(self) -> str | None:
        """Return the errors for other models; None without transfers."""
        found = [(reducer, item) for reducer, transfers in self.transfers.items() for item, _ in transfers]
        if not found:
            return None
        names = " and ".join(dict.fromkeys(item.to for _, item in found))
        parts = [
            _worst("bytes are off", [(item.error_bytes, reducer) for reducer, item in found]),
            _worst("times", [(item.error_time, reducer) for reducer, item in found]),
            _worst("errors", [(item.error_l2, reducer) for reducer, item in found if item.error_l2 is not None]),
        ]
        return f"where the recorded gradients of {names} are predicted like this, {', '.join(filter(None, parts))}"


def _worst(what: str, errors: Sequence[tuple[float, str]]) -> str | None:
    """Return the largest factor between predicted and recorded, with its reducer; None without errors."""
    factors = [(abs(log(1 + error)) if error > -1 else inf, error, reducer) for error, reducer in errors]
    if not factors:
        return None
    _, error, reducer = max(factors)
    factor = max(1 + error, 1 / (1 + error)) if error > -1 else inf
    size = f"up to {factor - 1:.0%}" if factor < _SMALL_FACTOR else f"up to {factor:.2g}x"
    return f"{what} by {'less than 1 %' if factor < _NEGLIGIBLE_FACTOR else f'{size} ({reducer})'}"


def extrapolate(scenario: ReducerScenario, workers: int, progress: ProgressWatcher = SILENT) -> RunExtrapolation | None:
    """Return the extrapolation of a run, with its laws checked on the recording; None if all was recorded."""
    trace, asked = scenario.trace, scenario.target
    scaling: Scaling | None = None
    if isinstance(asked, Model):
        scaling = scale_to_model(asked, trace.gradient(0, 0), workers)
    elif asked is not None:
        scaling = scale_to(asked, trace.gradient(0, 0))
    gradients = describe_gradients(scenario, workers)
    recorded_ranks, more = gradients.recorded_ranks, gradients.drawn_ranks > 0
    if not more and scaling is None:
        return None
    progress.start(1, "predicting what was recorded")
    checks, refused = check_extrapolation(scenario, recorded_ranks if more else min(workers, _RANKS_TO_CHECK_SIZES))
    notes: tuple[str, ...] = () if scaling is None else scaling.notes
    if more:
        notes = (f"ranks beyond the {recorded_ranks} recorded ones are drawn: {LAW}", *notes)
    if workers > _CHECKED_REACH * recorded_ranks:
        further = (
            f"the check predicts twice the ranks, this run goes to {workers / recorded_ranks:.3g} times as many: "
            "s2sim trace show tells how far off the law is further out"
        )
        notes = (*notes, further)
    transfers = {} if scaling is None else measure_transfers(scenario, workers)
    return RunExtrapolation(gradients, workers, checks, transfers, notes, refused)
