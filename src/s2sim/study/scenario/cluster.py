"""Where something runs, resolved once from what people write: below this nobody reads an option again."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from s2sim.collectives.algorithms.registry import read_algorithm
from s2sim.collectives.timing.timer import AUTO
from s2sim.collectives.timing.ways import Ways
from s2sim.errors import S2SimWarning
from s2sim.replay.faults.permanent import damaged_cluster
from s2sim.replay.faults.registry import make_faults
from s2sim.study.scenario.groups import Groups, timer_of_groups
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape

if TYPE_CHECKING:
    from s2sim.collectives.algorithms.registry import Algorithm
    from s2sim.collectives.timing.timer import Timer
    from s2sim.replay.faults.fault import Fault
    from s2sim.study.cluster_spec import ClusterSpec
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.shape import ClusterShape


class _Built:
    """The clusters of one shape, each of which is built once; again rather than sent to other processes."""

    def __init__(self, shape: ClusterShape) -> None:
        self.shape = shape
        self._clusters: dict[tuple[object, ...], Cluster] = {}

    def __reduce__(self) -> tuple[type[_Built], tuple[ClusterShape]]:
        return _Built, (self.shape,)

    def cluster(self, workers: int, placement: str, seed: int, faults: tuple[Fault, ...]) -> Cluster:
        """Return the cluster of so many workers, with those of the faults that last from the start on."""
        key = workers, placement, seed, faults
        if key not in self._clusters:
            self._clusters[key] = (
                damaged_cluster(self.cluster(workers, placement, seed, ()), faults)
                if faults
                else build_cluster(self.shape, workers, placement=placement, seed=seed)
            )
        return self._clusters[key]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster of any number of workers, what goes wrong on it, and by which algorithm it communicates.

    It pickles, so that a worker process can take it.

    Attributes
    ----------
    shape : ClusterShape
        What the topology's file and its overrides say.
    overrides : tuple of str
        These overrides as they were written, for messages.
    placement : str
        Where ranks run.
    seed : int
        Root of all randomness.
    faults : tuple of Fault
        What goes wrong.
    algorithm : Algorithm or str
        Of the collectives; ``auto`` for the fastest.
    groups : Groups or None
        Groups of ranks beside each other, all of which do the same: with them numbers of workers are those of one
        data-parallel group, and so is the cluster; None for one group of all.
    """

    shape: ClusterShape
    overrides: tuple[str, ...] = ()
    placement: str = "linear"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    algorithm: Algorithm | str = AUTO
    groups: Groups | None = None
    _built: _Built | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Keep the clusters that were built where only something else than their shape was replaced."""
        if self._built is None or self._built.shape is not self.shape:
            object.__setattr__(self, "_built", _Built(self.shape))

    def healthy(self, workers: int) -> Cluster:
        """Return the cluster without its faults."""
        return self._of_group(self._everyone(workers, ()), workers)

    def cluster(self, workers: int) -> Cluster:
        """Return the cluster with those faults that last from the start on."""
        return self._of_group(self._everyone(workers, self.faults), workers)

    def plain(self) -> Self:
        """Return the same cluster filled in order, without faults or groups, each collective by its fastest way."""
        return replace(self, placement="linear", faults=(), algorithm=AUTO, groups=None)

    def timer(self, workers: int, ways: Ways | None = None) -> Timer:
        """Return what times collectives on the cluster, faults included; ``ways`` are known from other rates."""
        groups, everyone = self.all_groups(workers)
        return timer_of_groups(everyone, groups, self.algorithm, ways)

    def ways(self, workers: int) -> Ways:
        """Return ways that serve timers at any rates."""
        return Ways(self._everyone(workers, self.faults))

    def ranks_of(self, workers: int) -> int:
        """Return how many of all workers are in one data-parallel group."""
        return workers if self.groups is None else workers // self.groups.count

    def all_groups(self, workers: int) -> tuple[Groups, Cluster]:
        """Return groups of which the data-parallel ones have so many workers, and the cluster of all of them."""
        return self._groups_of(workers), self._everyone(workers, self.faults)

    def _groups_of(self, workers: int) -> Groups:
        return Groups(1, 1, workers) if self.groups is None else replace(self.groups, dp=workers)

    def _of_group(self, everyone: Cluster, workers: int) -> Cluster:
        if self.groups is None:
            return everyone
        return everyone.within(self._groups_of(workers).dp_groups[0].tolist())

    def running(self, algorithm: str | None) -> Self:
        """Return the same cluster with another algorithm, by its name, for all that this can run; None for its own."""
        return self if algorithm is None else replace(self, algorithm=read_algorithm(algorithm))

    @property
    def counts_as_ring(self) -> bool:
        """Whether bytes are those of rings, the convention, rather than of the algorithm that was asked for."""
        return isinstance(self.algorithm, str) or self.algorithm.name == "ring"

    @property
    def disturbed(self) -> bool:
        """Whether something goes wrong while things run."""
        return not all(fault.permanent for fault in self.faults)

    def warn_of_idle_overrides(self, workers: int) -> None:
        """Warn of each ``field=value`` that cannot matter: nothing crosses the links that it describes."""
        cluster = self._everyone(workers, ())
        one_node = int(cluster.node_of_rank.max()) == 0
        for override in self.overrides:
            table = override.partition("=")[0].strip().partition(".")[0]
            if one_node and (
                table in ("nic", "fabric", "routing") or (table == "pcie" and not cluster.shape.pcie_joins_gpus)
            ):
                reason = f"all {cluster.workers} workers are in one node"
            elif table == "nvlink" and int(cluster.node_of_rank.max()) + 1 == cluster.workers:
                reason = "every node holds one worker"
            else:
                continue
            warnings.warn(f"--set {override} changes nothing here: {reason}", S2SimWarning, stacklevel=3)

    def _everyone(self, workers: int, faults: tuple[Fault, ...]) -> Cluster:
        """Return the cluster of all groups, of which the data-parallel ones have so many workers."""
        assert self._built is not None
        count = 1 if self.groups is None else self.groups.count
        return self._built.cluster(count * workers, self.placement, self.seed, faults)


def resolve_cluster(spec: ClusterSpec, algorithm: str = AUTO) -> Scenario:
    """Return the scenario of a spec's cluster.

    Raises
    ------
    S2SimError
        For a topology, a field, a fault or an algorithm that does not exist, or cannot be so.
    """
    faults = make_faults(spec.faults)
    asked = algorithm if algorithm == AUTO else read_algorithm(algorithm)
    shape = load_shape(spec.topology, spec.overrides)
    return Scenario(shape, spec.overrides, spec.placement, spec.seed, faults, asked)
