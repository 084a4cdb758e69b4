"""Reducers recorded once on a model's gradients, and what they take on several clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.study.compare.found import Found
from s2sim.study.compare.prepare import prepare
from s2sim.study.compare.workers import run_workers
from s2sim.study.measuring.executed import Executed
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s2sim.study.measuring.record import Recorded
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Timed:
    """What one reducer takes on one cluster.

    Attributes
    ----------
    time_s : float
        The communication phase, encoding and decoding included, with all gradients there at once.
    iteration_s : float
        The whole iteration where the spec has a profile, else ``time_s``.
    sent_bytes : int
        By the busiest rank, of ring collectives.
    error : float or None
        Relative L2 error of the aggregate on the trace's gradients; None where it is undefined.
    """

    time_s: float
    iteration_s: float
    sent_bytes: int
    error: float | None


def sweep(
    spec: RunSpec, clusters: Mapping[str, tuple[str, ...]], progress: Progress, *, tables_only: bool = False
) -> dict[str, dict[str, Timed]]:
    """Return what every reducer of a spec takes on several clusters, by cluster and option string.

    Gradients are reduced once; clusters differ from the spec's by further ``--set`` overrides.

    Parameters
    ----------
    spec : RunSpec
        Topology, reducers, trace, profile or model, and one number of workers.
    clusters : mapping of str to tuple of str
        Overrides of each cluster, by its name.
    tables_only : bool
        Whether to leave out all layers but the row-sparse ones: what their communication takes by itself.
    """
    count = spec.workers[0]
    scenario = _on(spec, tables_only=tables_only)
    found = Found()
    run_workers(spec, scenario, None, progress, found, thorough=False)
    rows = {row.reducer: row for row in found.rows}
    timed: dict[str, dict[str, Timed]] = {}
    for name, overrides in clusters.items():
        where = _on(replace(spec, overrides=(*spec.overrides, *overrides)), tables_only=tables_only)
        timed[name] = {
            item.option_string: _timed(_executed(where, item, count), rows[item.option_string].error.relative_l2)
            for item in found.recorded[count]
        }
    return timed


def _on(spec: RunSpec, *, tables_only: bool) -> ReducerScenario:
    scenario = prepare(spec)
    if not tables_only:
        return scenario
    from s2sim.gradients.extrapolation.models import Model, load_model

    table = load_model(spec.model or spec.profile or "").table
    layers = tuple(group for group in table.layers if group.sparse)
    published = replace(table.published, parameters=sum(group.size for group in layers), within=0.0, tied=())
    target = Model("tables", replace(table, layers=layers, published=published))
    return replace(scenario, target=target, training=None)


def _executed(scenario: ReducerScenario, item: Recorded, count: int) -> Executed:
    own = scenario.running(item.reducer.runs_by)
    return Executed(item.recording, own, own.timer(count, scenario.ways(count)), item.exchange)


def _timed(executed: Executed, error: float | None) -> Timed:
    return Timed(
        time_s=executed.replay.total_ps / PS_PER_S,
        iteration_s=executed.judged_ps / PS_PER_S,
        sent_bytes=executed.sent_real(),
        error=error,
    )
