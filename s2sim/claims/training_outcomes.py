"""Reducers in the loop of real training, as claims of accuracy need it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import numpy as np

from s2sim.claims import paper
from s2sim.experiment.progress import ProgressWatcher
from s2sim.training.curve import Curve, Interval, plateau, ratio_interval, t_interval
from s2sim.training.result import TrainRow
from s2sim.training.spec import TrainSpec
from s2sim.units import format_bytes, format_number_of

NEEDS = "needs the extra torch: pip install 's2sim[torch]'"
DENSE = "dense"

_MOST_STEPS, _WINDOW = 3000, 400
"""Steps after which a training ends though it still improves, and in which it has to improve by a hundredth."""


@dataclass(frozen=True, slots=True)
class TrainingComparison:
    """A training to compare reducers by."""

    model: str  # Option string of a model that `s2sim train` has
    reducers: Mapping[str, str]  # Option strings by what they are called; ``dense`` is added
    # As in `s2sim.training.spec.TrainSpec`
    workers: int
    steps: int
    seeds: int
    reads_text: bool = False  # Whether the model learns from text: the help texts that come with Python
    until: str = "--full trains until dense stops improving"  # Why no longer; empty where that has to be found

    def for_effort(self, effort: paper.PaperEffort) -> "TrainingComparison":
        """Return one that, unless it has to be quick, goes on until dense stops improving."""
        return self if effort.quick else replace(self, steps=_MOST_STEPS, until="")

    @property
    def line(self) -> str:
        """What is trained, in words."""
        text = ", on the help texts that come with Python" if self.reads_text else ""
        return (
            f"in the loop: {self.model} of s2sim train{text}, {self.workers} ranks, {self.steps} steps ({self.until}), "
            f"{self.seeds} seeds, error feedback where a reducer needs it"
        )


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """The result of a training, by the names of its reducers, dense first."""

    loop: TrainingComparison
    score: str  # What accuracy is the share of
    rows: Mapping[str, TrainRow]  # Over all seeds
    curves: Mapping[str, list[Curve]]  # One a seed

    def table(self) -> paper.Table:
        """Return loss, accuracy and bytes of all reducers, with intervals over seeds."""
        rows = []
        for name, row in self.rows.items():
            loss = "diverges" if row.stopped or row.loss is None else row.loss.text("{:.3f}")
            accuracy = "-" if row.stopped or row.accuracy is None else row.accuracy.text("{:.1%}")
            sent = row.step_bytes.mean
            rows.append((name, loss, accuracy, format_bytes(sent), f"{self.rows[DENSE].step_bytes.mean / sent:,.0f}x"))
        columns = ("", "loss on held-out data", f"share of {self.score}", "sent a step", "fewer bytes")
        return paper.Table(f"In the loop, {self.loop.model}: mean and 95 % interval over seeds", columns, tuple(rows))

    def chart(self) -> paper.Chart:
        """Return the loss on held-out data over steps, with least and most over seeds; without what diverges."""
        lines = []
        for name, curves in self.curves.items():
            if self.rows[name].stopped:
                continue
            long = min(len(curve.iterations) for curve in curves)
            losses = np.array([curve.eval_loss[:long] for curve in curves])
            parts = (losses.mean(axis=0), losses.min(axis=0), losses.max(axis=0))
            steps = tuple(curves[0].iterations[:long].tolist())
            lines.append(paper.Line(name, steps, *(tuple(part.tolist()) for part in parts)))
        title = f"Loss on held-out data, {self.loop.model}: mean, least and most over {self.loop.seeds} seeds"
        return paper.Chart(title, "step", "loss", tuple(lines), log_y=True)

    def steps_table(self) -> paper.Table:
        """Return the same curves at some steps."""
        lines = self.chart().lines
        last = min((len(line.x) for line in lines), default=0) - 1
        places = sorted({round(share * last / 5) for share in range(6)} if lines else ())
        rows = [(line.name, *(f"{line.y[place]:.3f}" for place in places)) for line in lines]
        columns = ("", *(f"{lines[0].x[place]:,} steps" for place in places))
        return paper.Table(f"Mean loss on held-out data, {self.loop.model}", columns, tuple(rows))

    def points_lost(self, name: str, against: str = DENSE) -> Interval | None:
        """Return the points of accuracy below another reducer's after the last step; None if one diverges."""
        if self.rows[name].stopped or self.rows[against].stopped:
            return None
        pairs = list(zip(self.curves[name], self.curves[against], strict=True))
        lost = [100 * float(other.accuracy[-1] - own.accuracy[-1]) for own, other in pairs]
        return t_interval(lost, 100 * max((own.accuracy_step for own, _ in pairs), default=0.0))


