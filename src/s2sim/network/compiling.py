"""The functions of `s2sim.network.flights` as they stand, or compiled by numba.

Small work runs as plain Python over lists. Once there has been enough of it in this process to be worth the second that
it takes to load numba, the same functions run compiled over arrays, where numba is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from s2sim.network import flights

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.network.tables import Queues, Table

# Flows looked at; as plain Python that takes about three seconds: less than compiling, which happens once, and more
# than loading what has been compiled.
_WORTH_COMPILING = 1_500_000
# Looks that a flow causes where it meets many, at the least; fewer where all have one size, so that many end at once.
_LOOKS_A_FLOW, _LOOKS_OF_ALIKE = 400, 100


class Functions(NamedTuple):
    """The functions of `s2sim.network.flights` that others call, plain or compiled."""

    take_in: Callable[[Table, Any, int], None]
    take_out: Callable[[Table, int], int]
    next_ps: Callable[[Table], int]
    deliver: Callable[[Table, Queues, Any, Any, Any, int], int]


PLAIN = Functions(flights.take_in, flights.take_out, flights.next_ps, flights.deliver)


@cache
def compiled() -> Functions:
    """Return the functions compiled by numba."""
    from numba import njit
    from numba.extending import register_jitable

    for function in flights.INNER:
        register_jitable(function)
    try:
        functions = [njit(cache=True, nogil=True)(function) for function in PLAIN]
    except RuntimeError:  # there is nowhere to keep what has been compiled
        functions = [njit(nogil=True)(function) for function in PLAIN]
    return Functions(*cast("Any", functions))


@dataclass(slots=True)
class Effort:
    """How much has been done as plain Python in this process, to know when compiling pays.

    Attributes
    ----------
    looks : int
        Flows looked at until now.
    """

    looks: int = 0

    def compiles(self, flows: int = 0, *, alike: bool = False) -> bool:
        """Return whether numba is there and worth its loading, with some flows to come, of one size if ``alike``."""
        to_come = flows * (_LOOKS_OF_ALIKE if alike else _LOOKS_A_FLOW)
        return self.looks + to_come > _WORTH_COMPILING and has_numba()


@cache
def has_numba() -> bool:
    """Return whether numba is installed, without loading it."""
    return find_spec("numba") is not None


EFFORT = Effort()
