"""What the time of a planned collective is made of, as rows of a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.collectives.terms.of_schedule import terms_of
from s2sim.errors import OptionError
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.collectives.terms.term import Term
    from s2sim.study.collective.plan import PlannedCollective


@dataclass(frozen=True, slots=True)
class TermRow:
    """A part of a time: all rows of a collective add up to it.

    Attributes
    ----------
    kind, of : str
        ``"launch"``, ``"hop"``, ``"fill"``, ``"wire latency"``, ``"bytes"``, ``"limit"`` ..., and of which constant or
        class of link.
    count : float
        How often; of bytes and limits how many bytes.
    time_s : float
        In seconds.
    constants : dict
        Constants of the library that it is proportional to, with their powers.
    """

    kind: str
    of: str
    count: float
    time_s: float
    constants: dict[str, int]


def term_rows(terms: Iterable[Term]) -> tuple[TermRow, ...]:
    """Return terms as rows of a result."""
    return tuple(TermRow(term.kind, term.of, term.count, term.ps / PS_PER_S, dict(term.constants)) for term in terms)


def terms_of_planned(planned: PlannedCollective) -> tuple[TermRow, ...]:
    """Return the terms of a planned collective; `OptionError` where other things decide its time."""
    if planned.spec.network != "fluid" or planned.by_message:
        raise OptionError(
            "--terms is of clocked rounds on the fluid network with nothing else in flight: leave --network packet, "
            "--execution by-message, and faults that begin later, out"
        )
    return term_rows(terms_of(planned.timed, planned.cluster))
