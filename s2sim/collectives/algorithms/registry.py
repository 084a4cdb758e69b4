"""The registry of algorithms and their interface."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Protocol, cast

import numpy as np

from s2sim.collectives.algorithms.msccl import read_msccl
from s2sim.collectives.algorithms.ring import Ring
from s2sim.collectives.algorithms.tree import Chain, DoubleBinaryTree, tree_stage, up_and_down
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.groups import DescribedAlgorithm, group_of_all, schedule_of
from s2sim.collectives.schedules.pipeline import groups_in_orders
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.errors import OptionError
from s2sim.files import user_path
from s2sim.options import build, option_text, split_option_string
from s2sim.registry import Registry
from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class ExplicitRings(Ring):
    """Rings side by side, each with an even part of the data."""

    auto: ClassVar[tuple[str, ...]] = ()
    orders: tuple[tuple[int, ...], ...] = ()  # All ranks in the order of each ring, as many as there are channels

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        groups = groups_in_orders(demand, np.array(self.orders, np.int64))
        return schedule_of(demand, option_text(Ring(self.channels)), self.stage(demand.kind, groups))


@dataclass(frozen=True, slots=True)
class ExplicitTrees(DoubleBinaryTree):
    """Trees side by side, two a channel, each with an even part of the data, which goes up and down in pieces."""

    auto: ClassVar[tuple[str, ...]] = ()
    parents: tuple[tuple[int, ...], ...] = ()  # The parent of each rank in each tree, -1 of its root

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        trees = up_and_down([np.array(parents, np.int64) for parents in self.parents])
        made = tree_stage(group_of_all(demand), trees, self.chunks or 1)
        return schedule_of(demand, option_text(DoubleBinaryTree(self.channels, self.chunks)), made)


ALGORITHMS = Registry("algorithm", "s2sim.collectives", DescribedAlgorithm.catalogue.places)


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


def read_algorithm(text: str) -> Algorithm:
    """Return the algorithm of an option string, or of the file of MSCCL that a text ending in ``.xml`` names."""
    if text.endswith(".xml"):
        return cast("Algorithm", read_msccl(user_path(text, OptionError)))
    return _read_options(text)


# Libraries name their algorithms by the same option strings for every size, group and cluster.
@cache
def _read_options(text: str) -> Algorithm:
    name, options = split_option_string(text)
    return cast("Algorithm", build(ALGORITHMS.get(name), options, name))


def make_algorithm(asked: str | Algorithm, kind: str) -> Algorithm:
    """Return an algorithm, given as such or as an option string; it is an error if it does not run ``kind``.

    >>> make_algorithm("double-binary-tree:chunks=8", "all_reduce").chunks
    8
    """
    algorithm = read_algorithm(asked) if isinstance(asked, str) else asked
    if kind not in algorithm.kinds:
        able = [other for other in ALGORITHMS.names() if kind in ALGORITHMS.get(other).kinds]
        raise OptionError(f"{algorithm.name} does not run {kind}; these do: {', '.join(able)}")
    return algorithm


def same_at_rates(algorithm: Algorithm) -> bool:
    """Return whether an algorithm is known to make the same schedule on clusters that differ in rates only."""
    chunked = isinstance(algorithm, (DoubleBinaryTree, Chain)) and algorithm.chunks is not None
    return chunked or isinstance(algorithm, Ring)


def helpers_of(algorithm: Algorithm, ranks: int, gpus_per_node: int) -> int:
    """Return the number of GPUs that an algorithm needs in addition to the ranks, numbered after them.

    Algorithms with servers on such GPUs have a method ``helpers`` that returns it.
    """
    helpers: Callable[[int, int], int] = getattr(algorithm, "helpers", lambda *_: 0)
    return helpers(ranks, gpus_per_node)
