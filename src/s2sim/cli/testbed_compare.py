"""``s2sim testbed compare`` and ``s2sim testbed topology``: what was measured on testbeds, as the simulator has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli.options import JsonOption, QuietOption, examples

if TYPE_CHECKING:
    from s2sim.testbed.measured_folder import MeasuredTestbeds

COMPARE = examples(
    "s2sim testbed compare",
    "s2sim testbed compare --calibrate-on w8-1000mbps --json -",
    "s2sim testbed compare my-testbeds --plot times.png",
)
TOPOLOGY = examples(
    "s2sim testbed topology w8-1000mbps --out testbed.toml",
    "s2sim collective all_reduce --topology testbed.toml --workers 8 --size 1MiB",
)

FolderOption = Annotated[
    str | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Folder with what s2sim testbed run measured.",
        show_default="what is shipped",
    ),
]


def compare_command(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR", help="Folder with what s2sim testbed run measured.", show_default="what is shipped"
        ),
    ] = None,
    calibrate_on: Annotated[
        str | None,
        typer.Option(
            metavar="SETTING",
            help="The setting whose collectives tell the constants; all others are predicted.",
            show_default="the first",
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.png",
            help="Draw predicted and measured times of collectives; .svg and .pdf work too.",
            show_default="no file",
        ),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Predict what was measured on testbeds, with constants that one setting alone tells.

    Collectives are simulated on the cluster that each setting is. Of reducers the exchange is simulated; codecs, which
    are NumPy on shared processors here, take what the calibrated setting measured, scaled.
    """
    from s2sim.cli.output import STDOUT, show_grids, show_lines, write_figure, write_json
    from s2sim.cli.progress import watching
    from s2sim.cli.targets import check_targets

    check_targets(json=json, plot=plot)
    if plot is not None:
        from s2sim.report.figures.figure_file import check_picture

        check_picture(plot)
    measured = _read(folder)

    from s2sim.report.tables.testbed_predicted import comparison_grids, comparison_lines
    from s2sim.study.testbed.compare import compare

    with watching(quiet=quiet) as progress:
        result = compare(measured, calibrate_on, progress)
    if json is not None:
        write_json(result.to_json(), json)
    if plot is not None:
        from s2sim.report.figures.testbed import times_figure

        write_figure(times_figure(result), plot)
    if json == STDOUT:
        return
    show_lines(comparison_lines(result))
    if not quiet:
        show_grids(comparison_grids(result))
    show_lines([f"Note: {note}." for note in result.notes])


def topology_command(
    setting: Annotated[str, typer.Argument(metavar="SETTING", help="Name of a setting that was measured.")],
    folder: FolderOption = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE.toml", help="Where to write it.", show_default="the screen")
    ] = None,
) -> None:
    """Write the cluster that a setting is to the simulator as a topology file."""
    from s2sim.cli.output import show_lines, write_text
    from s2sim.cli.targets import check_targets
    from s2sim.study.testbed.cluster import setting_toml
    from s2sim.study.testbed.compare import setting_named

    check_targets(out=out)
    measured = _read(folder)
    text = setting_toml(setting_named(measured, setting))
    if out is None:
        show_lines(text.rstrip().splitlines())
    else:
        write_text(text, out)


def _read(folder: str | None) -> MeasuredTestbeds:
    from s2sim.testbed.measured_folder import measured_testbeds_folder, read_measured

    return read_measured(measured_testbeds_folder(folder))
