"""The answer in three lines: what to do; how much that gains, on what; what would change it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.tables import IDEAL
from s2sim.study.break_even.crossings import LOWEST_BPS
from s2sim.study.break_even.scan import Scan
from s2sim.study.compare.choice import WORTHWHILE, choose
from s2sim.study.compare.judge import candidates_of
from s2sim.study.measuring.result import Verdict
from s2sim.units import format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.compare.choice import Candidate, Choice
    from s2sim.study.measuring.result import Flip, Row

_CONSTANTS = {
    "kernel_launch": "a kernel launch took {}",
    "host_sync": "a host synchronisation took {}",
    "memory_efficiency": "kernels reached {} of the memory bandwidth",
}


@dataclass(frozen=True, slots=True)
class Known:
    """What a verdict is given beside rows.

    Attributes
    ----------
    library : str
        The communication library.
    max_error : float or None
        Largest relative L2 error that may win.
    steps : int
        Successive steps that ran.
    scan : Scan
        Where reducers break even with dense.
    flips : tuple of Flip
        Estimated constants that decide.
    stands_on : str or None
        From what the rows are extrapolated.
    """

    library: str = IDEAL.option_string
    max_error: float | None = None
    steps: int = 1
    scan: Scan = field(default_factory=lambda: Scan(None))
    flips: tuple[Flip, ...] = ()
    stands_on: str | None = None


def give_verdict(rows: Sequence[Row], known: Known) -> Verdict:
    """Return the verdict on the rows of one number of workers, ``dense`` among them."""
    candidates = candidates_of(rows, known.max_error)
    choice = choose(candidates, known.max_error)
    dense = next(row for row in rows if row.reducer == "dense")
    baseline = next(each for each in candidates if each.baseline)
    if dense.workers == 1:
        lines: tuple[str, ...] = ("Do not compress: 1 worker communicates nothing.",)
    elif len(rows) == 1:
        lines = ("Nothing was compared with dense: name reducers with --reducer.",)
    else:
        lines = (
            _what(choice, baseline, known),
            _how_much(choice, baseline, dense, known),
            _what_changes(choice, known),
        )
    best = choice.best.name if choice.decision == "use" else baseline.name
    return Verdict(
        workers=dense.workers,
        decision=choice.decision,
        lines=lines,
        text=" ".join(lines),
        best=best,
        assumes=choice.best.assumes if choice.decision == "use" else None,
        without_assumption=None if choice.instead is None else choice.instead.name,
        best_exact=choice.exact.name,
        best_lossy=None if choice.lossy is None else choice.lossy.name,
        flips=known.flips,
        pays={reducer: text for reducer in known.scan.pays_at_ends if (text := pays_text(reducer, known.scan))},
        break_even=known.scan.crossings,
        bottleneck=dense.bottleneck,
    )


def _what(choice: Choice, baseline: Candidate, known: Known) -> str:
    """Return what to do."""
    if choice.decision == "undecided":
        close = choice.best if not choice.best.baseline else choice.runner_up
        assert close is not None
        gain = baseline.time_s / close.time_s - 1
        if gain < WORTHWHILE - 1:
            return f"Undecided: {close.name} gains {gain:.1%}, less than this model can tell from nothing."
        return f"Undecided: {close.name} gains {gain:.0%}, less than the gradients it stands on may be off."
    if choice.decision == "do not compress":
        return "Do not compress: nothing with an acceptable error is faster than dense."
    exact, lossy = choice.exact, choice.lossy
    if exact.baseline:
        assert lossy is not None
        return f"Use {lossy.name} {_allowed(lossy, known)}; nothing exact is faster than dense."
    text = f"Use {exact.name} (exact)"
    if choice.instead is not None:
        otherwise = "do not compress" if choice.instead.baseline else choice.instead.name
        text += f" if {exact.assumes}, else {otherwise}"
    return f"{text}." if lossy is None else f"{text}; or {lossy.name} {_allowed(lossy, known)}."


def _allowed(lossy: Candidate, known: Known) -> str:
    """Return under which condition a lossy reducer may be used."""
    text = f"if an error of {lossy.error:.2g} is acceptable"
    if known.max_error is not None:
        text = f"(error {lossy.error:.2g}, allowed {known.max_error:g})"
    return text if lossy.assumes is None else f"{text} and {lossy.assumes}"


def _how_much(choice: Choice, baseline: Candidate, dense: Row, known: Known) -> str:
    """Return how much the choice gains, and on what."""
    unit = "Communication" if dense.iteration_s is None else "Iteration"
    where = _where(dense, known)

    def gain(each: Candidate) -> str:
        return f"{baseline.time_s / each.time_s:.2f}x" if each.time_s else "free"

    if choice.decision != "use":
        close = choice.runner_up
        if close is None:
            return f"{unit} {_brief(baseline.time_s)}: nothing else can be chosen; {where}."
        return f"{unit} {_brief(baseline.time_s)} -> {_brief(close.time_s)} with {close.name}, {gain(close)}; {where}."
    best = choice.best
    others = []
    if best is choice.exact and choice.instead is not None and not choice.instead.baseline:
        others.append(f"else {gain(choice.instead)}")
    if choice.lossy is not None and choice.lossy is not best:
        others.append(f"{choice.lossy.name} {gain(choice.lossy)}")
    also = f" ({', '.join(others)})" if others else ""
    return f"{unit} {_brief(baseline.time_s)} -> {_brief(best.time_s)}: {gain(best)}{also}; {where}."


def _brief(seconds: float) -> str:
    """Return a time in three digits.

    >>> _brief(0.0018677)
    '1.87 ms'
    """
    return format_seconds(float(f"{seconds:.3g}"))


def _where(dense: Row, known: Known) -> str:
    """Return what the times are of, beside the unit."""
    parts = [f"{dense.workers} workers"]
    if known.library != IDEAL.option_string:
        parts.append(known.library)
    if dense.steps:
        parts.append(f"median of {known.steps} steps with feedback")
    if known.stands_on is not None:
        parts.append(known.stands_on)
    return ", ".join(parts)


def _what_changes(choice: Choice, known: Known) -> str:
    """Return what would change the choice; a reducer's name keeps its spelling."""
    parts = [
        f"if {_CONSTANTS[flip.constant].format(flip.value)} (taken: {flip.taken}, an estimate): {_instead(flip.best)}"
        for flip in known.flips
    ]
    if choice.decision == "undecided":
        parts.append("only a measurement of both decides")
    else:
        about = choice.best if choice.decision == "use" else choice.runner_up
        if about is not None and (at_rates := pays_text(about.name, known.scan)) is not None:
            parts.append(f"{about.name} {at_rates}")
    if choice.faster is not None:
        more = choice.best.time_s / choice.faster.time_s
        parts.append(f"an error of {choice.faster.error:.2g} allows {choice.faster.name}, {more:.2f}x as fast as that")
    if not parts:
        parts.append("other rates were not tried" if known.scan.field is None else "no other rate helps")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if known.flips else f"{text}."


