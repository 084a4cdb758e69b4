"""``s2sim dev calibrate``: fit constants of a library to measurements of one's own machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.cli.options import JSON, QUIET, Experiment, check_targets, examples, option, options_from
from s2sim.cli.output import show_line, show_result, watching, write_text
from s2sim.errors import OptionError
from s2sim.validation.calibrate_spec import CalibrateSpec

if TYPE_CHECKING:
    from s2sim.report.grid import Screen

_EXAMPLE = "s2sim dev calibrate measured.log --topology dgx-h100 --out mine.toml"
EXAMPLES = examples(
    _EXAMPLE,
    "s2sim dev calibrate measured.log --topology dgx-h100 --suggest",
    "s2sim dev calibrate --suggest --topology dgx-h100 --workers 16",
    "s2sim dev calibrate --testbed measured_testbed --setting w4-200mbps --out gloo-here.toml",
    "s2sim collective all_reduce --topology dgx-h100 --workers 2 --size 4MiB --library nccl:timing=mine.toml",
)


@options_from(CalibrateSpec, needed=("topology",), unless="--testbed", leave_out=("seed", "faults"))
def calibrate_command(
    experiment: Experiment[CalibrateSpec],
    out: str | None = option(
        "FILE.toml",
        "Write the constants, with what they were fitted to, for --library nccl:timing=FILE.toml.",
        "no file",
    ),
    testbed: str | None = option(
        "DIR", "Fit Gloo's constants to what s2sim dev testbed run measured of one --setting; needs no topology.", False
    ),
    setting: str | None = option("NAME", "The setting, with --testbed.", "the first of the folder"),
    json: str | None = JSON,
    quiet: bool = QUIET,
) -> None:
    """Fit what a library adds to the wire to measurements of one's own machine.

    Constants are pulled to those that are shipped, as strongly as these are known, so that a few sizes suffice. What is
    told of each: its value, between what it lies, and how far off a point is that was left out.
    """
    values = experiment.values
    if testbed is not None:
        if any(value not in (None, False, []) for name, value in values.items() if name != "placement"):
            raise OptionError("--testbed tells machine, library and what was measured: give --setting alone beside it")
        _check_out(out)
        check_targets(json=json, out=out)
        _calibrate_setting(testbed, setting, out=out, json=json, quiet=quiet)
        return
    if setting is not None:
        raise OptionError(f"--setting {setting} is one of a folder: give --testbed DIR")
    experiment.check_needed(("--topology",), _EXAMPLE)
    _check_out(out)
    if out is not None and not values["logs"]:
        raise OptionError("--out writes what logs tell: name one")
    check_targets(json=json, out=out)

    from s2sim.validation.calibrate import run_calibration

    spec = experiment.spec()
    with watching(quiet=quiet) as progress:
        result = run_calibration(spec, progress)
    _finish(result, None, result.library, result.profile, out, json, quiet=quiet)


def _check_out(out: str | None) -> None:
    if out is not None and not out.endswith(".toml"):
        raise OptionError(f"--out {out}: give a name that ends in .toml, by which --library knows it for a file")


def _calibrate_setting(folder: str, setting: str | None, *, out: str | None, json: str | None, quiet: bool) -> None:
    """Fit Gloo's constants to one setting of a measured testbed; show and write them."""
    from s2sim.report.testbed_tables import fit_screen
    from s2sim.testbed.measured import read_measured, resolve_testbeds_folder
    from s2sim.validation.testbed import setting_named
    from s2sim.validation.testbed_fit import fit_setting, profile_toml

    measured = read_measured(resolve_testbeds_folder(folder))
    chosen = setting_named(measured, setting)
    with watching(quiet=quiet) as progress:
        fit = fit_setting(chosen, measured.collectives, progress)
    _finish(fit, fit_screen(fit), "gloo", profile_toml(fit), out, json, quiet=quiet)


def _finish(
    result: Any, screen: Screen | None, library: str, profile: str, out: str | None, json: str | None, *, quiet: bool
) -> None:
    """Write fitted constants as a profile and as JSON, and show them."""
    if out is not None:
        write_text(profile, out)
    if show_result(result, json, screen, show_line, quiet=quiet) and out is not None and not quiet:
        show_line(f"Written to {out}: simulate with --library {library}:timing={out}")
