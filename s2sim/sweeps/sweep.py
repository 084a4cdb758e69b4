"""A sweep: the cells of a study, computed by engines, stored as they finish, gone on with where it was interrupted."""

import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeAlias, TypeVar

from s2sim.errors import OptionError, S2SimError, warn
from s2sim.experiment.costs import ONCE, Cost, cost_of
from s2sim.experiment.progress import SILENT, ProgressWatcher, tell
from s2sim.experiment.recording_store import VARIABLE, recording_store
from s2sim.provenance import content_hash, usable_cores
from s2sim.sweeps.compute import Job, cell_key, compute_jobs, job_features, make_jobs
from s2sim.sweeps.store import FILE, Outcome, SweepResult, SweepStore
from s2sim.sweeps.study import Cell, Study
from s2sim.tables import group_by

P = ParamSpec("P")
T = TypeVar("T")
Chunk = tuple[Job, ...]


class InProcess:
    """Runs chunks in this process, one after the other."""

    workers = 1

    def __init__(self, cache: str) -> None:
        self._cache_before = os.environ.get(VARIABLE, "")
        os.environ[VARIABLE] = cache
        self._waiting: list[Chunk] = []

    def submit(self, chunk: Chunk) -> None:
        """Begin a chunk."""
        self._waiting.append(chunk)

    def finished(self, timeout_s: float) -> list[list[Outcome]]:
        """Return the answers of the chunk that was submitted first."""
        return [compute_jobs(self._waiting.pop(0))]

    def close(self) -> None:
        """Forget what was submitted."""
        os.environ[VARIABLE] = self._cache_before
        self._waiting.clear()


def _prepare_worker(parent: int, cache: str) -> None:
    """Leave Ctrl-C to the parent, and end with it even if it is killed."""
    os.environ[VARIABLE] = cache
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def start_pool(workers: int, cache: str) -> ProcessPoolExecutor:
    """Return processes that use one store of recordings, and end with this one."""
    context = get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=_prepare_worker, initargs=(os.getpid(), cache))


