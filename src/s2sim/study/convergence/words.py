"""The answer of a training in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.convergence.curve import Curve, Target
    from s2sim.study.convergence.intervals import Interval
    from s2sim.study.convergence.result import TrainRow


def target_text(target: Target) -> str:
    """Return a target for people.

    >>> from s2sim.study.convergence.curve import Target
    >>> target_text(Target("loss", 5.1)), target_text(Target("accuracy", 0.9))
    ('loss 5.1', 'accuracy 90 %')
    """
    return f"loss {target.value:.4g}" if target.what == "loss" else f"accuracy {100 * target.value:.3g} %"


def interval_text(interval: Interval) -> str:
    """Return a ratio with its interval.

    >>> from s2sim.study.convergence.intervals import Interval
    >>> interval_text(Interval(0.61, 0.55, 0.68, 3))
    '0.61x [0.55, 0.68]'
    """
    mean = f"{interval.mean:.3g}x"
    return mean if interval.low is None else f"{mean} [{interval.low:.3g}, {interval.high:.3g}]"


def answer_lines(
    rows: Sequence[TrainRow], curves: Sequence[Curve], target: Target | None, base: str
) -> tuple[str, ...]:
    """Return a line for each reducer but dense: whether it reaches the target, in which share of dense's time."""
    if target is None:
        return ()
    lines = []
    for row in rows:
        if row.reached < row.trained:
            lines.append(_unreached(row, curves, target))
        elif row.reducer == base:
            continue
        elif row.time_ratio is None:
            lines.append(f"{row.reducer} reaches {target_text(target)}, where {base} has no time to compare with")
        else:
            lines.append(
                f"{row.reducer} reaches {target_text(target)} in {interval_text(row.time_ratio)} the simulated time of "
                f"{base}{_bytes(row)}, over {number_of(row.trained, 'seed')}{_open(row.time_ratio)}"
            )
    return tuple(lines)


def _bytes(row: TrainRow) -> str:
    return "" if row.bytes_ratio is None else f" and {interval_text(row.bytes_ratio)} its bytes"


def _open(ratio: Interval) -> str:
    """Say where an interval leaves open who is faster."""
    open_ended = ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
    return ": no difference that is sure" if open_ended and ratio.low != ratio.high else ""


def _unreached(row: TrainRow, curves: Sequence[Curve], target: Target) -> str:
    own = [each for each in curves if each.reducer == row.reducer]
    values = [each.eval_loss if target.what == "loss" else each.accuracy for each in own]
    best = min(float(each.min()) for each in values) if target.what == "loss" else max(float(e.max()) for e in values)
    how = f"lowest loss {best:.4g}" if target.what == "loss" else f"highest accuracy {100 * best:.3g} %"
    times = "with no seed" if not row.reached else f"with {row.reached} of {number_of(row.trained, 'seed')}"
    stopped = f"; {row.stopped[0]}" if row.stopped else ""
    return f"{row.reducer} reaches {target_text(target)} {times} ({how}{stopped})"
