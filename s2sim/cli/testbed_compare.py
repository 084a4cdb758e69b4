"""``s2sim dev testbed compare`` and ``s2sim dev testbed topology``: what was measured on testbeds, predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.cli.options import JSON, QUIET, argument, check_targets, examples, option
from s2sim.cli.output import show_line, show_lines, show_result, watching, write_figure, write_text

if TYPE_CHECKING:
    from s2sim.testbed.measured import MeasuredTestbeds

COMPARE = examples(
    "s2sim dev testbed compare",
    "s2sim dev testbed compare --calibrate-on w8-1000mbps --json -",
    "s2sim dev testbed compare my-testbeds --png times.png",
)
TOPOLOGY = examples(
    "s2sim dev testbed topology w8-1000mbps --out testbed.toml",
    "s2sim collective all_reduce --topology testbed.toml --workers 8 --size 1MiB",
)
FOLDER = option(None, "DIR", "Folder with what s2sim dev testbed run measured.", "what is shipped")


def compare_command(
    folder: str | None = argument(None, "DIR", "Folder with what s2sim dev testbed run measured.", "what is shipped"),
    calibrate_on: str | None = option(
        None, "SETTING", "The setting whose collectives tell the constants; all others are predicted.", "the first"
    ),
    png: str | None = option(
        None, "FILE.png", "Draw predicted and measured times of collectives; .svg and .pdf work too.", "no file"
    ),
    json: str | None = JSON,
    quiet: bool = QUIET,
) -> None:
    """Predict what was measured on testbeds, with constants that one setting alone tells.

    Collectives are simulated on the cluster that each setting is. Of reducers the exchange is simulated; codecs, which
    are NumPy on shared processors here, take what the calibrated setting measured, scaled.
    """
    check_targets(json=json, png=png)
    measured = _read(folder)

    from s2sim.report.testbed_tables import comparison_screen
    from s2sim.validation.testbed import compare_testbeds

    with watching(quiet=quiet) as progress:
        result = compare_testbeds(measured, calibrate_on, progress)
    if png is not None:
        from s2sim.report.figures.testbed import times_figure

        write_figure(times_figure(result), png)
    show_result(result, json, comparison_screen(result), show_line, quiet=quiet)


def topology_command(
    setting: str = argument(..., "SETTING", "Name of a setting that was measured."),
    folder: str | None = FOLDER,
    out: str | None = option(None, "FILE.toml", "Where to write it.", "the screen"),
) -> None:
    """Write the cluster that a setting is to the simulator as a topology file."""
    from s2sim.validation.testbed import setting_named
    from s2sim.validation.testbed_fit import setting_toml

    check_targets(out=out)
    measured = _read(folder)
    text = setting_toml(setting_named(measured, setting))
    if out is None:
        show_lines(text.rstrip().splitlines())
    else:
        write_text(text, out)


def _read(folder: str | None) -> MeasuredTestbeds:
    from s2sim.testbed.measured import read_measured, resolve_testbeds_folder

    return read_measured(resolve_testbeds_folder(folder))
