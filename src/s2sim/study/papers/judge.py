"""The rules by which claims are judged: plain, stated, and the same for all papers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.papers.claim import Claim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.study.papers.claim import Judged

SHARE = 0.15
"""How far from a published figure one counts as the same."""

WITHIN = f"reproduced where ours is within {SHARE:.0%} of the published figure"
IN_RANGE = f"reproduced where the published figure lies in our range, widened by {SHARE:.0%}"


def holds(condition: bool) -> Judged:
    """Return the judgement on a claim whose rule is met or not.

    >>> holds(True)
    'reproduced'
    """
    return "reproduced" if condition else "not reproduced"


def holds_throughout(conditions: Iterable[bool]) -> Judged:
    """Return the judgement on a claim whose rule is met or not with each value that something unknown may have.

    >>> holds_throughout([True, True]), holds_throughout([False, False]), holds_throughout([True, False])
    ('reproduced', 'not reproduced', 'not testable')
    """
    found = set(conditions)
    return "not testable" if len(found) > 1 else holds(True in found)


def within(ours: float, published: float, share: float = SHARE) -> Judged:
    """Return the judgement by `WITHIN`.

    >>> within(1.9, 1.8), within(2.5, 1.8)
    ('reproduced', 'not reproduced')
    """
    return holds(abs(ours - published) <= share * abs(published))


def figure_claim(
    text: str, source: str, published: float, ours: float, why: str, *, form: str, published_form: str | None = None
) -> Claim:
    """Return a claim of one figure, judged by `WITHIN`.

    ``form`` is the format of our figure, such as ``{:.1f} ms``, and of the published one without ``published_form``.
    """
    theirs = (published_form or form).format(published)
    return Claim(text, source, theirs, form.format(ours), within(ours, published), WITHIN, why)


def not_testable(text: str, source: str, needs: str, why: str, *, published: str = "-", ours: str = "-") -> Claim:
    """Return a claim that nothing here can judge: ``needs`` says what is missing."""
    return Claim(text, source, published, ours, "not testable", needs, why)


def in_range(ours: Iterable[float], published: float, share: float = SHARE) -> Judged:
    """Return the judgement by `IN_RANGE`, of what several settings came to.

    >>> in_range([1.2, 1.7], 1.8), in_range([1.2, 1.5], 1.8)
    ('reproduced', 'not reproduced')
    """
    values = list(ours)
    room = share * abs(published)
    return holds(min(values) - room <= published <= max(values) + room)
