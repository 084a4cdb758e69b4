"""The JSON schemas of what is asked for: which results there are, and what their annotations name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from s2sim.registry import Registry
from s2sim.study.result_form import SCHEMA_VERSION
from s2sim.study.schema.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Mapping

R = TypeVar("R")

RESULTS = Registry(
    "result",
    "s2sim.results",
    {
        "run": "s2sim.study.measuring.result:Result",
        "collective": "s2sim.study.collective.result:CollectiveResult",
        "against": "s2sim.study.collective.against_result:AgainstResult",
        "calibrate": "s2sim.study.calibrate.result:CalibrationResult",
        "flows": "s2sim.study.flows.result:FlowsResult",
        "iterations": "s2sim.study.validate.iterations.result:IterationsResult",
        "paper": "s2sim.study.papers.claim:Papers",
        "regimes": "s2sim.study.regimes.map:RegimeMap",
        "train": "s2sim.study.convergence.result:Trained",
        "validate": "s2sim.study.validate.result:ValidationResult",
    },
)
# Modules of the types that these annotate with, which they import for type checkers alone.
_NAMING = (
    "s2sim.arrays",
    "s2sim.reducers.measure",
    "s2sim.replay.faults.fault",
    "s2sim.study.calibrate.spec",
    "s2sim.study.collective.beside",
    "s2sim.study.collective.both_networks",
    "s2sim.study.collective.link_loads",
    "s2sim.study.collective.spec",
    "s2sim.study.collective.terms",
    "s2sim.study.convergence.curve",
    "s2sim.study.convergence.intervals",
    "s2sim.study.convergence.spec",
    "s2sim.study.fidelity.band",
    "s2sim.study.fidelity.run_class",
    "s2sim.study.flows.cross_check",
    "s2sim.study.flows.spec",
    "s2sim.study.flows.transfers",
    "s2sim.study.json_form",
    "s2sim.study.measuring.gradients",
    "s2sim.study.measuring.iteration_row",
    "s2sim.study.measuring.row_parts",
    "s2sim.study.measuring.verdict_row",
    "s2sim.study.papers.claim",
    "s2sim.study.regimes.spec",
    "s2sim.study.spec",
)


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of what ``--json`` writes for one kind of result.

    Keys that are not in it may come without another version.

    Raises
    ------
    UnknownNameError
        Where there is no result of that name.
    """
    kind = RESULTS.get(name)
    walk = _walk()
    walk.schema(kind)
    top = walk.definitions.pop(kind.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"s2sim {name}, version {SCHEMA_VERSION}",
        **top,
        "properties": {"schema_version": {"const": SCHEMA_VERSION}, **top["properties"]},
        "required": ["schema_version", *top["required"]],
        "$defs": walk.definitions,
    }


def load_result(kind: type[R], value: Mapping[str, Any]) -> R:
    """Return the result of type ``kind`` that was written as the JSON object ``value``."""
    found: R = _walk().load(kind, value)
    return found


def _walk() -> Walk:
    return Walk({known: value for module in _NAMING for known, value in vars(import_module(module)).items()})
