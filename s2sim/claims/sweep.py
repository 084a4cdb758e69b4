"""Reducers recorded once on a model's gradients, and what they take on several clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from s2sim.experiment.prediction import execute, record
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.rows import Row
from s2sim.experiment.run import resolve_checked, run
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.gradient import Gradient
from s2sim.units import PS_PER_S


def compare_rows(spec: RunSpec, progress: ProgressWatcher) -> dict[str, Row]:
    """Return the row of each reducer of a run with one number of workers, without break-even and other libraries."""
    result = run(spec=spec, progress=progress, break_even=False, thorough=False)
    if result.interrupted:
        raise KeyboardInterrupt
    return {row.reducer: row for row in result.results}


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds.

    >>> milliseconds(0.0742)
    '74.2 ms'
    """
    return f"{1e3 * seconds:.1f} ms"


def normal_gradient(shapes: Iterable[tuple[int, ...]], seed: int = 0) -> Gradient:
    """Return a dense float32 gradient with layers of these shapes, standard normal."""
    from s2sim.gradients.gradient import Gradient

    generator = np.random.default_rng(seed)
    layers = tuple(generator.standard_normal(shape, np.float32) for shape in shapes)
    return Gradient(tuple(f"layer{place}" for place in range(len(layers))), layers)


def message_bytes(reducer: str, gradient: Gradient) -> int:
    """Return the bytes that one rank hands to collectives in one step, or all steps of a reducer's period.

    Without feedback and what is carried over, a message depends on one gradient alone.
    """
    from s2sim.reducers.registry import make_reducer
    from s2sim.reducers.run import run_reducer

    ran = run_reducer(make_reducer(reducer), [gradient], seed=0)
    return sum(call.bytes_by_rank[0] for call in ran.recording.calls)


@dataclass(frozen=True, slots=True)
class SweepTime:
    """What one reducer takes on one cluster."""

    time_s: float  # The communication phase, encoding and decoding included, with all gradients there at once
    iteration_s: float  # The whole iteration where the spec has a profile, else ``time_s``
    sent_bytes: int  # By the busiest rank, of ring collectives
    error: float | None  # Relative L2 error of the aggregate on the trace's gradients; None where it is undefined


def sweep(
    spec: RunSpec, clusters: Mapping[str, tuple[str, ...]], progress: ProgressWatcher, *, tables_only: bool = False
) -> dict[str, dict[str, SweepTime]]:
    """Return the times of every reducer of a spec on several clusters, by cluster and option string.

    Gradients are reduced once; ``clusters`` gives further ``--set`` overrides by the cluster's name. ``tables_only``
    leaves out all layers but the row-sparse ones.
    """
    count = spec.workers[0]
    scenario = _sweep_scenario(spec, tables_only=tables_only)
    progress.start(count + len(scenario.reducers), "running reducers on real gradients")
    recorded, _ = record(scenario, count, progress)
    timed: dict[str, dict[str, SweepTime]] = {}
    for name, overrides in clusters.items():
        where = _sweep_scenario(replace(spec, overrides=(*spec.overrides, *overrides)), tables_only=tables_only)
        timed[name] = {
            item.option_string: SweepTime(
                time_s=executed.replay.total_ps / PS_PER_S,
                iteration_s=executed.compared_ps / PS_PER_S,
                sent_bytes=executed.sent_real(),
                error=item.errors.whole.relative_l2,
            )
            for item, executed in zip(recorded, execute(where, recorded), strict=True)
        }
    return timed


def _sweep_scenario(spec: RunSpec, *, tables_only: bool) -> ReducerScenario:
    scenario = resolve_checked(spec)
    if not tables_only:
        return scenario
    from s2sim.gradients.models import Model, load_model

    table = load_model(spec.model or spec.profile or "").table
    layers = tuple(group for group in table.layers if group.sparse)
    published = replace(table.published, parameters=sum(group.size for group in layers), within=0.0, tied=())
    target = Model("tables", replace(table, layers=layers, published=published))
    return replace(scenario, target=target, training=None)
