"""``s2sim dev validate``: how far predictions are from measured curves and training iterations."""

from __future__ import annotations

from typing import Any

from s2sim.cli.options import JSON, QUIET, argument, check_targets, examples, option, switch, takes_tables
from s2sim.cli.output import show_lines, show_result, watching
from s2sim.errors import S2SimError
from s2sim.files import user_path

EXAMPLES = examples(
    "s2sim dev validate",
    "s2sim dev validate --iterations",
    "s2sim dev validate my-curves --html my-curves.html --json -",
    "s2sim dev validate my-curves --sealed predictions.json",
)


@takes_tables()
def validate_command(
    folder: str | None = argument(
        "DIR",
        "Folder with an index.csv, a row a curve, and a table of sizes and times for each (measured/curves/README.md "
        "has the columns), or with an iterations.csv, a row a training iteration (measured/iterations/README.md).",
        "the public curves that are shipped",
    ),
    iterations: bool = switch("--iterations", "Predict training iterations: the public ones, or those of the folder."),
    fit: bool = option(
        None,
        "Fit constants again, to these curves and the public ones, and without each source of the folder.",
        default=True,
    ),
    write: bool = switch(
        "--write", "Fit the shipped constants to the public curves until they stay, and write them and the bands."
    ),
    sealed: str | None = option(
        "FILE.json",
        "Write predictions of the folder's set-ups with date and hash, measured or not; where the file exists, compare "
        "them with what the folder has measured since.",
        "nothing is sealed",
    ),
    json: str | None = JSON,
    quiet: bool = QUIET,
) -> None:
    """Predict measured curves and iterations from their machines, and show how far off that is.

    Machine and demand come from the index alone, by the hardware catalogue; what that does not know is not predicted.
    What NCCL adds is partly fitted to the public curves; what is predicted of sources that were left out of the fit
    tells how right predictions are elsewhere.
    """
    check_targets(json=json)
    if write:
        from s2sim.validation.write_fits import write_fits

        with watching(quiet=quiet) as progress:
            lines = write_fits(progress)
        show_lines(lines)
        return
    if sealed is not None:
        from s2sim.validation.sealed import score_sealed, seal

        file = user_path(sealed, S2SimError)
        if file.exists():
            show_result(score_sealed(folder, file), json, quiet=quiet)
            return
        with watching(quiet=quiet) as progress:
            lines = seal(folder, file, progress)
        show_lines(lines)
        return
    from s2sim.validation.iteration_result import has_iterations, resolve_iterations_folder

    of_iterations = iterations or (folder is not None and has_iterations(resolve_iterations_folder(folder)))
    with watching(quiet=quiet) as progress:
        result: Any
        if of_iterations:
            from s2sim.validation.validate_iterations import validate_iterations

            result = validate_iterations(folder, progress)
        else:
            from s2sim.validation.validate_curves import run_validation

            result = run_validation(folder, progress, fit=fit)
    show_result(result, json, quiet=quiet)
