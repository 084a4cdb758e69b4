"""The content of an experiment, and its hash: equal if the same numbers are computed.

Everything is taken as resolved: units, the order of options, overrides, faults, reducers and numbers of workers,
explicit defaults, paths and comments of files change nothing. A fault that samples does so by its own spelling, which
therefore counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from s2sim.gradients.models import Model
from s2sim.libraries.library import TIMING_OPTIONS, Library
from s2sim.options import Size, Time, option_text
from s2sim.provenance import content_hash, run_record
from s2sim.topology.cluster import PLACEMENTS
from s2sim.topology.fields import MACHINE_FIELDS

if TYPE_CHECKING:
    from s2sim.collectives.timing.library_profile import LibraryProfile
    from s2sim.experiment.scenario.cluster import Scenario
    from s2sim.experiment.scenario.reducers import ReducerScenario, ReducerSpec
    from s2sim.experiment.spec import RunSpec
    from s2sim.gradients.synthetic import AnyTrace
    from s2sim.topology.hardware import Gpu
    from s2sim.topology.shape import ClusterShape

# For reading, and what is known of numbers beside their values.
_TEXTS = ("name", "description", "source", "file", "quantities")


def hashable_content(value: Any) -> Any:
    """Return a resolved value as JSON values."""
    if isinstance(value, Time):
        return value.ps
    if isinstance(value, Size):
        return value.bytes
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name not in _TEXTS]
        return {name: hashable_content(getattr(value, name)) for name in names}
    return [hashable_content(item) for item in value] if isinstance(value, (list, tuple)) else value


def sorted_hashes(values: Iterable[Any]) -> list[str]:
    """Return the hashes of some contents, sorted."""
    return sorted(content_hash(value) for value in values)


def cluster_content(scenario: Scenario, workers: Sequence[int]) -> dict[str, Any]:
    """Return the content of a scenario's clusters of some numbers of workers."""
    shape = hashable_content(scenario.shape)
    named = shape.pop("named_links")
    # GPU and library count where something runs on them, as they were taken.
    shape = {name: value for name, value in shape.items() if name not in MACHINE_FIELDS}
    # Only the kind that is a graph has these.
    shape = {name: value for name, value in shape.items() if name not in ("graph", "paths") or value is not None}
    clusters = [(count, scenario.healthy(count)) for count in sorted(workers)]
    content = {
        "shape": shape,
        # A field that is given stays as it is where others vary.
        "given": sorted({item.field for item in scenario.shape.quantities} - {*_TEXTS, *MACHINE_FIELDS}),
        "links": [sorted_hashes(named), *([item.fabric.rate_Bps.tolist() for _, item in clusters] if named else [])],
        "workers": [count for count, _ in clusters],
        "placement": scenario.placement
        if scenario.placement in PLACEMENTS
        else [item.gpu_of_rank.tolist() for _, item in clusters],
        "seed": scenario.seed,
        "faults": sorted_hashes(
            [fault.name, fault.text if fault.draws else hashable_content(fault)] for fault in scenario.faults
        ),
        "algorithm": scenario.algorithm if isinstance(scenario.algorithm, str) else option_text(scenario.algorithm),
    }
    if scenario.groups is not None:
        content["groups"] = [scenario.groups.tp, scenario.groups.pp, scenario.groups.order]
    return content


def reducers_content(reducers: Sequence[ReducerSpec]) -> list[str]:
    """Return the content of reducers: every option with its value."""
    return sorted_hashes([item.reducer.traits.name, item.reducer.options(), *["bare"] * item.bare] for item in reducers)


def library_content(library: Library) -> Any:
    """Return the content of a library: the options that decide its execution, and its overhead."""
    deciding = [option for option in library.chosen if option[0] not in TIMING_OPTIONS]
    return [library.name, deciding, profile_content(library.profile)]


def profile_content(profile: LibraryProfile) -> Any:
    """Return the content of a protocol overhead: its parameters and the numbers that it rests on."""
    return [hashable_content(profile), [(item.field, item.value) for item in profile.used_quantities]]


def hardware_inputs(
    shape: ClusterShape, library: Library | None, gpu: Gpu | None = None, varied: Collection[str] = ()
) -> dict[str, Any]:
    """Return the run record's inputs for topology (without the ``varied`` fields), GPU and library."""
    described = [("topology", shape.name, shape.quantities)]
    described += [] if gpu is None else [("gpu", gpu.name, gpu.quantities)]
    if library is not None and library.profile.used_quantities:
        described.append(("library", library.name, library.profile.used_quantities))
    inputs = {}
    for kind, name, quantities in described:
        used = [item for item in quantities if item.field not in varied]
        values = {item.field: {"value": item.value, "kind": item.kind, "source": item.source} for item in used}
        inputs[kind] = {"name": name, "sha256": content_hash(values), "fields": values}
    return inputs


def trace_content(trace: AnyTrace) -> Any:
    """Return the content of gradients: the hashes of recorded files, or the options of sampling."""
    from s2sim.gradients.law import ExtrapolatedRanks  # what a collective alone does not load
    from s2sim.gradients.synthetic import SyntheticTrace

    if isinstance(trace, ExtrapolatedRanks):
        return [trace.seed, dict(trace.manifest.files)]
    if isinstance(trace, SyntheticTrace):
        return [trace.seed, hashable_content(trace.options)]
    return dict(trace.manifest.files)


def gradients_content(scenario: ReducerScenario) -> dict[str, Any]:
    """Return the content of gradients and of the sizes to which they are scaled."""
    target = scenario.target
    return {
        "trace": trace_content(scenario.trace),
        "dtype": scenario.dtype,
        "target": [hashable_content(layer) | {"name": layer.name} for layer in target.layers]
        if isinstance(target, Model)
        else target,
    }


def run_content(scenario: ReducerScenario, workers: Sequence[int]) -> dict[str, Any]:
    """Return the content of a comparison of reducers."""
    training = scenario.training
    content = {
        "cluster": cluster_content(scenario, workers),
        "reducers": reducers_content(scenario.reducers),
        "library": library_content(scenario.library),
        "gpu": hashable_content(scenario.gpu),
        **gradients_content(scenario),
        "compute_ps": scenario.compute_ps,
    }
    if training is not None:
        content["training"] = {
            **hashable_content(training),
            "discipline": training.discipline.text,
            "value_bytes": training.value_bytes,
            "multiprocessors": scenario.gpu.multiprocessors,
        }
    return content


def make_provenance(spec: RunSpec, scenario: ReducerScenario, extrapolated: str | None) -> dict[str, Any]:
    """Return the run record: the origin of every number of a run, and in words what is extrapolated."""
    trace, target, model = scenario.trace, scenario.target, {}
    if isinstance(target, Model):
        table = target.table
        record = {"sha256": content_hash(asdict(table)), "kind": table.kind, "source": table.source}
        model = {"model": {"name": target.name, **record}}
    return run_record(
        spec={
            **run_content(scenario, [scenario.ranks_of(count) for count in spec.workers]),
            "steps": spec.steps,
            "max_error": spec.max_error,
        },
        inputs={
            **hardware_inputs(scenario.shape, scenario.library, scenario.gpu),
            "trace": {
                "name": trace.name,
                "kind": trace.manifest.kind,
                "sha256": content_hash(dict(trace.manifest.files)),
            },
            **model,
            "seed": spec.seed,
        },
        named=spec.to_json(),
        measured=["bytes", "error"],
        assumed=[
            "time: simulated on the topology above; encode and decode: bytes over memory bandwidth and launches",
            *([] if extrapolated is None else [f"rows with a mark are {extrapolated}"]),
        ],
    )
