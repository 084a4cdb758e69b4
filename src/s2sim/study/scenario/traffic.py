"""Scenarios of traffic that needs no reducers, and the hashes of their specs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.provenance import content_hash
from s2sim.study.scenario.cluster import resolve_cluster
from s2sim.study.scenario.content import cluster_content
from s2sim.study.scenario.faults import check_fluid
from s2sim.study.scenario.machines import warn_of_machines

if TYPE_CHECKING:
    from s2sim.study.network_spec import NetworkSpec
    from s2sim.study.scenario.cluster import Scenario


def resolve_traffic(spec: NetworkSpec, algorithm: str = "auto") -> Scenario:
    """Return the scenario of a spec's cluster; refuse faults that its network does not know."""
    scenario = resolve_cluster(spec, algorithm)
    warn_of_machines(spec.overrides)
    check_fluid(scenario.faults, as_packets=spec.as_packets)
    return scenario


def traffic_sha256(spec: NetworkSpec, scenario: Scenario, workers: int, *sent: Any) -> str:
    """Return the hash of what is computed when ``sent`` goes over a cluster, see `s2sim.study.scenario.content`."""
    packets = [spec.packet_size_bytes, spec.buffer_bytes] if spec.as_packets else []
    return content_hash([cluster_content(scenario, [workers]), spec.network, spec.cross_check, packets, *sent])
