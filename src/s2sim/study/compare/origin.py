"""Where the numbers of a run come from."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from s2sim.gradients.extrapolation.models import load_model
from s2sim.provenance import content_hash, run_record

if TYPE_CHECKING:
    from s2sim.gradients.load import AnyTrace
    from s2sim.study.extrapolate.beyond import Beyond
    from s2sim.study.spec import RunSpec
    from s2sim.topology.files.hardware import Gpu
    from s2sim.topology.shape import ClusterShape


def origin(spec: RunSpec, shape: ClusterShape, gpu: Gpu, trace: AnyTrace, beyond: Beyond | None) -> dict[str, Any]:
    """Return the run record: what every number of a run comes from."""
    fields = {
        name: {item.field: {"value": item.value, "kind": item.kind, "source": item.source} for item in quantities}
        for name, quantities in (("topology", shape.quantities), ("gpu", gpu.quantities))
    }
    return run_record(
        spec=spec.to_json(),
        inputs={
            "topology": {
                "name": shape.name,
                "sha256": content_hash(fields["topology"]),
                "fields": fields["topology"],
            },
            "gpu": {"name": gpu.name, "sha256": content_hash(fields["gpu"]), "fields": fields["gpu"]},
            "trace": {
                "name": trace.name,
                "kind": trace.manifest.kind,
                "sha256": content_hash(dict(trace.manifest.files)),
            },
            **({} if spec.model is None else {"model": _model_record(spec.model)}),
            "seed": spec.seed,
        },
        measured=["bytes", "error"],
        assumed=[
            "time: simulated on the topology above; encode and decode: bytes over memory bandwidth and launches",
            *([] if beyond is None else [f"rows with a mark are {beyond.sentence()}"]),
        ],
    )


def _model_record(name: str) -> dict[str, Any]:
    """Return what says which layer table was taken, and what it rests on."""
    model = load_model(name)
    table = asdict(model.table)
    return {"name": model.name, "sha256": content_hash(table), "kind": model.table.kind, "source": model.table.source}
