"""The algorithms by name, and what every one of them offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from s2sim.errors import OptionError
from s2sim.options import build, split_option_string
from s2sim.registry import Registry

if TYPE_CHECKING:
    from s2sim.collectives.schedule import Demand, Schedule
    from s2sim.topology.cluster import Cluster

ALGORITHMS = Registry(
    "algorithm",
    "s2sim.collectives",
    {
        "ring": "s2sim.collectives.ring:Ring",
        "double-binary-tree": "s2sim.collectives.double_binary_tree:DoubleBinaryTree",
    },
)


class Algorithm(Protocol):
    """One way to run a collective: a frozen dataclass of options.

    Attributes
    ----------
    name, source : str
        What it is called and where it was published.
    kinds : tuple of str
        Collectives that it can run.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule for this demand on this cluster."""

    def closed_form_s(self, demand: Demand, *, nodes: int, latency_s: float, rate_Bps: float) -> float:
        """Return the time in seconds where every hop takes this long and no two messages share a link direction."""


def check_algorithm(text: str) -> None:
    """Raise the error for an option string that names no algorithm or gives it a wrong option."""
    name, options = split_option_string(text)
    build(ALGORITHMS.get(name), options, name)


def make_algorithm(text: str, kind: str) -> Algorithm:
    """Return the algorithm of an option string, able to run ``kind``.

    >>> make_algorithm("double-binary-tree:chunks=8", "all_reduce").chunks
    8
    """
    name, options = split_option_string(text)
    cls = ALGORITHMS.get(name)
    if kind not in cls.kinds:
        able = [other for other in ALGORITHMS.names() if kind in ALGORITHMS.get(other).kinds]
        raise OptionError(f"{name} does not run {kind}; these do: {', '.join(able)}")
    return cast("Algorithm", build(cls, options, name))
