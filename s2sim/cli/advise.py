"""``s2sim advise``: what to change on a cluster or in a training job, and what that costs."""

from __future__ import annotations

from s2sim.cli import options as cli
from s2sim.cli.output import note, show_result, watching
from s2sim.errors import OptionError
from s2sim.experiment.spec import RunSpec

EXAMPLE = "s2sim advise best --topology leaf-spine --workers 8 --trace ncf --max-error 0.3"
_JOB = "--topology leaf-spine --workers 8 --trace ncf --compute 500us"
EXAMPLES = cli.examples(
    EXAMPLE,
    f"s2sim advise cheapest {_JOB} --changes changes.toml --faster 20%",
    f"s2sim advise largest {_JOB} --reducer union --efficiency 50%",
    f"s2sim advise frontier {_JOB} --changes changes.toml",
    "s2sim advise flips --topology leaf-spine --workers 8 --trace ncf --reducer fp16",
)
_SHOWN = ("topology", "workers", "reducers", "trace", "model", "profile", "batch", "max_error", "overrides", "library")
_HIDDEN = tuple(name for name in RunSpec.__dataclass_fields__ if name not in _SHOWN)


@cli.takes_tables(hidden=("parquet", "latex"))
@cli.options_from(RunSpec, needed=("topology", "workers"), hidden=_HIDDEN)
def advise_command(
    experiment: cli.Experiment[RunSpec],
    question: str = cli.argument("best|cheapest|largest|frontier|flips", "What to ask, see above.", default=...),
    changes: str | None = cli.option(
        "FILE.toml", "cheapest, frontier: what can be changed, and its prices (docs/advise.md).", "none"
    ),
    faster: str | None = cli.option("PERCENT", "cheapest: by how much a sample or a step has to be shorter.", "none"),
    efficiency: str | None = cli.option(
        "PERCENT", "largest: the share of the speed of one worker that each keeps.", "none"
    ),
    most_workers: int | None = cli.option("N", "largest: more workers are not tried.", "1024", minimum=1),
    json: str | None = cli.JSON,
    force: bool = cli.FORCE,
    quiet: bool = cli.QUIET,
) -> None:
    """Ask what to change on a cluster or in a training job: the question of s2sim run turned round.

    best: the quickest reducer, density and size of buckets below --max-error. cheapest: the cheapest of --changes that
    make it --faster. largest: the most workers at an --efficiency. frontier: what none of --changes betters in time,
    error and price together. flips: what would change the answer. Answers come with the runs that they rest on.
    """
    cli.check_targets(json=json)
    from s2sim.advice.advise import MOST_WORKERS, QUESTIONS_TAKE, advise
    from s2sim.experiment.costs import make_gate

    spec = experiment.saved_or(EXAMPLE)
    given = {"changes": changes, "faster": faster, "efficiency": efficiency, "most_workers": most_workers}
    for name, value in given.items():
        if value is not None and name not in QUESTIONS_TAKE.get(question, given):
            raise OptionError(f"advise {question} takes no --{name.replace('_', '-')}: leave it out")
    with watching(quiet=quiet) as progress:
        result = advise(
            question,
            spec=spec,
            changes=changes,
            faster=_share("faster", faster),
            efficiency=_share("efficiency", efficiency),
            most_workers=most_workers or MOST_WORKERS,
            progress=progress,
            gate=make_gate(note, force=force),
        )
    show_result(result, json, quiet=quiet)


def _share(name: str, text: str | None) -> float | None:
    """Return a share from 0 to 1 of a text such as 20% or 0.2."""
    if text is None:
        return None
    try:
        return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise OptionError(f"--{name} {text}: write a share such as 20%") from None
