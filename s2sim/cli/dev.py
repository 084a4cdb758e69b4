"""``s2sim dev``: predictions compared with measurements, constants fitted to one's own machine, real processes."""

from typing import Any

import typer

from s2sim.cli import INTERRUPTED, output
from s2sim.cli.options import Experiment, check_targets, command, example_of, group, options_from, takes_tables
from s2sim.errors import OptionError, S2SimError
from s2sim.files import user_path
from s2sim.validation.calibrate_spec import CalibrateSpec


@takes_tables
def validate_command(
    *,
    folder: str | None = None,
    iterations: bool = False,
    fit: bool = True,
    write: bool = False,
    sealed: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Predict measured curves and iterations from their machines, and show how far off that is.

    Machine and demand come from the index alone, by the hardware catalogue; what that does not know is not predicted.
    What NCCL adds is partly fitted to the public curves; what is predicted of sources that were left out of the fit
    tells how right predictions are elsewhere.
    """
    from s2sim.validation.iteration_result import has_iterations, resolve_iterations_folder

    result: Any = None
    lines: list[str] = []
    with output.watching(quiet=quiet) as progress:
        if write:
            from s2sim.validation.curve_files import write_fits

            lines = write_fits(progress)
        elif sealed is not None:
            from s2sim.validation.curve_files import score_sealed, seal

            if (file := user_path(sealed, S2SimError)).exists():
                result = score_sealed(folder, file)
            else:
                lines = seal(folder, file, progress)
        elif iterations or (folder is not None and has_iterations(resolve_iterations_folder(folder))):
            from s2sim.validation.validate_iterations import validate_iterations

            result = validate_iterations(folder, progress)
        else:
            from s2sim.validation.validate_curves import run_validation

            result = run_validation(folder, progress, fit=fit)
    output.show_lines(lines)
    if result is not None:
        output.show_result(result, json, quiet=quiet)


@options_from(CalibrateSpec, needed=("topology",), unless="--testbed", leave_out=("seed", "faults"))
def calibrate_command(
    experiment: Experiment[CalibrateSpec],
    *,
    out: str | None = None,
    testbed: str | None = None,
    setting: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Fit what a library adds to the wire to measurements of one's own machine.

    Constants are pulled to those that are shipped, as strongly as these are known, so that a few sizes suffice. What is
    told of each: its value, between what it lies, and how far off a point is that was left out.
    """
    values, screen = experiment.values, None
    if testbed is not None:
        if any(value not in (None, False, []) for name, value in values.items() if name != "placement"):
            raise OptionError("--testbed tells machine, library and what was measured: give --setting alone beside it")
    elif setting is not None:
        raise OptionError(f"--setting {setting} is one of a folder: give --testbed DIR")
    else:
        experiment.check_needed(("--topology",), example_of("dev calibrate"))
    _check_out(out)
    if testbed is None and out is not None and not values["logs"]:
        raise OptionError("--out writes what logs tell: name one")
    check_targets(json=json, out=out)
    result: Any
    if testbed is not None:
        from s2sim.report.log_comparison import fit_screen
        from s2sim.testbed.measured import read_measured, resolve_testbeds_folder
        from s2sim.validation.testbed import setting_named
        from s2sim.validation.testbed_fit import fit_setting, profile_toml

        measured = read_measured(resolve_testbeds_folder(testbed))
        chosen = setting_named(measured, setting)
        with output.watching(quiet=quiet) as progress:
            result = fit_setting(chosen, measured.collectives, progress)
        screen, library, profile = fit_screen(result), "gloo", profile_toml(result)
    else:
        from s2sim.validation.calibrate import run_calibration

        spec = experiment.spec()
        with output.watching(quiet=quiet) as progress:
            result = run_calibration(spec, progress)
        library, profile = result.library, result.profile
    if out is not None:
        output.write_text(profile, out)
    if output.show_result(result, json, screen, output.show_line, quiet=quiet) and out is not None and not quiet:
        output.show_line(f"Written to {out}: simulate with --library {library}:timing={out}")


def codecs_command(
    *,
    reducer: list[str] | None = None,
    recorded: str | None = None,
    out: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Measure what codecs take on the processors of this machine, where hooks run them in NumPy.

    Two processes on loopback run each codec on some buckets. The file has constants that fit all, and a factor a
    reducer; s2sim run --recorded DIR takes that of DIR, any run takes --gpu FILE.toml.
    """
    from s2sim.profiles.read import CODECS

    out = out or (None if recorded is None else f"{recorded}/{CODECS}")
    _check_out(out)
    check_targets(json=json, out=out)
    from s2sim.validation.calibrate_codecs import calibrate_codecs

    with output.watching(quiet=quiet) as progress:
        found = calibrate_codecs(reducer or (), recorded, progress)
    if out is not None:
        output.write_text(found.text, out)
    if output.json_alone(found.to_json(), json) or quiet:
        return
    output.show_lines([f"{name}: {factor:.2f} times what the constants say" for name, factor in found.factors.items()])
    output.show_line(f"Median error of {len(found.times)} buckets: {found.median_error:.0%}")
    if out is not None:
        output.show_line(f"Written to {out}: simulate with --gpu {out}")


def _check_out(out: str | None) -> None:
    if out is not None and not out.endswith(".toml"):
        raise OptionError(f"--out {out}: give a name that ends in .toml, by which --library knows it for a file")


# Of a reducer whose values or bytes are not as they should be.
_DISAGREES = 1

bridge = group("dev bridge")


@command(bridge, "dev bridge check")
def check_command(
    *,
    reducer: list[str] | None = None,
    workers: int = 4,
    trace: str = "ncf",
    steps: int = 2,
    seed: int = 0,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Start a process for every worker, run reducers between them over Gloo, and compare with the same in memory.

    Values must be the same bits where nothing is summed in another order, else within 1e-6; what the kernel counts must
    be what the simulator says is sent, and the library's headers, to the byte. Exit code 1 if a reducer disagrees.
    """
    from s2sim.report.validation_tables import check_grid, check_lines
    from s2sim.validation.bridge_check import ALL_REDUCERS, run_check

    check_targets(json=json)
    if workers < 1 or steps < 1:
        raise OptionError(f"--workers {workers} --steps {steps}: there is at least one of each")
    with output.watching(quiet=quiet) as progress:
        checked = run_check(reducer or [ALL_REDUCERS], workers, trace, steps, seed, progress)
    if output.write_result(checked, json):
        output.show_grids([check_grid(checked)])
        lines = check_lines(checked)
        output.show_paragraphs(lines[-1:] if quiet else lines)
    if not checked.complete:
        raise typer.Exit(INTERRUPTED)
    if not all(row.ok for row in checked.rows):
        raise typer.Exit(_DISAGREES)
