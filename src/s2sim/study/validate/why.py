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
        if machine.has_nvswitch:
            nvls = "switches that reduce (NVLS) reach another share of the rate than others of their generation"
            return [nvls] if machine.collective == "all_reduce" else []
        return []
    reasons = []
    if several and machine.path in ("host-bridge", "staged"):
        reasons.append(f"what the way between GPU and interface ({machine.path}) forwards is a share of its class")
    if machine.p2p == "no":
        reasons.append("copies through host memory between GPUs of a node are a share of their class")
    if several and machine.collective == "all_reduce" and not machine.algorithm:
        reasons.append("the fastest algorithm is taken, which the library need not choose")
    return reasons or ["its software reaches another share of the rate than others of its class"]


def _of_small(machine: Machine) -> list[str]:
    if machine.nodes > 1 and machine.transport in _SOFTWARE:
        return [f"the latency of the software of {machine.transport} is that of its class"]
    return ["launches and hops are those of their class"]
