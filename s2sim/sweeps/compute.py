"""The cells of a sweep, computed: those that differ in their reducers alone share a run."""

import sys
import time
import warnings
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from s2sim.errors import S2SimError, S2SimWarning
from s2sim.experiment.cluster_spec import ClusterSpec
from s2sim.experiment.costs import TooLargeError, collective_features, refuse_too_large, run_features
from s2sim.experiment.run import run_subsets
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.provenance import content_hash, named_files, package_version
from s2sim.reducers.registry import resolved_options
from s2sim.sweeps.store import COLUMNS, Line, Outcome, State
from s2sim.sweeps.study import Cell
from s2sim.tables import group_by
from s2sim.traffic.collective_run import collective_cost, collective_result, plan_collective
from s2sim.traffic.spec import CollectiveSpec


@dataclass(frozen=True, slots=True)
class Job:
    """Cells that are computed together, by key: runs on one network with one set of gradients."""

    cells: tuple[tuple[str, ClusterSpec], ...]

    @property
    def spec(self) -> ClusterSpec:
        """What is computed: the spec of its cells, with the reducers of all."""
        first = self.cells[0][1]
        names = [name for _, spec in self.cells if isinstance(spec, RunSpec) for name in spec.reducers]
        return replace(first, reducers=tuple(dict.fromkeys(names))) if isinstance(first, RunSpec) else first

    @property
    def ranks(self) -> int:
        """Workers of its cells."""
        spec = self.cells[0][1]
        if isinstance(spec, RunSpec):
            return max(spec.workers)
        return spec.workers if isinstance(spec, CollectiveSpec) else 0

    @property
    def recordings(self) -> str:
        """The fields of the spec on which recordings depend, as text; empty if there are none."""
        spec = self.cells[0][1]
        if not isinstance(spec, RunSpec):
            return ""
        of_gradients = (spec.trace, spec.workers, spec.seed, spec.dtype, spec.scale_to, spec.model, spec.steps)
        return repr((*of_gradients, spec.profile, spec.discipline, spec.batch, spec.groups, spec.reducers))


def cell_key(cell: Cell) -> str:
    """Return the hash of all that the answer of a cell follows from: its spec, files that this names, and the code."""
    if cell.spec is None:
        return content_hash([package_version(), cell.axes, cell.problem])
    spec = cell.spec.to_json()
    return content_hash([package_version(), cell.spec.what, spec, named_files(spec)])


def make_jobs(cells: Iterable[tuple[Cell, str]]) -> list[Job]:
    """Return the jobs of cells with specs, first one of each recording, few ranks first, which others then reuse."""

    def network(cell: tuple[str, ClusterSpec]) -> str | ClusterSpec:
        key, spec = cell
        # What is named as dense is what others would be compared with.
        if isinstance(spec, RunSpec) and spec.reducers and not any(map(_is_dense, spec.reducers)):
            return replace(spec, reducers=())
        return key

    specs = {key: cell.spec for cell, key in cells if cell.spec is not None}
    jobs = [Job(tuple(alike)) for alike in group_by(specs.items(), network).values()]
    jobs.sort(key=lambda job: (job.ranks, job.recordings))
    firsts = {job.recordings: job for job in reversed(jobs)}
    return sorted(jobs, key=lambda job: firsts[job.recordings] is not job)


def _is_dense(text: str) -> bool:
    with suppress(S2SimError):  # An unknown name refuses its cells alone
        return resolved_options(text)[0] == "dense"
    return False


def job_features(job: Job) -> dict[str, float]:
    """Return the features of what a job takes; none if it will be refused."""
    spec = job.spec
    try:
        if isinstance(spec, CollectiveSpec):
            return collective_features(spec.kind, spec.algorithm, spec.workers)
        assert isinstance(spec, RunSpec)
        scenario = resolve_run(spec)
        return run_features(scenario, [scenario.ranks_of(count) for count in spec.workers])
    except S2SimError:
        return {}


