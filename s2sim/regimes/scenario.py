"""A regime map with its gradients, networks and reducers resolved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from s2sim.errors import OptionError, S2SimWarning
from s2sim.experiment.scenario.cluster import Machines, Scenario, resolve_machines
from s2sim.experiment.scenario.reducers import (
    ReducerSpec,
    check_ranks,
    parse_reducers,
    warn_of_later_options,
    with_baseline,
)
from s2sim.gradients.synthetic import SyntheticOptions, SyntheticTrace
from s2sim.regimes.map import RegimeSpec
from s2sim.topology.read_file import load_shape
from s2sim.units import format_rate, parse_option, parse_rate_Bps, parse_time_ps


@dataclass(frozen=True, slots=True)
class NetworkPoint:
    """One rate and latency of the network interfaces, and the cluster with them."""

    rate_Bps: float
    latency_ps: int
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class RegimeScenario:
    """Gradients of every density with every overlap, every rate with every latency, and what reducers run with."""

    traces: tuple[SyntheticTrace, ...]
    networks: tuple[NetworkPoint, ...]
    reducers: tuple[ReducerSpec, ...]
    machines: Machines


def resolve_regimes(spec: RegimeSpec) -> RegimeScenario:
    """Return the scenario of a map; `S2SimError` if a name or a value is not valid."""
    _parse_axis("--density", spec.densities, float)
    _parse_axis("--overlap", spec.overlaps, float)
    # A step, and one from which sizes are taken over.
    options = SyntheticOptions(tail=spec.tail, rows=spec.rows, width=spec.width, steps=2)
    traces = tuple(
        SyntheticTrace(replace(options, density=density, overlap=overlap), spec.workers, spec.seed)
        for density, overlap in product(spec.densities, spec.overlaps)
    )
    for trace in traces:
        check_ranks(spec.workers, trace)
    pairs = product(
        zip(spec.rates, _parse_axis("--rate", spec.rates, parse_rate_Bps), strict=True),
        zip(spec.latencies, _parse_axis("--latency", spec.latencies, parse_time_ps), strict=True),
    )
    networks = tuple(_network_point(spec, rate, latency) for rate, latency in pairs)
    shape = networks[0].scenario.shape
    reducers = with_baseline(parse_reducers(spec.reducers), "fp32")
    warn_of_later_options(reducers, what="the map")
    if other := [item for item in reducers if item.reducer.traits.estimates != "mean"]:
        raise OptionError(
            f"{other[0].option_string}: ranks end with {other[0].reducer.traits.estimates}, not the mean gradient, so "
            "that no error tells where it should win: leave it out of a map"
        )
    if fixed := [item.option_string for item in reducers if item.reducer.runs_by is not None]:
        raise OptionError(f"{fixed[0]}: in a map each collective runs by its fastest algorithm: leave collective= out")
    return RegimeScenario(
        traces=traces,
        networks=networks,
        reducers=reducers,
        machines=resolve_machines(shape, spec.overrides, spec.library, spec.gpu, latency_holds_library=True),
    )


def _parse_axis(option: str, values: Sequence[Any], parse: Callable[[Any], float]) -> list[Any]:
    """Return the parsed values of an axis; refuse one that is repeated in any spelling."""
    seen: dict[float, Any] = {}
    for value in values:
        parsed = parse_option(option, parse, value)
        if parsed in seen:
            raise OptionError(f"{option}: {seen[parsed]} and {value} are the same value: give it once")
        seen[parsed] = value
    return list(seen)


def _network_point(spec: RegimeSpec, rate: tuple[str, float], latency: tuple[str, int]) -> NetworkPoint:
    """Return the cluster with one rate and latency; refuse one on which they have no effect."""
    shape = load_shape(spec.topology, spec.network(rate[0], latency[0]))
    if any((node.nic.rate_Bps, node.nic.latency_ps) != (rate[1], latency[1]) for node in shape.nodes):
        raise OptionError(
            f"{shape.name} gives some of its [[nodes]] a nic.rate or nic.latency of their own, which --rate and "
            "--latency cannot vary: leave these out of the file"
        )
    scenario = Scenario(shape, spec.overrides, seed=spec.seed)
    if int(scenario.cluster(spec.workers).node_of_rank.max()) == 0:
        raise OptionError(
            f"all {spec.workers} workers are in one node of {shape.name}, where --rate and --latency change nothing: "
            "take more workers or --set node.gpus=1"
        )
    if shape.host_cable and shape.link.rate_Bps < rate[1]:
        text = f"--rate {rate[0]} is cut to {format_rate(shape.link.rate_Bps)} by fabric.link.rate of {shape.name}"
        warnings.warn(text, S2SimWarning, stacklevel=5)
    return NetworkPoint(rate[1], latency[1], scenario)
