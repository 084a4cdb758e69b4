"""Tells whether a gradient compressor makes training faster on a cluster, by how much, why, and at what cost.

``run`` compares reducers on a cluster, ``run_collective`` times one collective, ``reduce_once`` runs one reduction
without a cluster. Each is imported when first used, because ``s2sim --help`` needs none of them.
"""

from __future__ import annotations

# Known to type checkers by its name; `typing` itself takes longer to import than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from s2sim.reducers.once import reduce_once
    from s2sim.study.collective.run import run_collective
    from s2sim.study.compare.run import run

__version__ = "0.1.0"

__all__ = ["__version__", "reduce_once", "run", "run_collective"]

_HOMES = {
    "reduce_once": "s2sim.reducers.once",
    "run": "s2sim.study.compare.run",
    "run_collective": "s2sim.study.collective.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 's2sim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
