"""Tells whether a gradient compressor makes training faster on a cluster, by how much, why, and at what cost.

``run`` compares reducers on a cluster: it is ``record``, ``predict`` and ``compare``. ``run_topologies`` does so on
several clusters, ``sweep`` asks thousands of such questions, ``advise`` tells what to change; ``run_collective`` times
one collective, ``run_flows`` any traffic; ``reduce_once`` and ``reduce_steps`` run one reduction, or several steps,
without a cluster. ``train``, ``run_regimes``, ``run_papers``, ``run_validation`` and ``run_calibration`` are the other
commands. Each is imported when first used, because ``s2sim --help`` needs none of them. What goes wrong is an
``S2SimError``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from s2sim.errors import S2SimError as S2SimError
from s2sim.errors import S2SimWarning as S2SimWarning
from s2sim.errors import suggest_nearest
from s2sim.moved import install

if TYPE_CHECKING:
    from s2sim.advice.advise import advise as advise
    from s2sim.claims.paper import run_papers as run_papers
    from s2sim.experiment.run import run as run
    from s2sim.experiment.spec import RunSpec as RunSpec
    from s2sim.experiment.stages import compare as compare
    from s2sim.experiment.stages import predict as predict
    from s2sim.experiment.stages import record as record
    from s2sim.experiment.topologies import run_topologies as run_topologies
    from s2sim.reducers.run import reduce_once as reduce_once
    from s2sim.reducers.run import reduce_steps as reduce_steps
    from s2sim.regimes.run import run_regimes as run_regimes
    from s2sim.sweeps.sweep import sweep as sweep
    from s2sim.traffic.collective_run import run_collective as run_collective
    from s2sim.traffic.flows import run_flows as run_flows
    from s2sim.training.run import train as train
    from s2sim.validation.calibrate import run_calibration as run_calibration
    from s2sim.validation.validate_curves import run_validation as run_validation

install()

__version__ = "0.1.0"

_HOMES = {
    "RunSpec": "s2sim.experiment.spec",
    "S2SimError": "s2sim.errors",
    "S2SimWarning": "s2sim.errors",
    "advise": "s2sim.advice.advise",
    "compare": "s2sim.experiment.stages",
    "predict": "s2sim.experiment.stages",
    "record": "s2sim.experiment.stages",
    "reduce_once": "s2sim.reducers.run",
    "reduce_steps": "s2sim.reducers.run",
    "run": "s2sim.experiment.run",
    "run_calibration": "s2sim.validation.calibrate",
    "run_collective": "s2sim.traffic.collective_run",
    "run_flows": "s2sim.traffic.flows",
    "run_papers": "s2sim.claims.paper",
    "run_regimes": "s2sim.regimes.run",
    "run_topologies": "s2sim.experiment.topologies",
    "run_validation": "s2sim.validation.validate_curves",
    "sweep": "s2sim.sweeps.sweep",
    "train": "s2sim.training.run",
}

__all__ = list(_HOMES)
__all__ += ["__version__"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 's2sim' has no attribute {name!r}{suggest_nearest(name, __all__)}")
    return getattr(import_module(_HOMES[name]), name)
