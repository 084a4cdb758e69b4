"""Any traffic: transfers from a file, through one cluster's network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.study.by_name import takes_fields_of
from s2sim.study.collective.link_loads import busiest_links
from s2sim.study.flows.carry import carry
from s2sim.study.flows.cross_check import compare_networks
from s2sim.study.flows.result import FlowsResult
from s2sim.study.flows.spec import FlowsSpec
from s2sim.study.flows.transfers import transfers_of
from s2sim.study.json_form import json_value
from s2sim.study.progress import SILENT
from s2sim.study.scenario.traffic import resolve_traffic, traffic_sha256
from s2sim.topology.describe import first_line
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from pathlib import Path

    from s2sim.study.flows.transfers import Transfers
    from s2sim.study.progress import Progress


@takes_fields_of(FlowsSpec)
def run_flows(file: str | Path, topology: str, *, workers: int | None = None, **options: Any) -> FlowsResult:
    """Send the transfers of a file over a cluster and say when each arrives.

    Parameters
    ----------
    file : str or Path
        Transfers, one a line under the header ``start_s,src,dst,bytes``: seconds, ranks, and bytes.
    topology : str
        Name of a shipped topology or path of a TOML file.
    workers : int, optional
        Number of ranks; as many as the file names without it.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked.
    """
    return flows_result(FlowsSpec.of(topology, file=file, workers=workers, **options))


def flows_result(spec: FlowsSpec, transfers: Transfers | None = None, progress: Progress = SILENT) -> FlowsResult:
    """Send transfers over a cluster and say when each arrives; a slowdown is against the network without faults.

    ``transfers`` are what is sent where the spec names no file.
    """
    transfers = transfers or transfers_of(spec)
    scenario = resolve_traffic(spec)
    workers = spec.workers or transfers.ranks
    scenario.warn_of_idle_overrides(workers)
    carried = carry(spec, scenario, workers, transfers, progress)
    cluster, start_ps, finish_ps = scenario.cluster(workers), transfers.start_ps, carried.finish_ps[spec.network]
    alone_ps = carried.alone_ps
    span_s = float(finish_ps.max(initial=0) - start_ps.min(initial=0)) / PS_PER_S
    check = None
    if spec.cross_check:
        check = compare_networks(
            spec.other_network, spec.packet_size_bytes, start_ps, carried.finish_ps, carried.fills_ps
        )
    return FlowsResult(
        spec=spec,
        spec_sha256=traffic_sha256(spec, scenario, workers, json_value(transfers)),
        transfers=transfers,
        cluster=first_line(cluster),
        finish_s=finish_ps / PS_PER_S,
        slowdown=np.where(alone_ps > 0, (finish_ps - start_ps) / np.maximum(alone_ps, 1), 1.0),
        bottlenecks=busiest_links(cluster.fabric, lambda _: (carried.sent,), span_s),
        network=spec.network,
        cross_check=check,
        effects=carried.effects,
    )
