"""The cells that advice rests on: runs of a cluster and a job as they are, and with changes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Any

from s2sim.advice.search import AS_IT_IS, REDUCER, Change, Changes, Option, Point, changed_spec
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.choice import WORTHWHILE, Candidate, candidates_of
from s2sim.experiment.cluster_spec import command_of
from s2sim.experiment.costs import Gate
from s2sim.experiment.json_form import LEFT_OUT
from s2sim.experiment.progress import ProgressWatcher, tell
from s2sim.experiment.rows import Result, Row
from s2sim.experiment.run import run
from s2sim.experiment.spec import RunSpec
from s2sim.experiment.verdict import describe_hidden, with_reason
from s2sim.units import brief_seconds


@dataclass(frozen=True, slots=True)
class AdviceCell:
    """One reducer of a run that an answer rests on."""

    changes: str  # What differs from the cluster and the job as they are
    reducer: str  # Option string
    workers: int
    time_s: float  # What runs compare: the phase or, where compute was given, the iteration
    samples_per_s: float | None  # Of all workers; None where the mini-batch is not known
    speedup_vs_dense: float | None  # On the same cluster; None where it is infinite
    relative_l2: float | None
    exact: bool  # Whether all that is lost is rounding
    assumes: str | None  # On what its time rests beside what is simulated
    doubt: float  # By which factor the time may be longer, where it is extrapolated
    price: float | None  # Of the changes; None where none has a price
    efficiency: float | None  # Throughput of a worker over that of one alone; None unless that was the question
    command: str  # What computes it
    feedback: bool = False  # Whether training has to confirm the error, which feedback makes good in later steps
    error_range: tuple[float, float] | None = None  # Between what the error lies, where it is hardly known
    made: tuple[RunSpec, Row] | None = field(default=None, metadata=LEFT_OUT, compare=False)  # What it was read of

    @property
    def compared_s(self) -> float:
        """Seconds of the same work in all cells: of a sample or, where mini-batches are not known, of a step."""
        return 1 / self.samples_per_s if self.samples_per_s else self.time_s

    @property
    def longest_s(self) -> float:
        """The same, as long as it may be."""
        return self.compared_s * self.doubt

    @property
    def candidate(self) -> Candidate:
        """The reducer as the choice of a run sees it."""
        limits: dict[str, Any] = {"assumes": self.assumes, "doubt": self.doubt, "error_range": self.error_range}
        return Candidate(self.reducer, self.time_s, self.relative_l2, self.exact, feedback=self.feedback, **limits)


class Runs:
    """Results of specs, each computed once."""

    def __init__(self, progress: ProgressWatcher, gate: Gate) -> None:
        self._progress, self._gate = progress, gate
        self.computed: dict[RunSpec, Result | S2SimError] = {}
        self.refused: dict[str, str] = {}

    def needed(self, spec: RunSpec, *, break_even: bool = False) -> Result:
        """Return a result; `S2SimError` where the spec cannot be run, with the reason in ``refused``."""
        if spec not in self.computed:
            try:
                self.computed[spec] = run(spec=spec, break_even=break_even, thorough=False, gate=self._gate)
            except S2SimError as error:
                self.computed[spec] = error
                self.refused[command_of(spec)] = str(error)
            self._progress.advance()
            tell(self._progress, command_of(spec))
        result = self.computed[spec]
        if isinstance(result, S2SimError):
            raise result
        return result

    def result(self, spec: RunSpec) -> Result | None:
        """Return a result; None where the spec cannot be run."""
        with suppress(S2SimError):
            return self.needed(spec)
        return None


def cell_of(
    result: Result, row: Row, changes: str = "as it is", price: float | None = None, efficiency: float | None = None
) -> AdviceCell:
    """Return the cell of a row of a result."""
    judged, spec = row.judged, replace(result.spec, reducers=(row.reducer,))
    candidate = next(each for each in candidates_of(result.results, spec.max_error) if each.name == row.reducer)
    return AdviceCell(
        changes=changes,
        reducer=row.reducer,
        workers=row.workers,
        time_s=judged.time_s,
        samples_per_s=None if row.iteration is None else row.iteration.samples_per_s,
        speedup_vs_dense=None if judged.speedup == inf else judged.speedup,
        relative_l2=row.error.relative_l2,
        exact=judged.exact,
        assumes=row.assumes,
        doubt=judged.doubt,
        price=price,
        efficiency=efficiency,
        command=command_of(spec),
        feedback=candidate.feedback,
        error_range=row.error_range,
        made=(spec, row),
    )


def time_text(cell: AdviceCell) -> str:
    """Return the time and the throughput of a cell for people."""
    rate = "" if cell.samples_per_s is None else f", {cell.samples_per_s:,.0f} samples/s"
    return f"{brief_seconds(cell.time_s)}{rate}"


def quickest(cells: Sequence[AdviceCell]) -> AdviceCell:
    """Return the quickest; of those that no model can tell apart the least error decides, then what assumes nothing.

    What error feedback makes good one step does not tell: what needs it comes last, whatever it loses.
    """
    within_s = min(cell.longest_s for cell in cells) * WORTHWHILE

    def order(cell: AdviceCell) -> tuple[float, ...]:
        loss = inf if cell.feedback else cell.candidate.loss
        return loss, cell.assumes is not None, cell.changes != AS_IT_IS.text, cell.longest_s

    return min((cell for cell in cells if cell.longest_s <= within_s), key=order)


def named_text(cell: AdviceCell, base: RunSpec) -> str:
    """Return the changes and the reducer, as the verdict of a run names it."""
    name = cell.reducer if cell.reducer == "dense" else with_reason(cell.candidate, base.max_error)
    return name if cell.changes == AS_IT_IS.text else f"{cell.changes} and {name}"


def hidden_text(result: Result) -> str:
    """Return what share of its communication dense hides, after a colon; nothing if that is none."""
    text = describe_hidden(result.results[0], "compute")
    return "" if text is None else f": {text}"


class Combinations:
    """What can be changed, as axes: those of the cluster and the job, and the reducers last."""

    def __init__(self, base: RunSpec, changes: Changes, runs: Runs, *, together: bool) -> None:
        self.changes, self._runs, self._together = changes, runs, together
        today = base.reducers[0] if base.reducers else "dense"
        of_reducers = next((change for change in changes.changes if is_of_reducers(change)), None)
        self.axes = tuple(change.options for change in changes.changes if change is not of_reducers)
        self.reducers = (Option({REDUCER: today}), *(() if of_reducers is None else of_reducers.options[1:]))
        self._names = tuple(dict.fromkeys(str(option.fields[REDUCER]) for option in self.reducers))
        self.as_it_is = replace(base, reducers=self._names[:1])

    @property
    def prices(self) -> list[list[float]]:
        """The price of each level of each axis."""
        return [[option.price for option in axis] for axis in (*self.axes, self.reducers)]

    @property
    def count(self) -> int:
        """How many there are."""
        return prod(map(len, (*self.axes, self.reducers)))

    def cell(self, point: Point) -> AdviceCell | None:
        """Return a combination's cell; None where it cannot be run, or its error cannot be used."""
        *chosen, reducer = (axis[level] for axis, level in zip((*self.axes, self.reducers), point, strict=True))
        name = str(reducer.fields[REDUCER])
        changes = ", ".join(each.text for each in chosen if each.fields) or AS_IT_IS.text
        fields: dict[str, Any] = {REDUCER: self._names if self._together else (name,)}
        for each in chosen:
            fields |= each.fields
        try:
            spec = changed_spec(self.as_it_is, fields)
        except S2SimError as error:
            self._runs.refused[changes] = str(error)
            return None
        if (result := self._runs.result(spec)) is None:
            return None
        row = next((row for row in result.results if row.reducer == name), None)
        if row is None or (row.judged.rejected is not None and not row.baseline):
            return None
        price = sum(each.price for each in (*chosen, reducer)) if self.changes.currency else None
        return cell_of(result, row, changes, price)

    def time(self, point: Point, *, sure: bool = False) -> float:
        """Return the time of the same work, as long as it may be; infinity where a combination cannot be used.

        If ``sure``, also where it is `conditional`.
        """
        cell = self.cell(point)
        return inf if cell is None or (sure and self.conditional(cell)) else cell.longest_s

    def conditional(self, cell: AdviceCell) -> bool:
        """Return whether more has to hold than what is simulated: an assumption, or what training has to confirm."""
        return cell.assumes is not None or cell.feedback


def is_of_reducers(change: Change) -> bool:
    """Return whether a change is of the reducer; `OptionError` if it is of something else too."""
    several = [option for option in change.options[1:] if REDUCER in option.fields]
    if several and (len(several) < len(change.options) - 1 or any(len(option.fields) > 1 for option in several)):
        raise OptionError(f"{change.name}: options with a reducer have nothing else: make a change of its own of it")
    if any(not isinstance(option.fields[REDUCER], str) for option in several):
        raise OptionError(f"{change.name}: reducer is one option string: write an option for each")
    return bool(several)
