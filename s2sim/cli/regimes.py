"""``s2sim regimes``: where which compressor wins."""

from __future__ import annotations

from pathlib import Path

import typer

from s2sim.cli.options import JSON, PNG, QUIET, Experiment, check_targets, examples, options_from
from s2sim.cli.output import show_result, watching, write_bytes
from s2sim.errors import OptionError
from s2sim.regimes.map import DENSE, RegimeSpec, default_reducers

EXAMPLES = examples(
    "s2sim regimes --workers 8 --density 0.001,0.01 --overlap 0.5,1 --rate 10Gbps,100Gbps --latency 1us,50us",
    "s2sim regimes --workers 16 --density 0.01,0.1 --overlap 0.5 --reducer union --reducer owner-reduce "
    "--reducer fp16 --library nccl --png regimes.png",
    "s2sim regimes --workers 8 --density 0.01 --overlap 1 --latency 1us --tail 1.5 --max-error 0.3 --json -",
)


@options_from(RegimeSpec, workers="16", topology="fat-tree")
def regimes_command(
    experiment: Experiment[RegimeSpec],
    prefetch: bool | None = typer.Option(
        None,
        "--prefetch/--no-prefetch",
        help="Compare union:prefetch=true too, which presumes that the batch tells the rows before forward, as for "
        "embeddings.",
        show_default="no-prefetch",
    ),
    png: str | None = PNG,
    json: str | None = JSON,
    quiet: bool = QUIET,
) -> None:
    """Map which compressor (reducer) wins at which density, overlap, rate and latency, and by how much over dense.

    Every reducer runs once on synthetic gradients of each density and overlap; what it sends is then replayed at every
    rate and latency of the network interfaces.
    """
    named = tuple(experiment.values["reducers"] or ())
    if named and prefetch is not None:
        flag = "--prefetch" if prefetch else "--no-prefetch"
        raise OptionError(
            f"{flag} changes nothing beside --reducer: give --reducer union:prefetch=true, or leave one out"
        )
    check_targets(json=json, png=png)
    reducers = named or default_reducers(experiment.values["max_error"], prefetch=bool(prefetch))
    spec = experiment.spec(reducers=reducers if DENSE in reducers else (DENSE, *reducers))
    if png is not None:
        from s2sim.report.figures.regimes import check_picture_size

        check_picture_size(spec.cells)

    from s2sim.regimes.run import run_regimes

    with watching(quiet=quiet) as progress:
        result = run_regimes(spec, progress)
    if png is not None:
        from s2sim.report.figures.regimes import draw_regimes

        write_bytes(draw_regimes(result, Path(png).suffix[1:].lower()), png)
    show_result(result, json, quiet=quiet)
