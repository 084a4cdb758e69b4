"""Overrides that change nothing on the cluster at hand."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from s2sim.errors import S2SimWarning

if TYPE_CHECKING:
    from s2sim.study.scenario.cluster import Scenario


def warn_of_idle_overrides(scenario: Scenario, workers: int) -> None:
    """Warn of each ``field=value`` that cannot matter: nothing crosses the links that it describes."""
    cluster = scenario.healthy(workers)
    one_node = int(cluster.node_of_rank.max()) == 0
    for override in scenario.overrides:
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
