"""Where something runs, resolved once from what people write: below this nobody reads an option again."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from s2sim.collectives.algorithms.registry import read_algorithm
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.errors import S2SimWarning
from s2sim.replay.faults.permanent import damaged_cluster
from s2sim.replay.faults.registry import make_faults
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape

if TYPE_CHECKING:
    from s2sim.collectives.algorithms.registry import Algorithm
    from s2sim.collectives.timing.ways import Ways
    from s2sim.replay.faults.fault import Fault
    from s2sim.study.cluster_spec import ClusterSpec
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.shape import ClusterShape


class _Built(dict[int, "tuple[Cluster, Cluster]"]):
    """Clusters by number of workers, healthy and damaged; they are built again rather than sent to other processes."""

    def __reduce__(self) -> tuple[type[_Built], tuple[()]]:
        return _Built, ()


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
    """

    shape: ClusterShape
    overrides: tuple[str, ...] = ()
    placement: str = "linear"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    algorithm: Algorithm | str = AUTO
    _built: _Built = field(default_factory=_Built, init=False, repr=False, compare=False)

    def healthy(self, workers: int) -> Cluster:
        """Return the cluster without its faults."""
        return self._clusters(workers)[0]

    def cluster(self, workers: int) -> Cluster:
        """Return the cluster with those faults that last from the start on."""
        return self._clusters(workers)[1]

    def timer(self, workers: int, ways: Ways | None = None) -> Timer:
        """Return what times collectives on the cluster, faults included; ``ways`` are known from other rates."""
        return Timer(self.cluster(workers), self.algorithm, ways)

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
        cluster = self.healthy(workers)
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

    def _clusters(self, workers: int) -> tuple[Cluster, Cluster]:
        """Return the healthy cluster and the damaged one, which are built once."""
        if workers not in self._built:
            healthy = build_cluster(self.shape, workers, placement=self.placement, seed=self.seed)
            self._built[workers] = healthy, damaged_cluster(healthy, self.faults)
        return self._built[workers]


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
