"""``s2sim train``: train a real model with reducers in the loop."""

from __future__ import annotations

from pathlib import Path

from s2sim.cli import options as cli
from s2sim.cli.output import show_result, watching, write_bytes
from s2sim.errors import S2SimError
from s2sim.files import user_path
from s2sim.training.spec import TrainSpec

EXAMPLES = cli.examples(
    "s2sim train cnn --reducer topk:density=0.01 --reducer fp16 --steps 60 --seeds 2",
    "s2sim train lstm --text book.txt --reducer s2-exact --reducer topk:density=0.01 --topology tcp-10g --out lstm-run",
    "s2sim train lstm --text book.txt --reducer s2-exact --reducer topk:density=0.01 --topology tcp-10g --out lstm-run "
    "--resume",
    "s2sim train ncf --reducer powersgd --target-accuracy 0.5 --compute 20ms --png ncf.png",
)


@cli.takes_tables()
@cli.options_from(TrainSpec, topology="fat-tree")
def train_command(
    experiment: cli.Experiment[TrainSpec],
    out: str | None = cli.option("FOLDER", "Keep checkpoints there, to go on from.", "none are kept"),
    resume: bool = cli.switch("--resume", "Go on from the checkpoints of --out; more reducers and seeds may join."),
    png: str | None = cli.PNG,
    json: str | None = cli.JSON,
    quiet: bool = cli.QUIET,
) -> None:
    """Train a real model with real gradients through reducers; loss against iterations and simulated time.

    All ranks' mini-batches are trained in this process, with every reducer's feedback and state from step to step; what
    a step sends is replayed on the cluster. Ctrl-C keeps what is done. Needs the extra torch.
    """
    cli.check_targets(json=json, png=png)
    spec = experiment.spec()

    from s2sim.training.run import train

    with watching(quiet=quiet) as progress:
        result = train(spec, progress, out=None if out is None else user_path(out, S2SimError), resume=resume)
    if png is not None:
        from s2sim.report.figures.curves import draw_training

        write_bytes(draw_training(result, Path(png).suffix[1:].lower()), png)
    show_result(result, json, quiet=quiet)
