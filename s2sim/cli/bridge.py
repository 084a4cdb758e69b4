"""``s2sim dev bridge``: reducers between real processes."""

from __future__ import annotations

import typer

from s2sim.cli import INTERRUPTED
from s2sim.cli.options import JSON, QUIET, ROOT_SEED, check_targets, examples, group, option
from s2sim.cli.output import show_grids, show_paragraphs, watching, write_result
from s2sim.errors import OptionError

_CHECK = (
    "s2sim dev bridge check",
    "s2sim dev bridge check --reducer topk --reducer union --workers 3 --trace lstm-lm-steps",
    "s2sim dev bridge check --reducer s2-exact --workers 7 --json check.json",
)
# Of a reducer whose values or bytes are not as they should be.
_DISAGREES = 1

app = group(help="Run reducers between real processes. Needs the extra torch.", epilog=examples(*_CHECK))


@app.command("check", epilog=examples(*_CHECK), short_help="Compare reducers between processes with those in memory.")
def check_command(
    reducer: list[str] | None = option("NAME[:OPTIONS]", "Reducer to run; repeat for more.", "all"),
    workers: int = option("N", "Processes.", default=4),
    trace: str = option("NAME|DIR", "Gradients to reduce.", default="ncf"),
    steps: int = option("N", "Training steps of each reducer.", default=2),
    seed: int = ROOT_SEED,
    json: str | None = JSON,
    quiet: bool = QUIET,
) -> None:
    """Start a process for every worker, run reducers between them over Gloo, and compare with the same in memory.

    Values must be the same bits where nothing is summed in another order, else within 1e-6; what the kernel counts must
    be what the simulator says is sent, and the library's headers, to the byte. Exit code 1 if a reducer disagrees.
    """
    from s2sim.report.validation_tables import check_grid, check_lines
    from s2sim.validation.bridge_check import CheckSpec, run_check

    check_targets(json=json)
    if workers < 1 or steps < 1:
        raise OptionError(f"--workers {workers} --steps {steps}: there is at least one of each")
    spec = CheckSpec(tuple(reducer or ["all"]), workers, trace, steps, seed)
    with watching(quiet=quiet) as progress:
        checked = run_check(spec, progress)
    if write_result(checked, json):
        show_grids([check_grid(checked)])
        lines = check_lines(checked)
        show_paragraphs(lines[-1:] if quiet else lines)
    if not checked.complete:
        raise typer.Exit(INTERRUPTED)
    if not all(row.ok for row in checked.rows):
        raise typer.Exit(_DISAGREES)
