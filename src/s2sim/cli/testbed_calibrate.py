"""``s2sim calibrate --testbed``: fit Gloo's constants to one setting of a measured testbed."""

from __future__ import annotations

from s2sim.errors import OptionError


def check_out(out: str | None) -> None:
    """Refuse a name that ``--library`` would not know for a file."""
    if out is not None and not out.endswith(".toml"):
        raise OptionError(f"--out {out}: give a name that ends in .toml, by which --library knows it for a file")


def check_alone(*others: object | None) -> None:
    """Refuse options that say what a testbed says itself."""
    if any(each is not None for each in others):
        raise OptionError("--testbed tells machine, library and what was measured: give --setting alone beside it")


def check_setting(setting: str | None) -> None:
    """Refuse a setting of no folder."""
    if setting is not None:
        raise OptionError(f"--setting {setting} is one of a folder: give --testbed DIR")


def calibrate_setting(folder: str, setting: str | None, *, out: str | None, json: str | None, quiet: bool) -> None:
    """Fit, show and write the constants that one setting tells."""
    from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json, write_text
    from s2sim.cli.progress import watching
    from s2sim.cli.targets import check_targets

    check_out(out)
    check_targets(json=json, out=out)

    from s2sim.report.tables.testbed_predicted import constants_grid, fit_lines
    from s2sim.study.testbed.compare import setting_named
    from s2sim.study.testbed.fit import fit_setting
    from s2sim.study.testbed.profile import setting_profile
    from s2sim.testbed.measured_folder import measured_testbeds_folder, read_measured

    measured = read_measured(measured_testbeds_folder(folder))
    chosen = setting_named(measured, setting)
    with watching(quiet=quiet) as progress:
        fit = fit_setting(chosen, measured.collectives, progress)
    if json is not None:
        write_json(fit.to_json(), json)
    if out is not None:
        write_text(setting_profile(fit), out)
    if json == STDOUT:
        return
    show_lines(fit_lines(fit))
    if not quiet:
        show_grids([constants_grid(fit.constants)])
        if out is not None:
            show_lines([f"Written to {out}: simulate with --library gloo:timing={out}"])
