"""Tells whether a gradient compressor makes training faster on a cluster, by how much, why, and at what cost.

``run`` compares reducers on a cluster, ``run_collective`` times one collective, ``run_flows`` any traffic;
``reduce_once`` and ``reduce_steps`` run one reduction, or several steps, without a cluster. Each is imported when first
used, because ``s2sim --help`` needs none of them. What goes wrong is an ``S2SimError``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from s2sim.errors import S2SimError, S2SimWarning, nearest

if TYPE_CHECKING:
    from s2sim.reducers.once import reduce_once, reduce_steps
    from s2sim.study.collective.run import run_collective
    from s2sim.study.compare.run import run
    from s2sim.study.flows.run import run_flows
    from s2sim.study.spec import RunSpec

__version__ = "0.1.0"

__all__ = [
    "RunSpec",
    "S2SimError",
    "S2SimWarning",
    "__version__",
    "reduce_once",
    "reduce_steps",
    "run",
    "run_collective",
    "run_flows",
]

_HOMES = {
    "RunSpec": "s2sim.study.spec",
    "reduce_once": "s2sim.reducers.once",
    "reduce_steps": "s2sim.reducers.once",
    "run": "s2sim.study.compare.run",
    "run_collective": "s2sim.study.collective.run",
    "run_flows": "s2sim.study.flows.run",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 's2sim' has no attribute {name!r}{nearest(name, __all__)}")
    return getattr(import_module(_HOMES[name]), name)