def compute_jobs(jobs: Sequence[Job]) -> list[Outcome]:
    """Return the answers of all cells of some jobs; nothing that goes wrong with one is lost or raised."""
    return [outcome for job in jobs for outcome in _compute(job)]


def _compute(job: Job) -> list[Outcome]:
    begun = time.process_time()
    try:
        answers = _answers(job)
    except Exception as error:  # noqa: BLE001 # a cell that fails must not take others with it
        if len(job.cells) > 1:
            # One of them may be the reason.
            return compute_jobs([Job((cell,)) for cell in job.cells])
        cpu_s = time.process_time() - begun
        return [Outcome.without_answer(job.cells[0][0], *_refusal(error), cpu_s, _peak_bytes())]
    cpu_s = (time.process_time() - begun) / len(job.cells)
    found = []
    for key, lines, details, inputs in answers:
        done = any(line.state == "done" for line in lines)
        reason = None if done else lines[0].reason
        found.append(Outcome(key, "done" if done else "refused", reason, cpu_s, _peak_bytes(), lines, details, inputs))
    return found


def _refusal(error: Exception) -> tuple[State, str]:
    if isinstance(error, MemoryError):
        return "too large", "it took more memory than there is"
    if isinstance(error, S2SimError):
        return "too large" if isinstance(error, TooLargeError) else "refused", str(error)
    return "failed", f"{type(error).__name__}: {error}"


def _peak_bytes() -> int:
    """Return the most memory that this process has had; 0 where that is not known."""
    try:
        import resource
    except ImportError:
        return 0
    return (1 if sys.platform == "darwin" else 1024) * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


_Answer = tuple[str, tuple[Line, ...], dict[str, Any], dict[str, Any]]


def _answers(job: Job) -> list[_Answer]:
    spec = job.spec
    if isinstance(spec, CollectiveSpec):
        with warnings.catch_warnings(record=True, action="always", category=S2SimWarning) as warned:
            refuse_too_large(collective_cost(spec))
            result = collective_result(plan_collective(spec))
        line = Line(
            None,
            "done",
            total_s=result.time_s,
            bytes_sent_per_rank=result.bytes_per_rank,
            algorithm=result.algorithm,
            protocol=result.protocol,
            busbw_Bps=result.busbw_Bps,
            lower_bound_s=result.lower_bound_s,
        )
        details = result.to_json() | _texts(warned)
        return [(job.cells[0][0], (line,), details, details.pop("provenance")["inputs"])]
    assert isinstance(spec, RunSpec)
    return _run_answers(job, spec)


def _texts(warned: Iterable[warnings.WarningMessage], names: Collection[str] = ()) -> dict[str, Any]:
    """Return ``warnings`` if there are any, for a run of some reducers those that are about no other."""
    own = [each.message for each in warned if not names or getattr(each.message, "reducer", None) in (None, *names)]
    return {"warnings": list(dict.fromkeys(map(str, own)))} if own else {}


def _run_answers(job: Job, spec: RunSpec) -> list[_Answer]:
    asked = [each.reducers for _, each in job.cells if isinstance(each, RunSpec)]
    with warnings.catch_warnings(record=True, action="always", category=S2SimWarning) as shared:
        of = run_subsets(spec, refuse_too_large)
    answers: list[_Answer] = []
    for (key, _), names in zip(job.cells, asked, strict=True):
        with warnings.catch_warnings(record=True, action="always", category=S2SimWarning) as own:
            result = of(names)
        lines = []
        for row in result.results:
            figures = row.columns()
            kept = {name: figures[name] for name in COLUMNS if name in figures}
            lines.append(Line(state="done", chosen=row.reducer == result.verdict.best, **kept))
        failed = [Line(each.reducer, "refused", each.why) for each in result.refused]
        # As a run of this cell alone, which needs one reducer that it can compare with dense.
        lines = failed if names and {each.reducer for each in result.refused} == {*names} else [*lines, *failed]
        details = result.to_json() | _texts((*shared, *own), names)
        answers.append((key, tuple(lines), details, details.pop("provenance")["inputs"]))
    return answers
