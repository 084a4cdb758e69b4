"""Reducers in the loop of real training, as claims of accuracy need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from s2sim.claims import paper
from s2sim.experiment.progress import ProgressWatcher
from s2sim.training.curve import Curve, Interval, t_interval
from s2sim.training.result import TrainRow
from s2sim.units import format_bytes, format_number_of

NEEDS = "needs the extra torch: pip install 's2sim[torch]'"
DENSE = "dense"

SAME_POINTS = 1
"""Points of accuracy that count as none: one of the 180 digits that a small network is held to is 0.6 of them."""


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

    @classmethod
    def small(
        cls, effort: paper.PaperEffort, model: str, reducers: Mapping[str, str], steps: tuple[int, int] = (300, 2000)
    ) -> TrainingComparison:
        """Return a training of 4 ranks: quick with the fewer steps and 2 seeds, else with more and 5."""
        return cls(model, reducers, workers=4, steps=steps[not effort.quick], seeds=2 if effort.quick else 5)

    @property
    def line(self) -> str:
        """What is trained, in words."""
        text = ", on the help texts that come with Python" if self.reads_text else ""
        return (
            f"in the loop: {self.model} of s2sim train{text}, {self.workers} ranks, {self.steps} steps, "
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
            loss = "diverges" if row.stopped else _claim_interval_text(row.loss, "{:.3f}")
            accuracy = "-" if row.stopped else _claim_interval_text(row.accuracy, "{:.1%}")
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

    def points_lost(self, name: str, against: str = DENSE) -> Interval | None:
        """Return the points of accuracy below another reducer's after the last step; None if one diverges."""
        if self.rows[name].stopped or self.rows[against].stopped:
            return None
        pairs = zip(self.curves[name], self.curves[against], strict=True)
        return t_interval([100 * float(other.accuracy[-1] - own.accuracy[-1]) for own, other in pairs])


def run_training(loop: TrainingComparison, progress: ProgressWatcher) -> TrainingOutcome | None:
    """Train and return the outcome; None if the extra torch is missing."""
    if find_spec("torch") is None or find_spec("sklearn") is None:
        return None
    import pydoc_data.topics

    from s2sim.training.run import train
    from s2sim.training.spec import TrainSpec

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
    trained = train(spec, progress)
    if not trained.complete:
        raise KeyboardInterrupt
    rows = {row.reducer: row for row in trained.rows}
    curves = {name: [curve for curve in trained.curves if curve.reducer == option] for name, option in options.items()}
    return TrainingOutcome(loop, trained.score, {name: rows[option] for name, option in options.items()}, curves)


def loop_part(
    loop: TrainingComparison,
    progress: ProgressWatcher,
    untrained: Iterable[tuple[str, str, str]],
    judge: Callable[[TrainingOutcome], Iterable[paper.Claim]],
) -> paper.PaperPart:
    """Train, and return the claims that are judged by it, with table and chart.

    ``untrained`` are texts, sources and published figures of the claims for where the extra torch is missing.
    """
    found = run_training(loop, progress)
    if found is None:
        why = "models are trained with PyTorch"
        claims = (paper.not_testable(text, source, NEEDS, why, published=said) for text, source, said in untrained)
        return paper.PaperPart(tuple(claims))
    return paper.PaperPart(tuple(judge(found)), (found.table(),), (found.chart(),), setup=(loop.line,))


def accuracy_claim(
    found: TrainingOutcome, name: str, most_points: int, text: str, source: str, published: str, *, against: str = DENSE
) -> paper.Claim:
    """Return the judgement by how many points of accuracy a reducer loses against dense, or another."""
    lost, rows = found.points_lost(name, against), (found.rows[name], found.rows[against])
    fewer, stopped = rows[1].step_bytes.mean / rows[0].step_bytes.mean, rows[0].stopped
    ours = "diverges"
    if lost is not None:
        between = "" if lost.low is None or lost.high is None else f" [{-lost.high:+.1f}, {-lost.low:+.1f}]"
        ours = f"{-lost.mean:+.1f} points{between}"
    accuracies = " against ".join(_claim_interval_text(row.accuracy, "{:.1%}") for row in rows)
    times = f"{fewer:{',.0f' if fewer >= 10 else '.1f'}} times fewer bytes a step"
    why = f"{accuracies} of {found.score}, at {times}; small models forgive more than large ones"
    return paper.Claim(
        text,
        source,
        published,
        ours,
        "not reproduced" if lost is None else judge_loss(lost, most_points),
        f"reproduced where accuracy is at most {format_number_of(most_points, 'point')} below that of {against}, mean "
        f"of {found.loop.seeds} seeds; not testable where it is not, but their 95 % interval reaches that",
        stopped[0] if stopped else why,
    )


def judge_loss(lost: Interval, most: float) -> paper.ClaimJudgement:
    """Return the judgement on a loss of at most ``most``; not testable if too few seeds leave it open.

    >>> judge_loss(Interval(0.5, -1.0, 2.0, 3), 1.0), judge_loss(Interval(1.5, 0.5, 2.5, 3), 1.0)
    ('reproduced', 'not testable')
    >>> judge_loss(Interval(1.5, 1.2, 1.8, 3), 1.0)
    'not reproduced'
    """
    if lost.mean <= most:
        return "reproduced"
    return "not testable" if lost.low is not None and lost.low <= most else "not reproduced"


def loss_claim(
    found: TrainingOutcome, name: str, most_share: float, text: str, source: str, published: str, why: str
) -> paper.Claim:
    """Return the judgement by how far a reducer's loss is above dense's."""
    own, dense = found.rows[name].loss, found.rows[DENSE].loss
    above = None if own is None or dense is None else own.mean / dense.mean - 1
    stopped = found.rows[name].stopped
    return paper.Claim(
        text,
        source,
        published,
        "diverges" if above is None else f"loss {1 + above:.3f} times dense's",
        paper.judge_condition(above is not None and above <= most_share),
        f"reproduced where the loss on held-out data is at most {most_share:.0%} above dense's, mean over "
        f"{found.loop.seeds} seeds",
        f"{stopped[0]}; {why}" if stopped else why,
    )


def _claim_interval_text(interval: Interval | None, form: str) -> str:
    if interval is None:
        return "-"
    mean = form.format(interval.mean)
    if interval.low is None or interval.high is None:
        return mean
    return f"{mean} ({form.format(interval.low)} to {form.format(interval.high)})"