def _instead(best: str) -> str:
    return {"dense": "do not compress", "undecided": "undecided"}.get(best, best)


def pays_text(reducer: str, scan: Scan) -> str | None:
    """Return at which rates a reducer is faster than dense, in words; None where nobody has looked."""
    if scan.field is None or reducer not in scan.pays_at_ends:
        return None
    crossings = sorted(crossing.at_Bps for crossing in scan.crossings if crossing.reducer == reducer)
    pays_first = scan.pays_at_ends[reducer][0]
    if not crossings:
        often = "pays at any" if pays_first else "pays at no"
        return f"{often} {scan.field} from {format_rate(LOWEST_BPS)} to {format_rate(scan.highest_Bps)}"
    edges: list[float | None] = [*([None] if pays_first else []), *crossings]
    if len(edges) % 2:
        edges.append(None)
    spans = [_span(edges[place], edges[place + 1]) for place in range(0, len(edges), 2)]
    together = spans[0] if len(spans) == 1 else f"{', '.join(spans[:-1])} and {spans[-1]}"
    return f"pays {together} of {scan.field}"


def _span(low: float | None, high: float | None) -> str:
    """Return a range of rates whose ends may be open."""
    if low is None:
        assert high is not None
        return f"below {format_rate(high)}"
    return f"above {format_rate(low)}" if high is None else f"from {format_rate(low)} to {format_rate(high)}"
