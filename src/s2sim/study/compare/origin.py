"""Where the numbers of a run come from."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from s2sim.gradients.extrapolation.models import Model
from s2sim.provenance import content_hash, run_record
from s2sim.study.scenario.content import run_content

if TYPE_CHECKING:
    from collections.abc import Collection

    from s2sim.study.extrapolate.beyond import Beyond
    from s2sim.study.scenario.machines import Machines
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec
    from s2sim.topology.shape import ClusterShape


def hardware_inputs(shape: ClusterShape, machines: Machines, varied: Collection[str] = ()) -> dict[str, Any]:
    """Return what a run record says of the topology, but for the fields that are varied, of the GPU and the library."""
    gpu, library = machines.gpu, machines.library
    described = [("topology", shape.name, shape.quantities), ("gpu", gpu.name, gpu.quantities)]
    if library.profile.rests_on:
        described.append(("library", library.name, library.profile.rests_on))
    inputs = {}
    for kind, name, quantities in described:
        fields = {
            item.field: {"value": item.value, "kind": item.kind, "source": item.source}
            for item in quantities
            if item.field not in varied
        }
        inputs[kind] = {"name": name, "sha256": content_hash(fields), "fields": fields}
    return inputs


def origin(spec: RunSpec, scenario: ReducerScenario, beyond: Beyond | None) -> dict[str, Any]:
    """Return the run record: what every number of a run comes from."""
    trace, target = scenario.trace, scenario.target
    return run_record(
        spec={
            **run_content(scenario, [scenario.ranks_of(count) for count in spec.workers]),
            "steps": spec.steps,
            "max_error": spec.max_error,
        },
        inputs={
            **hardware_inputs(scenario.shape, scenario.machines),
            "trace": {
                "name": trace.name,
                "kind": trace.manifest.kind,
                "sha256": content_hash(dict(trace.manifest.files)),
            },
            **({"model": _model_record(target)} if isinstance(target, Model) else {}),
            "seed": spec.seed,
        },
        measured=["bytes", "error"],
        assumed=[
            "time: simulated on the topology above; encode and decode: bytes over memory bandwidth and launches",
            *([] if beyond is None else [f"rows with a mark are {beyond.sentence()}"]),
        ],
    )


def _model_record(model: Model) -> dict[str, Any]:
    """Return what says which layer table was taken, and what it rests on."""
    table = asdict(model.table)
    return {"name": model.name, "sha256": content_hash(table), "kind": model.table.kind, "source": model.table.source}
