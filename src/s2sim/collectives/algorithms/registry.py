"""The algorithms by name, and what every one of them offers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar, Protocol, cast, runtime_checkable

from s2sim.errors import OptionError
from s2sim.options import build, split_option_string
from s2sim.registry import Registry

if TYPE_CHECKING:
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.topology.cluster import Cluster

ALGORITHMS = Registry(
    "algorithm",
    "s2sim.collectives",
    {
        "ring": "s2sim.collectives.algorithms.ring:Ring",
        "double-binary-tree": "s2sim.collectives.algorithms.double_binary_tree:DoubleBinaryTree",
        "halving-doubling": "s2sim.collectives.algorithms.halving_doubling:HalvingDoubling",
        "recursive-doubling": "s2sim.collectives.algorithms.recursive_doubling:RecursiveDoubling",
        "bruck": "s2sim.collectives.algorithms.bruck:Bruck",
        "pat": "s2sim.collectives.algorithms.pat:Pat",
        "direct": "s2sim.collectives.algorithms.direct:Direct",
        "binary-tree": "s2sim.collectives.algorithms.binary_tree:BinaryTree",
        "hierarchical": "s2sim.collectives.algorithms.hierarchical:Hierarchical",
        "torus": "s2sim.collectives.algorithms.torus:Torus",
        "parameter-server": "s2sim.collectives.algorithms.parameter_server:ParameterServer",
        "in-network": "s2sim.collectives.algorithms.in_network:InNetwork",
        "nvls-tree": "s2sim.collectives.algorithms.nvls_tree:NvlsTree",
        "pairwise": "s2sim.collectives.algorithms.pairwise:Pairwise",
        "spread": "s2sim.collectives.algorithms.spread:Spread",
        "binomial": "s2sim.collectives.algorithms.binomial:Binomial",
        "chain": "s2sim.collectives.algorithms.chain:Chain",
    },
)


class Algorithm(Protocol):
    """One way to run a collective: a frozen dataclass of options.

    ``auto`` names those of its ``kinds`` for which communication libraries choose it, so that ``auto`` considers it.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    auto: ClassVar[tuple[str, ...]]

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule for this demand on this cluster."""

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time in seconds where messages take these ways and no two share a link direction."""


@runtime_checkable
class NeedsHelpers(Protocol):
    """An algorithm with servers of its own."""

    def helpers(self, ranks: int, gpus_per_node: int) -> int:
        """Return how many GPUs a cluster needs beside the ranks."""


# Libraries name what they have by option strings, the same ones for every size, group and cluster that is timed.
@cache
def read_algorithm(text: str) -> Algorithm:
    """Return the algorithm of an option string, a value: the same one for the same text."""
    name, options = split_option_string(text)
    return cast("Algorithm", build(ALGORITHMS.get(name), options, name))


def make_algorithm(asked: str | Algorithm, kind: str) -> Algorithm:
    """Return an algorithm, of an option string or as it is, that has to be able to run ``kind``.

    >>> make_algorithm("double-binary-tree:chunks=8", "all_reduce").chunks
    8
    """
    algorithm = read_algorithm(asked) if isinstance(asked, str) else asked
    if kind not in algorithm.kinds:
        able = [other for other in ALGORITHMS.names() if kind in ALGORITHMS.get(other).kinds]
        raise OptionError(f"{algorithm.name} does not run {kind}; these do: {', '.join(able)}")
    return algorithm


def helpers_of(algorithm: Algorithm, ranks: int, gpus_per_node: int) -> int:
    """Return how many GPUs an algorithm needs beside the ranks, numbered after them; most need none."""
    return algorithm.helpers(ranks, gpus_per_node) if isinstance(algorithm, NeedsHelpers) else 0
