"""The content of an experiment, and its hash: equal where the same numbers are computed, however that was written.

Everything is taken as it was resolved. Units, the order of options, overrides, faults, reducers and numbers of workers,
defaults that are written out, the paths of files and their comments change nothing; a file counts by what it says. Rows
stand in the order that was asked for, which the hash leaves open. A fault that draws does so by its own spelling, which
therefore counts.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from s2sim.collectives.libraries.library import OF_TIMING
from s2sim.gradients.extrapolation.law_ranks import MoreRanks
from s2sim.gradients.extrapolation.models import Model
from s2sim.gradients.traces.synthetic import SyntheticTrace
from s2sim.options import Size, Time, option_text
from s2sim.provenance import content_hash
from s2sim.topology.files.fields import MACHINE_FIELDS
from s2sim.topology.placement import PLACEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.collectives.libraries.library import Library
    from s2sim.collectives.libraries.profile import Profile
    from s2sim.gradients.load import AnyTrace
    from s2sim.replay.faults.fault import Fault
    from s2sim.study.scenario.asked import AskedReducer
    from s2sim.study.scenario.cluster import Scenario
    from s2sim.study.scenario.reducers import ReducerScenario

# For reading, and what is known of numbers beside their values.
_TEXTS = ("name", "description", "source", "file", "quantities")


def content_of(value: Any) -> Any:
    """Return what a resolved value says, as JSON values."""
    if isinstance(value, Time):
        return value.ps
    if isinstance(value, Size):
        return value.bytes
    if is_dataclass(value):
        return {item.name: content_of(getattr(value, item.name)) for item in fields(value) if item.name not in _TEXTS}
    if isinstance(value, (list, tuple)):
        return [content_of(item) for item in value]
    return value


def in_any_order(values: Iterable[Any]) -> list[str]:
    """Return the hashes of some contents, sorted."""
    return sorted(content_hash(value) for value in values)


def cluster_content(scenario: Scenario, workers: Sequence[int]) -> dict[str, Any]:
    """Return the content of a scenario's clusters of some numbers of workers."""
    shape = content_of(scenario.shape)
    named = shape.pop("named_links")
    # GPU and library count where something runs on them, as they were taken.
    shape = {name: value for name, value in shape.items() if name not in MACHINE_FIELDS}
    clusters = [(count, scenario.healthy(count)) for count in sorted(workers)]
    return {
        "shape": shape,
        # A field that is given stays as it is where others vary.
        "given": sorted({item.field for item in scenario.shape.quantities} - {*_TEXTS, *MACHINE_FIELDS}),
        "links": [in_any_order(named), *([item.fabric.rate_Bps.tolist() for _, item in clusters] if named else [])],
        "workers": [count for count, _ in clusters],
        "placement": scenario.placement
        if scenario.placement in PLACEMENTS
        else [item.gpu_of_rank.tolist() for _, item in clusters],
        "seed": scenario.seed,
        "faults": in_any_order(map(_fault_content, scenario.faults)),
        "algorithm": scenario.algorithm if isinstance(scenario.algorithm, str) else option_text(scenario.algorithm),
        **(
            {}
            if scenario.groups is None
            else {"groups": [scenario.groups.tp, scenario.groups.pp, scenario.groups.order]}
        ),
    }


def _fault_content(fault: Fault) -> Any:
    return [fault.name, fault.text if fault.draws else content_of(fault)]


def reducers_content(reducers: Sequence[AskedReducer]) -> list[str]:
    """Return the content of reducers: every option with its value."""
    return in_any_order([item.reducer.traits.name, item.reducer.options()] for item in reducers)


def library_content(library: Library) -> Any:
    """Return the content of a library: options that decide what it executes, and what it adds."""
    return [
        library.name,
        [option for option in library.chosen if option[0] not in OF_TIMING],
        profile_content(library.profile),
    ]


def profile_content(profile: Profile) -> Any:
    """Return the content of what a library adds: its parameters, and the numbers that it rests on."""
    return [content_of(profile), [(item.field, item.value) for item in profile.rests_on]]


def trace_content(trace: AnyTrace) -> Any:
    """Return the content of gradients: the hashes of recorded files, or what is drawn."""
    if isinstance(trace, MoreRanks):
        return [trace.seed, dict(trace.manifest.files)]
    if isinstance(trace, SyntheticTrace):
        return [trace.seed, content_of(trace.options)]
    return dict(trace.manifest.files)


def run_content(scenario: ReducerScenario, workers: Sequence[int]) -> dict[str, Any]:
    """Return the content of a comparison of reducers."""
    target = scenario.target
    return {
        "cluster": cluster_content(scenario, workers),
        "reducers": reducers_content(scenario.reducers),
        "library": library_content(scenario.library),
        "gpu": content_of(scenario.gpu),
        "trace": trace_content(scenario.trace),
        "dtype": scenario.dtype,
        "target": [content_of(layer) | {"name": layer.name} for layer in target.layers]
        if isinstance(target, Model)
        else target,
        "compute_ps": scenario.compute_ps,
        **_training_content(scenario),
    }


def _training_content(scenario: ReducerScenario) -> dict[str, Any]:
    """Return the content of iterations, where a profile says what they compute."""
    training = scenario.training
    if training is None:
        return {}
    return {
        "training": {
            **content_of(training),
            "discipline": training.discipline.text,
            "value_bytes": training.value_bytes,
            "multiprocessors": scenario.gpu.multiprocessors,
        }
    }
