"""``s2sim trace``: look at, check, record and import gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.cli.options import FORCE, JSON, SILENT, TEXT, argument, check_targets, examples, group, option, switch
from s2sim.cli.output import json_alone, note, show_grids, show_lines, watching, working
from s2sim.experiment.cluster_spec import parse_workers

if TYPE_CHECKING:
    from s2sim.gradients.read_trace import Trace

_SHOW = ("s2sim trace show lstm-lm", "s2sim trace show ncf --json -")
_CHECK = ("s2sim trace check lstm-lm", "s2sim trace check cnn --quiet")
_RECORD = (
    "s2sim trace record lstm --workers 64 --steps 1 --text my-text.txt --out my-trace",
    "s2sim trace record ncf --workers 8 --steps 5 --out clicks --seed 1",
)
_IMPORT = (
    "s2sim trace import rank0.npy rank1.npy --out my-trace",
    "s2sim trace import step0-rank0.npy step0-rank1.npy step1-rank0.npy step1-rank1.npy --out my-steps",
    "s2sim trace import rank0.npy rank1.npy --out my-cnn --model 'ResNet-50, step 1000' --licence CC0-1.0",
)

app = group(
    help="Look at, check, record and import gradients.", epilog=examples(_SHOW[0], _CHECK[0], _RECORD[0], _IMPORT[0])
)

TRACE = argument("TRACE", "Name of a shipped trace (see s2sim list traces) or path of a directory.", default=...)
OUT = option("DIR", "Directory to write; its parent must exist.", default=...)
OVERWRITE = switch("--overwrite", "Replace a trace that is there already.")


@app.command("show", epilog=examples(*_SHOW), short_help="Show what a trace says about itself.")
def show_command(trace: str = TRACE, json: str | None = JSON) -> None:
    """Show what a trace says about itself: model, layers, density, union growth and its law, tail, origin, sizes."""
    from s2sim.cli.trace_text import law_grid, layer_grid, manifest_json, manifest_lines, union_grid

    check_targets(json=json)

    from s2sim.gradients.law import forecast
    from s2sim.gradients.synthetic import load_trace

    opened = load_trace(trace, workers=1)
    # A synthetic trace has no statistics in a file: they are measured on what it draws.
    from s2sim.gradients.statistics import trace_statistics

    statistics = opened.manifest.statistics or trace_statistics(opened)
    law = forecast(opened)
    if json_alone(manifest_json(opened, statistics, law), json):
        return
    show_lines(manifest_lines(opened))
    show_grids([layer_grid(opened.manifest, statistics), union_grid(statistics)])
    if law is not None and law.layers:
        show_grids([law_grid(law)])


@app.command("check", epilog=examples(*_CHECK), short_help="Read every gradient with all checks.")
def check_command(trace: str = TRACE, quiet: bool = SILENT) -> None:
    """Read every gradient of a trace with all checks, and measure its statistics again; exit code 2 if one fails."""
    from s2sim.gradients.read_trace import open_trace

    opened = open_trace(trace)
    with working(f"checking {len(opened.manifest.files)} files", quiet=quiet):
        opened.verify()
    if not quiet:
        show_lines([f"trace {opened.name} is sound: {len(opened.manifest.files)} files checked"])


@app.command("record", epilog=examples(*_RECORD), short_help="Train a model and record every rank's gradient.")
def record_command(
    model: str = argument(
        "MODEL",
        "lstm, ncf, cnn or transformer, with options as in lstm:width=32. lstm and transformer need --text.",
        default=...,
    ),
    workers: str = option("N", "Shards of the data, one a rank.", default=...),
    out: str = OUT,
    steps: int = option(None, "Consecutive training steps to record.", default=1),
    text: list[str] | None = TEXT,
    seed: int = option(None, "Root of all randomness, a whole number from 0.", default=0),
    overwrite: bool = OVERWRITE,
    quiet: bool = SILENT,
) -> None:
    r"""Train a real model on real data and record every rank's gradient at the same weights; needs the extra torch."""
    count = parse_workers(workers)

    from s2sim.pytorch.record_trace import record

    with watching(quiet=quiet) as progress:

        def follow(done: int, total: int) -> None:
            if done == 1:
                progress.start(total, f"training {model} (mini-batches)")
            progress.advance()

        recorded = record(
            model,
            workers=count,
            steps=steps,
            out=out,
            text=list(text or ()),
            seed=seed,
            overwrite=overwrite,
            progress=follow,
        )
    _written(recorded, out, quiet=quiet)


@app.command("import", epilog=examples(*_IMPORT), short_help="Make a trace of your own gradients.")
def import_command(
    files: list[str] = argument(
        "FILES",
        ".npy, .npz, .safetensors or .pt files with the same layers: one a rank in rank order, or one a step "
        "and rank with names that tell both, such as step3-rank1.pt.",
        default=...,
    ),
    out: str = OUT,
    model: str = option(None, "One line on the model.", default="imported gradients"),
    data: str = option(None, "What the model was trained on.", default="gradients of the user"),
    licence: str = option(None, "Licence of these data.", default="not stated"),
    overwrite: bool = OVERWRITE,
    quiet: bool = SILENT,
    force: bool = FORCE,
) -> None:
    """Make a trace of your own gradients, one file a rank, or a step and rank."""
    from s2sim.experiment.costs import cost_of, import_features, make_gate
    from s2sim.gradients.import_trace import import_trace

    make_gate(note, force=force, less="fewer files, or smaller ones")(cost_of("import", import_features(files)))
    with working(f"importing {len(files)} files", quiet=quiet):
        imported = import_trace(files, out, model=model, data=data, licence=licence, overwrite=overwrite)
    _written(imported, out, quiet=quiet)


def _written(trace: Trace, out: str, *, quiet: bool) -> None:
    from s2sim.cli.trace_text import describe_extent, usage_line

    if not quiet:
        show_lines(
            [f"wrote {describe_extent(trace.manifest)} to {out}", f"use it with: s2sim run {usage_line(trace, out)}"]
        )
