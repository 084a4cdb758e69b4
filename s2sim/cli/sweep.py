"""``s2sim sweep``: compute the cells of a study, on the cores of this machine or on many machines."""

from __future__ import annotations

import sys
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import typer

from s2sim.cli import INTERRUPTED
from s2sim.cli.options import QUIET, argument, examples, option, switch
from s2sim.cli.output import show_line, show_lines
from s2sim.errors import OptionError

if TYPE_CHECKING:
    from s2sim.sweeps.store import SweepResult
    from s2sim.sweeps.sweep import SweepPlan, SweepProgress

EXAMPLES = examples(
    "s2sim sweep study.toml --out rates",
    "s2sim sweep study.toml --out rates --dry-run",
    "s2sim sweep study.toml --out rates --jobs 1",
    "s2sim sweep study.toml --out rates --shard 1/4",
    "s2sim sweep merge rates",
    "s2sim results rates --csv rates.csv",
)
_MERGE = "merge"
_LOG_EVERY_S = 10.0


def sweep_command(
    study: str = argument("STUDY.toml|merge", "File of the study; or merge, to put shards together.", default=...),
    folder: str | None = argument("[FOLDER]", "With merge, the folder of the shards.", False),
    out: str | None = option("FOLDER", "Folder of the store; finished cells in it stay.", False),
    jobs: int | None = option("N", "Processes of this machine.", "one a core", minimum=1),
    dask: str | None = option(
        "ADDRESS",
        "Run on the workers of this dask.distributed scheduler, tcp://HOST:8786 or its file of JSON, or of a "
        "local one: local. Needs the extra cluster.",
        "this machine's processes",
    ),
    shard: str = option(
        "I/N", "Compute part I of N, into a file of its own, for batch systems; then sweep merge FOLDER.", default="1/1"
    ),
    dry_run: bool = switch("--dry-run", "Say what there is to do, and what it takes, and do nothing."),
    quiet: bool = QUIET,
) -> None:
    """Compute every cell of a study: s2sim run or collective over axes such as workers, rates and reducers.

    Run it again to go on where it was interrupted: what is finished stays, what has changed is computed anew. The
    study's format is in docs/sweeps.md.
    """
    from s2sim.sweeps.sweep import merge_shards, sweep

    if study == _MERGE:
        if folder is None or out is not None:
            raise OptionError("sweep merge takes the folder of the shards, for example s2sim sweep merge rates")
        _show_end(merge_shards(folder), quiet=quiet)
        return
    if folder is not None or out is None:
        raise OptionError("sweep needs a folder for its results, for example s2sim sweep study.toml --out rates")
    part = _parse_shard(shard)
    if dry_run:
        _show_plan(study, out, part)
        return
    with suppress(KeyboardInterrupt), closing(_Watch(quiet=quiet)) as watch:
        result = sweep(study, out=out, jobs=jobs, dask=dask, shard=part, watcher=watch)
        watch.close()
        _show_end(result, quiet=quiet)
        return
    show_line(f"Interrupted: {watch.text()}; s2sim sweep {study} --out {out} goes on.")
    raise typer.Exit(INTERRUPTED)


def _parse_shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise OptionError(f"--shard {text}: write I/N, for example 1/4 for the first of four parts")
    return int(number), int(count)


def _show_plan(study: str, out: str, part: tuple[int, int]) -> None:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from s2sim.sweeps.store import SweepStore
    from s2sim.sweeps.study import Study
    from s2sim.sweeps.sweep import plan_sweep, store_name
    from s2sim.units import format_number_of

    path = Path(out) / store_name(part)
    # Nothing is made where there is nothing yet.
    with TemporaryDirectory() as empty, closing(SweepStore(path if path.exists() else Path(empty) / "none")) as store:
        plan: SweepPlan = plan_sweep(Study.load(study), store, part)
    refused = [cell for cell, _ in plan.cells if cell.spec is None]
    left = sum(len(job.cells) for job in plan.jobs)
    cost = plan.cost()
    taken = f", {cost.text()} at most" if plan.jobs else ""
    show_line(
        f"{format_number_of(len(plan.cells), 'cell')}: {plan.finished} finished, {left} to compute in "
        f"{format_number_of(len(plan.jobs), 'run')} from {format_number_of(plan.recordings, 'set')} of recordings, "
        f"{len(refused)} refused{taken}."
    )
    show_lines([f"Refused: cell {cell.number}: {cell.problem}" for cell in refused[:3]])


def _show_end(result: SweepResult, *, quiet: bool) -> None:
    counts = ", ".join(f"{count} {state}" for state, count in sorted(result.counts.items()))
    show_line(f"{sum(result.counts.values())} cells: {counts}.")
    if not quiet:
        show_line(f"s2sim results {result.path.parent} shows them; --csv FILE writes a row a cell and reducer.")


class _Watch:
    """Shows how far a sweep is: a bar on a terminal, else a line every ten seconds."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._last: SweepProgress | None = None
        self._logged = time.monotonic()
        self._live: Any = None
        if not quiet and sys.stderr.isatty():
            from rich.console import Console

            self._live = Console(stderr=True).status("planning the cells")
            self._live.start()

    def close(self) -> None:
        """Show no more."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, progress: SweepProgress) -> None:
        self._last = progress
        if self._live is not None:
            self._live.update(self.text())
        elif not self._quiet and time.monotonic() - self._logged >= _LOG_EVERY_S:
            self._logged = time.monotonic()
            sys.stderr.write(f"s2sim: {self.text()}\n")

    def text(self) -> str:
        """Return how far it is in one line."""
        from s2sim.units import format_seconds

        if self._last is None:
            return "no cell was finished"
        at = self._last
        parts = [f"{at.done} of {at.cells} cells"]
        if at.left_s is not None:
            rate = (at.cells - at.done) / at.left_s if at.left_s else 0.0
            parts += [f"{rate:.3g} a second, {format_seconds(at.left_s)} left"] if rate else []
        return ", ".join(parts) + (f"; last refusal: {at.refusal}" if at.refusal else "")
