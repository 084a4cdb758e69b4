"""Whose gradients a run reduces, at the size that it reduces them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.gradients.extrapolation.law_ranks import MoreRanks, SomeRanks
from s2sim.gradients.extrapolation.models import Model
from s2sim.gradients.extrapolation.scaling import tables_after
from s2sim.gradients.statistics import trace_statistics
from s2sim.gradients.traces.shipped import shipped_directories
from s2sim.study.measuring.gradients import Gradients

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.gradients.load import AnyTrace
    from s2sim.gradients.statistics import Statistics
    from s2sim.gradients.traces.manifest import Manifest
    from s2sim.study.scenario.reducers import ReducerScenario

# A dense gradient of 40 MB: nobody spreads a smaller model over a cluster.
_TOY_PARAMETERS = 10_000_000
_BYTES = {"fp32": 4, "bf16": 2}


def is_toy(trace: AnyTrace, *, scaled: bool) -> bool:
    """Return whether a small model's gradients stand for others: scaled, or those that come with s2sim."""
    small = trace.manifest.kind != "synthetic" and trace.manifest.parameters < _TOY_PARAMETERS
    return small and (scaled or trace.name in shipped_directories())


def whose_gradients(scenario: ReducerScenario, workers: int) -> Gradients:
    """Return what a run of at most ``workers`` ranks says of its gradients."""
    trace, target = scenario.trace, scenario.target
    manifest = trace.manifest
    recorded_ranks = trace.source.world_size if isinstance(trace, MoreRanks) else manifest.world_size
    parameters = target.parameters if isinstance(target, Model) else target or manifest.parameters
    density, row_density = _densities(manifest, _statistics(trace), target)
    return Gradients(
        trace=trace.name,
        model=manifest.model,
        kind=manifest.kind,
        toy=is_toy(trace, scaled=target is not None),
        recorded_ranks=recorded_ranks,
        recorded_steps=manifest.steps,
        recorded_parameters=manifest.parameters,
        parameters=parameters,
        bytes=_BYTES[scenario.dtype] * parameters,
        dtype=scenario.dtype,
        to_model=target.name if isinstance(target, Model) else None,
        drawn_ranks=max(0, workers - recorded_ranks),
        density=density,
        row_density=row_density,
    )


def _statistics(trace: AnyTrace) -> Statistics:
    """Return the manifest's statistics; of a synthetic trace those of its first rank, whose densities all have."""
    return trace.manifest.statistics or trace_statistics(SomeRanks(trace, 1, lambda gradient: gradient))


def _densities(manifest: Manifest, statistics: Statistics, target: Model | int | None) -> tuple[float, float | None]:
    """Return which share of the elements, and of the rows of row-sparse layers, one rank holds."""
    density = {name: spread.density for name, spread in statistics.layers.items()}
    layers = [(layer.size, layer.shape[0], layer.sparse, density[layer.name]) for layer in manifest.layers]
    if isinstance(target, Model):
        after = tables_after(target.layers, [layer.name for layer in manifest.layers if layer.sparse])
        dense = _mean((size, share) for size, _, sparse, share in layers if not sparse) or 0.0
        layers = [
            (layer.size, layer.shape[0], layer.sparse, density[after[layer.name]] if layer.sparse else dense)
            for layer in target.layers
        ]
    elements = _mean((size, share) for size, _, _, share in layers)
    assert elements is not None
    return elements, _mean((rows, share) for _, rows, sparse, share in layers if sparse)


def _mean(weighted: Iterable[tuple[int, float]]) -> float | None:
    """Return the mean of (weight, value); None of nothing."""
    pairs = list(weighted)
    whole = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / whole if whole else None
