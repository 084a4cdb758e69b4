"""Tensor-, pipeline- and data-parallel groups of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.algorithms.registry import Algorithm
from s2sim.collectives.timing.concurrent_groups import ConcurrentGroupsTimer
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.collectives.timing.routes import RouteTable
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.errors import OptionError, suggest_nearest, warn
from s2sim.topology.cluster import Cluster

KINDS = ("tp", "dp", "pp")
"""Tensor-, data- and pipeline-parallel, in the order in which ranks are numbered, the fastest first."""

_REST_KEYWORD, _EXAMPLE = "rest", "tp=8,pp=4,dp=rest"
_MOST = 2**40


@dataclass(frozen=True, slots=True)
class ParallelGroups:
    """How many ranks share a layer (tp), how many stages layers are cut into (pp), how many hold the same (dp).

    Rank = t + tp·(d + dp·p) of tensor-parallel rank t, data-parallel rank d and stage p, as Megatron-LM numbers them by
    default (order "tp-cp-ep-dp-pp" of ``initialize_model_parallel``, megatron/core/parallel_state.py); with ``order``
    "tp-pp-dp" rank = t + tp·(p + pp·d) (its option --use-tp-pp-dp-mapping).
    """

    tp: int
    pp: int
    dp: int
    order: str = "-".join(KINDS)

    @property
    def workers(self) -> int:
        """All ranks."""
        return self.tp * self.pp * self.dp

    @property
    def count(self) -> int:
        """Data-parallel groups."""
        return self.tp * self.pp

    @property
    def text(self) -> str:
        """What `parse_groups` reads back."""
        order = "" if self.order == "-".join(KINDS) else f",order={self.order}"
        return f"tp={self.tp},pp={self.pp},dp={self.dp}{order}"

    @property
    def dp_groups(self) -> Ints:
        """Ranks of each data-parallel group, int64 of shape (tp·pp, dp); those of the first stage first."""
        return self.of("dp")

    def of(self, kind: str) -> Ints:
        """Return the ranks of each group of a kind, int64 of shape (groups, ranks); rank 0 is in the first."""
        slowest_first = self.order.split("-")[::-1]
        ranks = np.arange(self.workers).reshape([getattr(self, each) for each in slowest_first])
        return np.moveaxis(ranks, slowest_first.index(kind), -1).reshape(-1, getattr(self, kind))


def parse_groups(text: str, workers: int) -> ParallelGroups:
    """Return the groups that ``tp=8,pp=4,dp=rest`` makes of a number of workers.

    Omitted sizes are 1, and dp the rest; one may be ``rest``. ``order=tp-pp-dp`` numbers ranks of a pipeline before
    those of other replicas. `OptionError` for unknown or repeated names, and if the groups do not make up all
    workers.
    """
    sizes: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise OptionError(f"--groups {text}: {item!r} is not name=number: write for example {_EXAMPLE}")
        if name not in (*KINDS, "order"):
            raise OptionError(
                f"--groups {text}: there are no {name!r} groups{suggest_nearest(name, (*KINDS, 'order'))}"
            )
        if name in sizes:
            raise OptionError(f"--groups {text}: {name} stands twice: give it once")
        sizes[name] = value
    order = sizes.pop("order", "-".join(KINDS))
    if sorted(order.split("-")) != sorted(KINDS):
        raise OptionError(f"--groups {text}: order={order} is not {', '.join(KINDS)} once each: write order=tp-pp-dp")
    sizes = {"tp": "1", "pp": "1", "dp": _REST_KEYWORD} | sizes
    given = {name: _size(text, name, value) for name, value in sizes.items() if value != _REST_KEYWORD}
    rest = [name for name in sizes if name not in given]
    others = " x ".join(f"{name}={size}" for name, size in given.items() if size > 1) or "they"
    if len(rest) > 1:
        raise OptionError(f"--groups {text}: only one of {' and '.join(rest)} can be the rest: give a number")
    known = prod(given.values())
    if not rest and known != workers:
        raise OptionError(f"--groups {text}: {others} are {known} ranks and not {workers}: write dp=rest")
    if workers % known:
        product = f" = {known}" if " x " in others else ""
        raise OptionError(
            f"--groups {text}: {workers} workers do not divide by {others}{product}: take "
            f"{max(workers // known, 1) * known} workers or other groups"
        )
    return ParallelGroups(**given, **dict.fromkeys(rest, workers // known), order=order)


def groups_for_all(text: str, workers: Sequence[int]) -> ParallelGroups | None:
    """Return the groups of several numbers of workers, which differ only in replicas; None if one has all ranks."""
    found = {replace(parse_groups(text, count), dp=1) for count in workers}
    if len(found) > 1:
        raise OptionError(f"--groups {text}: several numbers of workers differ in replicas alone: write dp=rest")
    (groups,) = found
    if groups.count == 1:
        warn(f"--groups {text} changes nothing here: one group has all ranks")
        return None
    return groups


def _size(text: str, name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise OptionError(f"--groups {text}: {name}={value} is neither a whole number from 1 on nor {_REST_KEYWORD}")
    if not 1 <= int(value[:20]) <= _MOST:
        raise OptionError(f"--groups {text}: {name}={value} must be at least 1 and at most the workers")
    return int(value)


def concurrent_groups_timer(
    cluster: Cluster,
    groups: ParallelGroups,
    algorithm: str | Algorithm = AUTO,
    routes: RouteTable | None = None,
    profile: LibraryProfile = NO_OVERHEADS,
) -> Timer:
    """Return the timer of one data-parallel group (of ``groups.dp`` ranks) while all such run the same collectives."""
    own = groups.dp_groups
    if len(own) == 1:
        return Timer(cluster, algorithm, routes, profile)
    return ConcurrentGroupsTimer(cluster, own, algorithm, routes, profile)
