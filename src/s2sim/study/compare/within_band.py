"""How much of the band around its times an answer survives: errors that rows share are drawn once for all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.study.compare.choice import choose
from s2sim.study.compare.judge import judged_time_s
from s2sim.study.fidelity.band import band_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.compare.choice import Candidate
    from s2sim.study.measuring.result import Row

# An answer that wins less of the band is none.
_SURE = 0.9


@dataclass(frozen=True, slots=True)
class WithinBand:
    """Who would be named first with each draw of the constants.

    Attributes
    ----------
    shares : tuple of (str, float)
        By name the share of the draws, the largest first.
    """

    shares: tuple[tuple[str, float], ...]

    def share_of(self, name: str) -> float:
        """Return the share of the draws in which one is named first."""
        return dict(self.shares).get(name, 0.0)

    def sentence(self, name: str) -> str:
        """Return what that says of an answer.

        >>> WithinBand((("union", 0.95), ("dense", 0.05))).sentence("union")
        'union wins in 95 % of the band'
        >>> WithinBand((("union", 0.6), ("fp16", 0.4))).sentence("union")
        'undecided between union and fp16 in the band: 60% and 40%'
        """
        share = self.share_of(name)
        if share >= _SURE or len(self.shares) == 1:
            return f"{name} wins in {100 * share:.0f} % of the band"
        (first, one), (second, other) = self.shares[:2]
        return f"undecided between {first} and {second} in the band: {one:.0%} and {other:.0%}"


def within_band(rows: Sequence[Row], candidates: Sequence[Candidate], max_error: float | None) -> WithinBand | None:
    """Return who would be named with each draw; None where some row's time was not made of measured constants."""
    drawn = {row.reducer: row.band_draws_s for row in rows if row.band is not None}
    if not drawn or any(candidate.name not in drawn for candidate in candidates):
        return None
    draws = min(map(len, drawn.values()))
    winners = Counter(
        choose([_longer(each, drawn[each.name][draw]) for each in candidates], max_error).best.name
        for draw in range(draws)
    )
    return WithinBand(tuple((name, count / draws) for name, count in winners.most_common()))


def band_texts(rows: Sequence[Row]) -> dict[str, str]:
    """Return the ends of the band around each time that a verdict is about, in parentheses; of those that have one."""
    texts = {}
    for row in rows:
        if row.band is not None:
            beside_s = judged_time_s(row) - row.time_s.total
            ends = (max(end + beside_s, 0.0) for end in (row.band.low_s, row.band.high_s))
            texts[row.reducer] = f" ({band_text(*ends)})"
    return texts


def _longer(candidate: Candidate, more_s: float) -> Candidate:
    return replace(candidate, time_s=max(candidate.time_s + more_s, 0.0))