def submit(pool: ProcessPoolExecutor, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
    """Begin a function in a process of a pool."""
    # A process that is spawned would run the script of the user, which may have no guard, once more.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return pool.submit(function, *arguments, **named)
    finally:
        sys.modules["__main__"] = main


def kill_pool(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool, and what they do."""
    processes = list((pool._processes or {}).values())  # noqa: SLF001 # there is no other way to stop work
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        with suppress(OSError, ValueError):
            process.kill()
    for process in processes:
        process.join()


def shared_recordings(folder: Path) -> str:
    """Return the folder of the store of recordings, in ``folder`` if the user wants none elsewhere."""
    store = recording_store()
    return str(folder / "recordings" if store is None else store.folder)


class Processes:
    """Processes of this machine; after one is killed, what ran begins again job by job, to find the one that kills."""

    def __init__(self, workers: int, cache: str) -> None:
        self.workers = workers
        self._cache = cache
        self._waiting: deque[Chunk] = deque()
        self._running: dict[Future[list[Outcome]], Chunk] = {}
        self._one_by_one = 0  # How many of those that wait run alone
        self._pool = start_pool(workers, cache)

    def submit(self, chunk: Chunk) -> None:
        """Begin a chunk, at once or when a process is free."""
        self._waiting.append(chunk)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < (1 if self._one_by_one else self.workers + 1):
            chunk = self._waiting.popleft()
            self._running[submit(self._pool, compute_jobs, chunk)] = chunk

    def finished(self, timeout_s: float) -> list[list[Outcome]]:
        """Return the answers of the chunks that finish first."""
        done, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
        found = []
        for future in done:
            try:
                found.append(future.result())
            except BrokenProcessPool:
                continue
            del self._running[future]
            self._one_by_one = max(0, self._one_by_one - 1)
        if len(found) < len(done):
            found += self._restart()
        self._fill()
        return found

    def _restart(self) -> list[list[Outcome]]:
        """Begin again after a process was killed; return the outcomes of a job that ran alone then."""
        lost = [(job,) for chunk in self._running.values() for job in chunk]
        self.close()
        self._pool = start_pool(self.workers, self._cache)
        if self._one_by_one and len(lost) == 1:
            self._one_by_one -= 1
            return [[killed(key) for key, _ in lost[0][0].cells]]
        self._waiting.extendleft(reversed(lost))
        self._one_by_one += len(lost)
        return []

    def close(self) -> None:
        """Kill the processes."""
        kill_pool(self._pool)
        self._running.clear()


def killed(key: str) -> Outcome:
    """Return the outcome of a cell whose process died."""
    why = "the process was killed, as happens where memory ends: take fewer --jobs, workers or parameters"
    return Outcome.without_answer(key, "failed", why)


class Dask:
    """Runs chunks on the workers of a dask.distributed cluster, which have s2sim installed."""

    def __init__(self, address: str, jobs: int | None) -> None:
        try:
            import distributed
        except ImportError:
            raise S2SimError("--dask needs dask.distributed: pip install 's2sim[cluster]'") from None
        try:
            library: Any = distributed
            cluster: Any = library.LocalCluster(n_workers=jobs, threads_per_worker=1) if address == "local" else address
            self._client = library.Client(
                **({"scheduler_file": address} if address.endswith(".json") else {"address": cluster}), timeout="20s"
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise S2SimError(f"--dask {address}: there is no scheduler: {error}") from None
        self._cluster: Any = cluster if address == "local" else None
        self.workers = max(1, len(self._client.scheduler_info()["workers"]))
        self._executor = self._client.get_executor(pure=False, retries=2)
        self._running: dict[Future[list[Outcome]], Chunk] = {}

    def submit(self, chunk: Chunk) -> None:
        """Begin a chunk; one whose worker dies begins again on another."""
        self._running[self._executor.submit(compute_jobs, chunk)] = chunk

    def finished(self, timeout_s: float) -> list[list[Outcome]]:
        """Return the answers of the chunks that finish first."""
        from distributed import KilledWorker

        done, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
        found = []
        for future in done:
            chunk = self._running.pop(future)
            try:
                found.append(future.result())
            except KilledWorker:
                found.append([killed(key) for job in chunk for key, _ in job.cells])
        return found

    def close(self) -> None:
        """Cancel what runs, and leave the cluster."""
        with suppress(Exception):
            self._executor.shutdown(wait=False)
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


Engine: TypeAlias = InProcess | Processes | Dask
"""Runs chunks of jobs; ``finished`` waits up to a timeout in seconds, and ``close`` loses what was not returned."""

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

    def cost(self, processes: int) -> Cost:
        """Return the CPU time of all in some processes, and the memory of the largest job."""
        what = self.study.what
        costs = [cost_of(what, {"start": 1.0})] * processes
        for jobs in group_by(self.jobs, lambda job: job.recordings or job.cells[0][0]).values():
            features = job_features(jobs[0])
            costs.append(cost_of(what, {name: features[name] for name in features.keys() & {*ONCE}}))
            costs += [cost_of(what, features, "cell_s")] * len(jobs)
        return Cost.of_all(costs)


def plan_sweep(study: Study, store: SweepStore, shard: tuple[int, int] = (1, 1)) -> SweepPlan:
    """Return the cells of a study, or of the one of several shards, and the jobs that are left."""
    cells = [(cell, cell_key(cell)) for cell in study.cells()]
    part, count = shard
    own = {key for job in make_jobs(cells)[part - 1 :: count] for key, _ in job.cells}
    kept = [(cell, key) for cell, key in cells if key in own or (cell.spec is None and cell.number % count == part - 1)]
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
    progress: ProgressWatcher = SILENT,
) -> SweepResult:
    """Compute the cells of a study that are not in the store of a folder yet, and return the rows of all finished ones.

    After Ctrl-C `KeyboardInterrupt` is raised, and what was finished is stored. `S2SimError` if the study is none, or
    the store cannot be used.

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
    progress : ProgressWatcher, optional
        Advances with each cell.
    """
    study = Study.load(study)
    folder, text, sha256 = Path(out), json.dumps(asdict(study)), content_hash(asdict(study))
    progress.start(0, "planning the cells")
    with closing(SweepStore(folder / store_name(shard))) as store:
        plan = plan_sweep(study, store, shard)
        store.begin(sha256, study.what, text, study.axis_names(), plan.cells)
        refused = [(key, cell.problem) for cell, key in plan.cells if cell.spec is None]
        store.add([Outcome.without_answer(key, "refused", problem) for key, problem in refused])
        if plan.jobs:
            with closing(_make_engine(folder, jobs, dask, plan)) as engine:
                _work(plan, store, engine, progress)
        progress.stop()
    return SweepResult.load(folder / store_name(shard), sha256)


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
        study, planned = store.planned()
    parts = {tuple(path.stem.split("-")[1::2]) for path in shards}
    counts = {count for _, count in parts if count.isdecimal()} if len(planned) < len(study.cells()) else ()
    for count in sorted(counts):
        if missing := [f"{part}/{count}" for part in range(1, int(count) + 1) if (str(part), count) not in parts]:
            warn(f"{folder} lacks shards {', '.join(missing)}, whose cells do not count")
    return SweepResult.load(Path(folder) / FILE)


def _make_engine(folder: Path, jobs: int | None, dask: str | None, plan: SweepPlan) -> Engine:
    if dask is not None:
        return Dask(dask, jobs)
    if jobs is not None and jobs < 1:
        raise OptionError(f"--jobs {jobs}: at least one process is needed")
    workers = min(jobs or usable_cores(), len(plan.jobs))
    cache = shared_recordings(folder)
    return InProcess(cache) if workers == 1 else Processes(workers, cache)


def _work(plan: SweepPlan, store: SweepStore, engine: Engine, progress: ProgressWatcher) -> None:
    size = max(1, min(_LARGEST_CHUNK[plan.study.what], len(plan.jobs) // (8 * engine.workers)))
    chunks = (plan.jobs[first : first + size] for first in range(0, len(plan.jobs), size))
    progress.start(sum(len(job.cells) for job in plan.jobs), "computing cells")
    running, told = _submit(engine, chunks, 2 * engine.workers), set[str | None]()
    while running:
        several = engine.finished(_WAIT_S)
        for outcomes in several:
            store.add(outcomes)
            for reason in {each.reason for each in outcomes if each.state != "done"} - told:
                told.add(reason)
                tell(progress, f"not computed: {reason}")
        progress.advance(sum(map(len, several)))
        running += _submit(engine, chunks, len(several)) - len(several)


def _submit(engine: Engine, chunks: Iterable[tuple[Job, ...]], most: int) -> int:
    """Submit up to ``most`` of the next chunks; return their number."""
    taken = list(islice(chunks, most))
    for chunk in taken:
        engine.submit(chunk)
    return len(taken)
