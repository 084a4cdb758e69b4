"""The answer in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.libraries.tables import IDEAL
from s2sim.study.break_even.crossings import LOWEST_BPS
from s2sim.study.measuring.result import Verdict
from s2sim.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.break_even.scan import Scan
    from s2sim.study.measuring.result import Row

# A gain below one per cent is within what models of this kind can tell apart.
_WORTHWHILE = 1.01


def acceptable(row: Row, max_error: float | None) -> bool:
    """Return whether a reducer's error allows it to win: below 1, and not above what the user allows.

    Also what is compressed has to be nearer to the mean than zeros are, however small a part of the whole it is.
    """
    if row.lossless:
        return True
    error, compressed = row.error.relative_l2, row.error_compressed.relative_l2
    return (
        error is not None
        and error < 1
        and (compressed is None or compressed < 1)
        and (max_error is None or error <= max_error)
    )


def _gain(row: Row, unit: str) -> str:
    return f"the {unit} {row.speedup_vs_dense:.2f}x as fast as dense"


def _error_text(row: Row) -> str:
    """Return why a row is rejected."""
    error, compressed = row.error.relative_l2, row.error_compressed.relative_l2
    if error is None:
        return "error undefined"
    if error < 1 and compressed is not None and compressed >= 1:
        return f"error {compressed:.3g} of what is compressed"
    return f"error {error:.3g}"


def _choice(exact: Row, lossy: Row | None, unit: str, rejected: Sequence[Row]) -> str:
    """Return what to do on this cluster."""
    exact_pays = exact.reducer != "dense" and exact.speedup_vs_dense >= _WORTHWHILE
    lossy_pays = lossy is not None and lossy.speedup_vs_dense >= _WORTHWHILE * (
        exact.speedup_vs_dense if exact_pays else 1.0
    )
    sentences = []
    if exact_pays:
        sentences.append(f"On this cluster use {exact.option_string}: it makes {_gain(exact, unit)}, without error.")
    if lossy_pays and lossy is not None:
        place = "" if exact_pays else " on this cluster"
        sentences.append(
            f"If a relative L2 error of {lossy.error.relative_l2:.3g} is acceptable, use {lossy.option_string}{place}: "
            f"it makes {_gain(lossy, unit)}."
        )
    if not sentences:
        best = lossy if lossy is not None and lossy.speedup_vs_dense > exact.speedup_vs_dense else exact
        why = (
            f"the fastest with an acceptable error, {best.option_string}, gains under 1 %"
            if best.speedup_vs_dense > 1
            else "no reducer with an acceptable error is faster than dense"
        )
        sentences.append(f"On this cluster do not compress: {why}.")
    tempting = [row for row in rejected if row.speedup_vs_dense >= _WORTHWHILE]
    if tempting:
        names = ", ".join(f"{row.option_string} ({row.speedup_vs_dense:.2f}x, {_error_text(row)})" for row in tempting)
        sentences.append(f"Faster, but too far from the exact mean: {names}.")
    return " ".join(sentences)


def _payoffs(scan: Scan) -> str:
    """Return at which rates each reducer pays, those that always or never do together."""
    parts = []
    for reducer in scan.pays_at_ends:
        own = [crossing for crossing in scan.crossings if crossing.reducer == reducer]
        if own:
            spans = ", ".join(f"{crossing.pays} {format_rate(crossing.at_Bps)}" for crossing in own)
            parts.append(f"{reducer} pays {spans} of {scan.field}")
    crossed = {crossing.reducer for crossing in scan.crossings}
    for pays, one, several in ((True, "pays", "pay"), (False, "does not pay", "do not pay")):
        steady = [reducer for reducer, ends in scan.pays_at_ends.items() if reducer not in crossed and ends[0] == pays]
        if steady:
            span = f"{scan.field} from {format_rate(LOWEST_BPS)} to {format_rate(scan.highest_Bps)}"
            parts.append(f"at any {span} {' and '.join(steady)} {one if len(steady) == 1 else several}")
    return f"Against dense, {'; '.join(parts)}."


def give_verdict(
    rows: Sequence[Row], *, max_error: float | None, scan: Scan, library: str = IDEAL.option_string
) -> Verdict:
    """Return the verdict on the rows of one number of workers, ``dense`` among them.

    ``max_error`` is the largest relative L2 error that may win; the communication library is named unless it is ideal.
    """
    dense = next(row for row in rows if row.reducer == "dense")
    allowed = [row for row in rows if acceptable(row, max_error)]
    # What training does without a compressor is no choice, however its type rounds.
    exact = max((dense, *(row for row in allowed if row.lossless)), key=lambda row: row.speedup_vs_dense)
    inexact = (row for row in allowed if not (row.lossless or row is dense))
    lossy = max(inexact, key=lambda row: row.speedup_vs_dense, default=None)
    rejected = [row for row in rows if not acceptable(row, max_error)]
    unit = "communication phase" if dense.iteration_s is None else "iteration"
    over = "" if library == IDEAL.option_string else f" over {library}"
    if dense.workers == 1:
        sentences = ["1 worker: nothing is communicated, so do not compress."]
    elif len(rows) == 1:
        sentences = [f"{dense.workers} workers{over}: dense was compared with nothing."]
    else:
        sentences = [f"{dense.workers} workers{over}: {_choice(exact, lossy, unit, rejected)}"]
    if scan.field is not None and scan.pays_at_ends:
        sentences.append(_payoffs(scan))
    sentences.append(f"In dense, {dense.bottleneck}.")
    return Verdict(
        text=" ".join(sentences),
        best_exact=exact.option_string,
        best_lossy=None if lossy is None else lossy.option_string,
        break_even=scan.crossings,
        bottleneck=dense.bottleneck,
    )
