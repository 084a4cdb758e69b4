"""A sweep: the cells of a study, computed, stored as they finish, and gone on with where it was interrupted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.costs import Cost
from s2sim.experiment.recording_store import cache_folder
from s2sim.machine import usable_cores
from s2sim.provenance import content_hash
from s2sim.sweeps.compute import Job, cell_key, job_cost, make_jobs
from s2sim.sweeps.engine import Dask, Engine, InProcess, Processes
from s2sim.sweeps.store import FILE, Outcome, SweepResult, SweepStore
from s2sim.sweeps.study import Cell, Study

# A chunk is stored in one transaction, and lost as a whole if the sweep is killed.
_LARGEST_CHUNK = {"run": 1, "collective": 64}
_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep has to do."""

    study: Study
    cells: tuple[tuple[Cell, str], ...]  # With their keys
    jobs: tuple[Job, ...]  # What is not finished yet
    finished: int  # Cells that are in the store

    @property
    def recordings(self) -> int:
        """How often reducers have to run on other gradients."""
        return len({job.recordings for job in self.jobs} - {""})

    def cost(self) -> Cost:
        """Return the CPU time of all, as if each recorded for itself, and the memory of the largest."""
        groups: dict[tuple[str, int], list[Job]] = {}
        for job in self.jobs:
            groups.setdefault((job.recordings, job.ranks), []).append(job)
        return Cost.of_all([cost for jobs in groups.values() for cost in [job_cost(jobs[0])] * len(jobs)])


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep is."""

    done: int  # Cells that are finished, those of earlier sweeps included
    cells: int
    elapsed_s: float
    left_s: float | None  # From what the cells took so far; None as long as there are none
    refusal: str | None  # The last one


SweepWatcher: TypeAlias = Callable[[SweepProgress], None]
"""Called about once a second."""


def plan_sweep(study: Study, store: SweepStore, shard: tuple[int, int] = (1, 1)) -> SweepPlan:
    """Return the cells of a study, or of the one of several shards, and the jobs that are left."""
    cells = [(cell, cell_key(cell)) for cell in study.cells()]
    number, count = shard
    own = {key for job in make_jobs(cells)[number - 1 :: count] for key, _ in job.cells}
    kept = [
        (cell, key) for cell, key in cells if key in own or (cell.spec is None and cell.number % count == number - 1)
    ]
    finished = store.finished()
    left = [(cell, key) for cell, key in kept if key not in finished]
    return SweepPlan(study, tuple(kept), tuple(make_jobs(left)), len(kept) - len(left))


def sweep(
    study: Study | Mapping[str, Any] | Path | str,
    *,
    out: Path | str,
    jobs: int | None = None,
    dask: str | None = None,
    shard: tuple[int, int] = (1, 1),
    watcher: SweepWatcher | None = None,
) -> SweepResult:
    """Compute the cells of a study that are not in the store of a folder yet.

    Parameters
    ----------
    study : Study, dict or path
        The questions: a TOML file, or the same as a dictionary.
    out : path
        Folder of the store, which is made. Finished cells in it are not computed again.
    jobs : int, optional
        Processes; one a core by default.
    dask : str, optional
        Address of a dask.distributed scheduler, or ``local``, instead of processes of this machine.
    shard : (int, int)
        Number of this part, from 1, and of all parts, each with a store of its own, see `merge_shards`.
    watcher : callable, optional
        Called about once a second with a `SweepProgress`.

    Returns
    -------
    SweepResult
        The rows of all finished cells. After Ctrl-C `KeyboardInterrupt` is raised, and what was finished is stored.

    Raises
    ------
    S2SimError
        If the study is none, or the store cannot be used.
    """
    study = Study.load(study)
    folder = Path(out)
    with closing(SweepStore(folder / store_name(shard))) as store:
        plan = plan_sweep(study, store, shard)
        text = json.dumps(asdict(study))
        store.begin(content_hash(asdict(study)), study.what, text, study.axis_names(), plan.cells)
        refused = [(key, cell.problem) for cell, key in plan.cells if cell.spec is None]
        store.add([Outcome.without_answer(key, "refused", problem) for key, problem in refused])
        if plan.jobs:
            engine = _make_engine(folder, jobs, dask, plan)
            with closing(engine):
                _work(plan, store, engine, watcher)
    return SweepResult.load(folder / store_name(shard))


def store_name(shard: tuple[int, int]) -> str:
    """Return the name of the file that a shard writes."""
    number, count = shard
    if not 1 <= number <= count:
        raise OptionError(f"--shard {number}/{count}: parts are numbered from 1 to {count}")
    return FILE if count == 1 else f"shard-{number}-of-{count}.sqlite"


def merge_shards(folder: Path | str) -> SweepResult:
    """Put the stores of the shards of a folder together; parts that are missing can be added later."""
    shards = sorted(Path(folder).glob("shard-*-of-*.sqlite"))
    if not shards:
        raise S2SimError(f"{folder} holds no shard: s2sim sweep STUDY.toml --out {folder} --shard 1/4 writes one of 4")
    with closing(SweepStore(Path(folder) / FILE)) as store:
        for path in shards:
            store.merge(path)
    return SweepResult.load(Path(folder) / FILE)


def _make_engine(folder: Path, jobs: int | None, dask: str | None, plan: SweepPlan) -> Engine:
    if dask is not None:
        return Dask(dask, jobs)
    if jobs is not None and jobs < 1:
        raise OptionError(f"--jobs {jobs}: at least one process is needed")
    workers = min(jobs or usable_cores(), len(plan.jobs))
    # Processes share recordings through the store, which is in the sweep's folder if the user wants none elsewhere.
    cache = str(cache_folder() or folder / "recordings")
    return InProcess(cache) if workers == 1 else Processes(workers, cache)


def _work(plan: SweepPlan, store: SweepStore, engine: Engine, watcher: SweepWatcher | None) -> None:
    size = max(1, min(_LARGEST_CHUNK[plan.study.what], len(plan.jobs) // (8 * engine.workers)))
    chunks = (plan.jobs[first : first + size] for first in range(0, len(plan.jobs), size))
    left = sum(len(job.cells) for job in plan.jobs)
    begun, done, refusal = time.monotonic(), 0, None
    running = _submit(engine, chunks, 2 * engine.workers)
    while running:
        several = engine.finished(_WAIT_S)
        for outcomes in several:
            store.add(outcomes)
            done += len(outcomes)
            refusal = next((each.reason for each in reversed(outcomes) if each.state != "done"), refusal)
        running += _submit(engine, chunks, len(several)) - len(several)
        if watcher is not None:
            elapsed_s = time.monotonic() - begun
            left_s = elapsed_s / done * (left - done) if done else None
            finished = len(plan.cells) - left + done
            watcher(SweepProgress(finished, len(plan.cells), elapsed_s, left_s, refusal))


def _submit(engine: Engine, chunks: Iterable[tuple[Job, ...]], most: int) -> int:
    """Submit up to ``most`` of the next chunks; return their number."""
    taken = list(islice(chunks, most))
    for chunk in taken:
        engine.submit(chunk)
    return len(taken)
