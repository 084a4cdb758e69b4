"""A schedule's time by the constants that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.terms.of_schedule import terms_of
from s2sim.study.fidelity.constants import owned
from s2sim.study.fidelity.told import Contender

if TYPE_CHECKING:
    from s2sim.collectives.timing.timer import Timed
    from s2sim.topology.cluster import Cluster


def contender_of(timed: Timed, cluster: Cluster, library: str = "", in_a_row: int = 1) -> Contender:
    """Return a schedule's time, or that of one of several messages in a row, as terms of constants.

    Of a library they have the names of `s2sim.study.fidelity.constants.owned`; else those of its file.
    """
    return Contender(
        tuple(
            (
                term.ps / in_a_row,
                tuple((owned(library, name) if library else name, power) for name, power in term.constants),
            )
            for term in terms_of(timed, cluster)
        )
    )
