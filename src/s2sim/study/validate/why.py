"""What a curve's row has that the model lacks: as much as metadata tells of why a prediction is off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.study.validate.curve import Machine

_SOFTWARE = ("tcp", "tcpx", "tcpxo", "efa")
# Median errors below this are what models of this kind leave anyway.
_OFF = 0.2


def likely_why(machine: Machine, large: float | None, small: float | None) -> tuple[str, ...]:
    """Return the reasons for signed errors at large and at small sizes, the likeliest first."""
    reasons = []
    if large is not None and abs(large) > _OFF:
        reasons += _of_large(machine, too_slow=large > 0)
    if small is not None and small < -_OFF:
        reasons += _of_small(machine)
    return tuple(reasons)


def _of_large(machine: Machine, *, too_slow: bool) -> list[str]:
    several = machine.nodes > 1
    if too_slow:
        if machine.algorithm == "collnet":
            return ["switches that reduce are taken at one interface's rate a node"]
        if machine.has_nvswitch:
            nvls = "switches inside nodes reduce (NVLS), which is predicted only where the index names it"
            return [nvls] if machine.collective == "all_reduce" else []
        if machine.nvlink_domain_gpus == machine.gpus_per_node > 1:
            return ["rings go one way round NVLinks without a switch, and leave most of them idle"]
        return []
    reasons = []
    if several and machine.transport in _SOFTWARE:
        reasons.append(f"the rate that software of {machine.transport} reaches is not modelled, the interface's is")
    if several and machine.path == "staged":
        reasons.append("copies through host memory are not charged")
    if several and machine.path == "host-bridge":
        reasons.append("what a host bridge forwards is not limited")
    if machine.p2p == "no":
        reasons.append("copies through host memory between GPUs of a node are not charged")
    if several and machine.collective == "all_reduce" and not machine.algorithm:
        reasons.append("an ideal choice of algorithm, without protocols, channels and the fill of their pipelines")
    return reasons or ["protocols, channels and the fill of pipelines are not modelled"]


def _of_small(machine: Machine) -> list[str]:
    if machine.launch == "node":
        return ["one process launches all GPUs of a node one after the other, which is not charged"]
    if machine.nodes > 1 and machine.transport in _SOFTWARE:
        return [f"the latency of the software of {machine.transport} is not charged"]
    return ["launches and the library's steps are not charged, hardware latencies are"]