def run_training(loop: TrainingComparison, progress: ProgressWatcher) -> TrainingOutcome | None:
    """Train and return the outcome; None if the extra torch is missing."""
    if find_spec("torch") is None or find_spec("sklearn") is None:
        return None
    import pydoc_data.topics

    from s2sim.training.run import train

    options = {DENSE: DENSE, **loop.reducers}
    spec = TrainSpec.of(
        "tcp-10g",
        model=loop.model,
        reducers=tuple(options.values()),
        workers=loop.workers,
        steps=loop.steps,
        seeds=loop.seeds,
        text=(pydoc_data.topics.__file__,) if loop.reads_text else (),
        evaluate_every=max(1, loop.steps // 10),
    )
    if not loop.until:
        alone = train(replace(spec, reducers=(DENSE,), seeds=1, evaluate_every=_WINDOW // 8), progress)
        found = plateau(alone.curves[0], _WINDOW)
        why = f"dense has not improved by a hundredth in {_WINDOW}" if found else "dense still improves by a hundredth"
        loop = replace(loop, steps=found or loop.steps, until=why)
        spec = replace(spec, steps=loop.steps, evaluate_every=loop.steps // 10)
    trained = train(spec, progress)
    if not trained.complete:
        raise KeyboardInterrupt
    rows = {row.reducer: row for row in trained.rows}
    curves = {name: [curve for curve in trained.curves if curve.reducer == option] for name, option in options.items()}
    return TrainingOutcome(loop, trained.score, {name: rows[option] for name, option in options.items()}, curves)


def loop_part(
    loop: TrainingComparison,
    progress: ProgressWatcher,
    texts: paper.PaperTexts,
    names: Iterable[str],
    judge: Callable[[TrainingOutcome, str, paper.Claim], paper.Claim],
) -> paper.PaperPart:
    """Train, and return a claim for each of these reducers, in texts under its name, with table and chart.

    ``judge`` gets the outcome, the name and the claim as it stands without PyTorch: not testable.
    """
    claims = {name: texts.claim(name, "not testable", name=name, ours="-", rule=NEEDS, why="") for name in names}
    if (found := run_training(loop, progress)) is None:
        why = "models are trained with PyTorch"
        return paper.PaperPart(tuple(replace(claim, why=why) for claim in claims.values()))
    judged = tuple(judge(found, name, claim) for name, claim in claims.items())
    return paper.PaperPart(judged, (found.table(), found.steps_table()), (found.chart(),), setup=(found.loop.line,))


def in_the_loop(texts: paper.PaperTexts) -> paper.Part:
    """Return the part of a paper that trains 4 ranks as ``figures.loop`` of its texts says, and judges accuracy.

    Those with a claim may lose ``most_points`` ``against`` one of them or dense; 1 counts as none: one of 180 digits is
    .6. ``steps`` are of a quick training.
    """
    told = texts.figures["loop"]

    def part(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
        steps, seeds = told.get("steps", 300), 2 if effort.quick else 5
        loop = TrainingComparison(told["model"], told["reducers"], 4, steps, seeds)
        judge = partial(accuracy_claim, points=told["most_points"], against=told.get("against", DENSE))
        return loop_part(loop.for_effort(effort), progress, texts, told["most_points"], judge)

    return part


def accuracy_claim(
    found: TrainingOutcome, name: str, claim: paper.Claim, points: Mapping[str, int] | None = None, against: str = DENSE
) -> paper.Claim:
    """Return a claim judged by how many points of accuracy a reducer loses against dense, or another."""
    lost, rows = found.points_lost(name, against), (found.rows[name], found.rows[against])
    most_points = (points or {}).get(name, 1)
    fewer, stopped = rows[1].step_bytes.mean / rows[0].step_bytes.mean, rows[0].stopped
    ours = "diverges"
    if lost is not None:
        between = "" if lost.low is None or lost.high is None else f" [{-lost.high:+.1f}, {-lost.low:+.1f}]"
        ours = f"{-lost.mean:+.1f} points{between}"
    accuracies = " against ".join("-" if row.accuracy is None else row.accuracy.text("{:.1%}") for row in rows)
    times = f"{fewer:{',.0f' if fewer >= 10 else '.1f'}} times fewer bytes a step"
    why = f"{accuracies} of {found.score}, at {times}; small models forgive more than large ones"
    below = f"{format_number_of(most_points, 'point')} below that of {against}"
    return replace(
        claim,
        ours=ours,
        judgement=judge_loss(lost, most_points),
        rule=f"reproduced where accuracy is at most {below} {_all_over(found)}",
        why=stopped[0] if stopped else why,
    )


def judge_loss(lost: Interval | None, most: float) -> paper.ClaimJudgement:
    """Return the judgement on a loss of at most ``most`` over seeds; None stands for a training that diverges.

    An equivalence is shown by an interval that lies within the margin (D. Schuirmann, 1987), and not by its mean.

    >>> judge_loss(Interval(0.5, -0.1, 0.9, 5), 1.0), judge_loss(Interval(0.5, -1.0, 2.0, 3), 1.0)
    ('reproduced', 'not testable')
    >>> judge_loss(Interval(1.5, 1.2, 1.8, 3), 1.0), judge_loss(None, 1.0)
    ('not reproduced', 'not reproduced')
    """
    if lost is None:
        return "not reproduced"
    if lost.low is None or lost.high is None or lost.low <= most < lost.high:
        return "not testable"
    return paper.judge_condition(lost.high <= most)


def loss_claim(found: TrainingOutcome, name: str, claim: paper.Claim, most_share: float) -> paper.Claim:
    """Return a claim judged by how far a reducer's loss is above dense's, pair by pair over seeds."""
    stopped = found.rows[name].stopped
    own, dense = ([curve.eval_loss[-1] for curve in found.curves[each]] for each in (name, DENSE))
    above = None if stopped or found.rows[DENSE].stopped else ratio_interval(own, dense)
    between = "" if above is None or above.low is None else f" ({above.low:.3f} to {above.high:.3f})"
    return replace(
        claim,
        ours="diverges" if above is None else f"loss {above.mean:.3f} times dense's{between}",
        judgement=judge_loss(above, 1 + most_share),
        rule=f"reproduced where the loss on held-out data is at most {most_share:.0%} above dense's {_all_over(found)}",
        why=f"{stopped[0]}; {claim.why}" if stopped else claim.why,
    )


def _all_over(found: TrainingOutcome) -> str:
    interval = f"the 95 % interval of {found.loop.seeds} seeds"
    return f"all over {interval}, not where it is so nowhere in it, and not testable between"
