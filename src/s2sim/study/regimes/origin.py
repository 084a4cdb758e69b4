"""What a reader must know of a regime map, and where its numbers come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.collectives.libraries.profile import PLAIN
from s2sim.collectives.libraries.tables import IDEAL
from s2sim.provenance import run_record
from s2sim.study.compare.library_notes import library_notes
from s2sim.study.compare.origin import hardware_inputs
from s2sim.study.regimes.spec import LATENCY_FIELD, RATE_FIELD
from s2sim.study.scenario.content import (
    cluster_content,
    content_of,
    in_any_order,
    library_content,
    reducers_content,
    trace_content,
)
from s2sim.study.spec import PREFETCH
from s2sim.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.study.measuring.record import Recorded
    from s2sim.study.regimes.scenario import RegimeScenario
    from s2sim.study.regimes.spec import RegimeSpec

_FLOAT32_BYTES = 4


def map_notes(
    spec: RegimeSpec, scenario: RegimeScenario, recorded: Sequence[Recorded], refusals: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return what a reader must know to read the map rightly; ``refusals`` says where each was made."""
    notes = [
        "the gradients are synthetic, one row-sparse layer: real ones differ in tails and in how rows repeat",
        "communication phase only; margins under 1 % are ties",
    ]
    warm = [item.option_string for item in scenario.reducers if item.reducer.traits.warm]
    if warm:
        notes.append(
            f"{', '.join(warm)}: as in every step but the first; what a step carries over is taken from another one"
        )
    if PREFETCH in spec.reducers:
        notes.append(
            f"{PREFETCH} presumes that the batch tells the rows before forward, as for embeddings, and that "
            "forward and backward are long enough to hide the exchange of supports"
        )
    elif any(item.reducer.traits.name == "union" for item in scenario.reducers):
        notes.append("union learns the rows after backward; --prefetch adds a union that knows them from the batch")
    shape = scenario.networks[0].scenario.shape
    last = {item.option_string: item for item in recorded}
    library = scenario.machines.library
    notes += library_notes(library, shape, list(last.values()))
    if library != IDEAL and library.profile == PLAIN:
        notes.append(
            f"{library.option_string}: the latencies asked for are those of the hardware and of the library together; "
            "timing=measured adds the library's to them"
        )
    notes += [f"{text} ({'; '.join(places)})" for text, places in refusals.items()]
    return notes


def headline(spec: RegimeSpec, scenario: RegimeScenario) -> str:
    """Return the cluster and the gradient in one line."""
    where = scenario.networks[0].scenario
    nodes = int(where.cluster(spec.workers).node_of_rank.max()) + 1
    size = format_bytes(spec.rows * spec.width * _FLOAT32_BYTES)
    values = "gaussian values" if spec.tail == "gaussian" else f"values with a power-law tail of exponent {spec.tail}"
    return (
        f"{where.shape.name}: {spec.workers} workers in {nodes} nodes; {scenario.machines.text}; gradient of "
        f"{spec.rows} x {spec.width} float32 ({size}), {values}"
    )


def map_origin(spec: RegimeSpec, scenario: RegimeScenario) -> dict[str, Any]:
    """Return the run record of a map."""
    inputs = hardware_inputs(scenario.networks[0].scenario.shape, scenario.machines, (RATE_FIELD, LATENCY_FIELD))
    return run_record(
        spec={
            "networks": in_any_order(cluster_content(item.scenario, [spec.workers]) for item in scenario.networks),
            "gradients": in_any_order(map(trace_content, scenario.traces)),
            "reducers": reducers_content(scenario.reducers),
            "library": library_content(scenario.machines.library),
            "gpu": content_of(scenario.machines.gpu),
            "max_error": spec.max_error,
        },
        inputs={**inputs, "gradients": {"kind": "synthetic"}, "seed": spec.seed},
        measured=["bytes", "error"],
        assumed=[
            "gradients: drawn at random with the densities, overlaps and tail asked for",
            "time: simulated on the topology above at each rate and latency",
            "encode and decode: bytes over memory bandwidth and launches",
        ],
    )
