"""``s2sim calibrate``: fit constants of a library to measurements of one's own machine."""

from __future__ import annotations

from typing import Annotated

import typer

from s2sim.cli.options import (
    JsonOption,
    PlacementOption,
    QuietOption,
    SetOption,
    examples,
    parse_workers,
)
from s2sim.cli.testbed_calibrate import calibrate_setting, check_alone, check_out, check_setting
from s2sim.errors import OptionError

_EXAMPLE = "s2sim calibrate measured.log --topology dgx-h100 --out mine.toml"
EXAMPLES = examples(
    _EXAMPLE,
    "s2sim calibrate measured.log --topology dgx-h100 --suggest",
    "s2sim calibrate --suggest --topology dgx-h100 --workers 16",
    "s2sim calibrate --testbed measured_testbed --setting w4-200mbps --out gloo-here.toml",
    "s2sim collective all_reduce --topology dgx-h100 --workers 2 --size 4MiB --library nccl:timing=mine.toml",
)


def calibrate_command(
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOG...",
            help="Logs of nccl-tests or rccl-tests, as people keep them; five sizes from the smallest to the largest "
            "suffice. Required without --suggest.",
            show_default=False,
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="The machine: name of a shipped topology or path of a TOML file, which says nic.transport. Required.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N", help="Ranks that ran.", show_default="as the logs say")
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="What to take of the logs, for example all_reduce.", show_default="all"),
    ] = None,
    library: Annotated[
        str | None,
        typer.Option(
            metavar="LIBRARY",
            help="Library whose constants are fitted: nccl or rccl.",
            show_default="as the logs say, or nccl",
        ),
    ] = None,
    placement: PlacementOption = "linear",
    overrides: SetOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.toml",
            help="Write the constants, with what they were fitted to, for --library nccl:timing=FILE.toml.",
            show_default="no file",
        ),
    ] = None,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Say which measurement would make predictions surest.")
    ] = False,
    testbed: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Fit Gloo's constants to what s2sim testbed run measured of one --setting; needs no topology.",
            show_default=False,
        ),
    ] = None,
    setting: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The setting, with --testbed.", show_default="the first of the folder"),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Fit what a library adds to the wire to measurements of one's own machine.

    Constants are pulled to those that are shipped, as strongly as these are known, so that a few sizes suffice. What is
    told of each: its value, between what it lies, and how far off a point is that was left out.
    """
    from s2sim.cli.output import STDOUT, show_grids, show_lines, write_json, write_text
    from s2sim.cli.progress import watching
    from s2sim.cli.targets import check_targets

    if testbed is not None:
        check_alone(logs, topology, workers, collective, library, overrides, suggest or None)
        calibrate_setting(testbed, setting, out=out, json=json, quiet=quiet)
        return
    check_setting(setting)
    if topology is None:
        raise OptionError(f"--topology must be given, for example {_EXAMPLE}")
    check_out(out)
    if out is not None and not logs:
        raise OptionError("--out writes what logs tell: name one")
    check_targets(json=json, out=out)

    from s2sim.report.tables.screens import calibrate_screen
    from s2sim.study.calibrate.run import run_calibration
    from s2sim.study.calibrate.spec import CalibrateSpec

    spec = CalibrateSpec.of(
        topology,
        logs=logs or (),
        workers=None if workers is None else parse_workers(workers),
        collective=collective,
        library=library,
        placement=placement,
        overrides=overrides or (),
        suggest=suggest,
    )
    with watching(quiet=quiet) as progress:
        result = run_calibration(spec, progress)
    if json is not None:
        write_json(result.to_json(), json)
    if out is not None:
        write_text(result.profile, out)
    if json == STDOUT:
        return
    screen = calibrate_screen(result)
    show_lines(screen.before)
    if not quiet:
        show_grids(screen.grids)
    show_lines(screen.after)
    if out is not None and not quiet:
        show_lines([f"Written to {out}: simulate with --library {result.library}:timing={out}"])
