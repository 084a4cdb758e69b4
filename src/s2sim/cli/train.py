"""``s2sim train``: real training with reducers in the loop, the simulated cluster's clock beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli import INTERRUPTED
from s2sim.cli.options import (
    FaultOption,
    GpuOption,
    JsonOption,
    LibraryOption,
    PlacementOption,
    QuietOption,
    RootSeedOption,
    SetOption,
    TopologyOption,
    examples,
    parse_workers,
)
from s2sim.errors import S2SimError
from s2sim.text_files import user_path

if TYPE_CHECKING:
    from s2sim.study.convergence.result import Trained

EXAMPLES = examples(
    "s2sim train cnn --reducer topk:density=0.01 --reducer fp16 --steps 60 --seeds 2",
    "s2sim train lstm --text book.txt --reducer s2-exact --reducer topk:density=0.01 --topology tcp-10g --out lstm-run",
    "s2sim train lstm --text book.txt --reducer s2-exact --reducer topk:density=0.01 --topology tcp-10g --out lstm-run "
    "--resume",
    "s2sim train ncf --reducer powersgd --target-accuracy 0.5 --compute 20ms --plot ncf.png",
)


def train_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="cnn (digits), ncf (recommendation), lstm or transformer (both need --text), with options as in "
            "lstm:width=32,learning_rate=2.",
        ),
    ],
    reducer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="A reducer to train with beside dense (see s2sim list reducers); repeatable. One that needs error "
            "feedback gets it, unless it says ef=false.",
            show_default="dense alone",
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="UTF-8 text for a language model; repeatable, read in order.", show_default="no text"
        ),
    ] = None,
    workers: Annotated[str, typer.Option(metavar="N", help="Number of workers (ranks, GPUs).")] = "8",
    steps: Annotated[int, typer.Option(metavar="N", help="Training steps.")] = 200,
    seeds: Annotated[int, typer.Option(metavar="N", help="How often everything is trained, from --seed on.")] = 3,
    topology: TopologyOption = "fat-tree",
    evaluate_every: Annotated[
        int, typer.Option(metavar="N", help="Steps from one evaluation on held-out data to the next.")
    ] = 20,
    target_loss: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="Loss on held-out data to be reached.", show_default="lowest that dense reaches"
        ),
    ] = None,
    target_accuracy: Annotated[
        float | None,
        typer.Option(metavar="X", help="Share of right answers to be reached, 0.9 for 90 %.", show_default="none"),
    ] = None,
    compute: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time of forward, backward and optimizer with its unit; added to the exchange, without overlap.",
            show_default="estimated",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Compute profile whose forward, backward and optimizer are added instead (see s2sim list profiles).",
            show_default="none",
        ),
    ] = None,
    learning_rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REDUCER=RATE",
            help="Another learning rate than the model's for one reducer; repeatable.",
            show_default="the model's",
        ),
    ] = None,
    library: LibraryOption = None,
    gpu: GpuOption = None,
    overrides: SetOption = None,
    placement: PlacementOption = "linear",
    fault: FaultOption = None,
    seed: RootSeedOption = 0,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Keep checkpoints there, to go on from.", show_default="none are kept"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoints of --out; more reducers and seeds may join.")
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Draw the curves; the name ends in .png, .svg or .pdf. Needs matplotlib (the extra plot).",
            show_default="no picture",
        ),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Train a real model with real gradients through reducers; loss against iterations and simulated time.

    All ranks' mini-batches are trained in this process, with every reducer's feedback and state from step to step; what
    a step sends is replayed on the cluster. Ctrl-C keeps what is done. Needs the extra torch.
    """
    from s2sim.cli.output import STDOUT, write_bytes, write_json
    from s2sim.cli.progress import watching
    from s2sim.cli.targets import check_targets
    from s2sim.study.convergence.spec import TrainSpec

    check_targets(json=json, plot=plot)
    spec = TrainSpec(
        topology=topology,
        model=model,
        reducers=tuple(reducer or ("dense",)),
        workers=parse_workers(workers),
        steps=steps,
        seeds=seeds,
        text=tuple(text or ()),
        evaluate_every=evaluate_every,
        learning_rates=tuple(learning_rate or ()),
        target_loss=target_loss,
        target_accuracy=target_accuracy,
        library=library,
        gpu=gpu,
        compute=compute,
        profile=profile,
        overrides=tuple(overrides or ()),
        placement=placement,
        faults=tuple(fault or ()),
        seed=seed,
    )

    from s2sim.study.convergence.run import train

    with watching(quiet=quiet) as progress:
        result = train(spec, progress, out=None if out is None else user_path(out, S2SimError), resume=resume)
    if json is not None:
        write_json(result.to_json(), json)
    if plot is not None:
        from s2sim.report.figures.convergence import draw_training

        write_bytes(draw_training(result, Path(plot).suffix[1:].lower()), plot)
    if json != STDOUT:
        _print(result, quiet=quiet)
    if not result.complete:
        raise typer.Exit(INTERRUPTED)


def _print(result: Trained, *, quiet: bool) -> None:
    from s2sim.cli.output import show_grids, show_paragraph
    from s2sim.report.tables.screens import train_screen

    screen = train_screen(result)
    if quiet:
        for line in result.verdict:
            show_paragraph(line)
        return
    for line in screen.before:
        show_paragraph(line)
    show_grids(screen.grids)
    for line in screen.after:
        show_paragraph(line)
