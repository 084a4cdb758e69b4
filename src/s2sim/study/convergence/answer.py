"""From curves to an answer: the target, a row a reducer, a verdict."""

from __future__ import annotations

from math import ceil, floor, inf, isinf, log10
from typing import TYPE_CHECKING

from s2sim.provenance import run_record
from s2sim.study.convergence.curve import Target, reached
from s2sim.study.convergence.result import Trained, make_row
from s2sim.study.convergence.words import answer_lines
from s2sim.study.progress import INTERRUPTED_NOTE
from s2sim.study.scenario.content import cluster_content, content_of, library_content
from s2sim.units import format_count
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.bridge.training.fits import Fitting
    from s2sim.study.convergence.curve import Curve
    from s2sim.study.convergence.wanted import Facts, Wanted

_DIGITS = 4


def answer(wanted: Wanted, curves: Sequence[Curve], *, interrupted: bool) -> Trained:
    """Return the answer of what was trained."""
    spec, facts = wanted.spec, wanted.facts
    assert facts is not None
    base = wanted.fittings[0].option_string
    by_reducer = {
        each.option_string: {c.seed: c for c in curves if c.reducer == each.option_string} for each in wanted.fittings
    }
    target, why = _target(wanted, list(by_reducer[base].values()))
    reaches = {
        name: {seed: None if target is None else reached(each, target) for seed, each in own.items()}
        for name, own in by_reducer.items()
    }
    rows = tuple(
        make_row(name, _feedback(each), by_reducer[name], reaches[name], reaches[base], spec.steps)
        for each in wanted.fittings
        if by_reducer[name := each.option_string]
    )
    notes = [note for each in wanted.fittings for note in each.notes]
    return Trained(
        spec=spec,
        headline=_headline(wanted, facts),
        score=facts.score,
        target=target,
        target_why=why,
        rows=rows,
        curves=tuple(curves),
        verdict=answer_lines(rows, curves, target, base),
        compute_why=facts.compute.why,
        notes=(*notes, *([INTERRUPTED_NOTE] if interrupted else [])),
        provenance=_origin(wanted, facts),
    )


def _target(wanted: Wanted, dense: Sequence[Curve]) -> tuple[Target | None, str]:
    spec = wanted.spec
    if spec.target_loss is not None:
        return Target("loss", spec.target_loss), "as asked for"
    if spec.target_accuracy is not None:
        return Target("accuracy", spec.target_accuracy), "as asked for"
    name = wanted.fittings[0].option_string
    lowest = [float(each.eval_loss.min()) for each in dense]
    target = _rounded_up(max(lowest, default=inf))
    if target >= min((float(each.eval_loss[0]) for each in dense), default=0.0):
        return None, f"{name} does not get below where all seeds begin: train longer, or give --target-loss"
    return Target("loss", target), f"the lowest that {name} reaches with every seed"


def _rounded_up(value: float) -> float:
    """Return a number above 0 with four digits, no less than it.

    >>> _rounded_up(5.09312), _rounded_up(0.0412345)
    (5.094, 0.04124)
    """
    if isinf(value):
        return value
    digits = _DIGITS - 1 - floor(log10(value))
    return float(round(ceil(value * 10**digits) / 10**digits, digits))


def _feedback(fitting: Fitting) -> str:
    reducer = fitting.reducer
    options = reducer.options()
    kinds = [key for key in ("ef", "momentum", "gmc") if options.get(key) not in (None, False, 0.0)]
    if options.get("ef") not in (None, False, True):
        return str(options["ef"])
    if kinds:
        return kinds[0]
    return "own" if reducer.traits.feedback == "own" else "none"


def _headline(wanted: Wanted, facts: Facts) -> str:
    spec, where = wanted.spec, wanted.where
    nodes = int(where.cluster(spec.workers).node_of_rank.max()) + 1
    settings = wanted.settings
    momentum = f", momentum {settings.momentum:g}" if settings.momentum else ""
    return (
        f"{facts.model}, {format_count(facts.parameters)} parameters, {settings.optimizer} (learning rate "
        f"{settings.learning_rate:g}{momentum}) on {facts.data}; {number_of(spec.workers, 'worker')} in "
        f"{number_of(nodes, 'node')} of {where.shape.name}; {wanted.machines.text}"
    )


def _origin(wanted: Wanted, facts: Facts) -> dict[str, object]:
    spec = wanted.spec
    return run_record(
        spec={
            "cluster": cluster_content(wanted.where, [spec.workers]),
            "library": library_content(wanted.machines.library),
            "gpu": content_of(wanted.machines.gpu),
            "model": content_of(wanted.settings),
            "reducers": [each.option_string for each in wanted.fittings],
            "steps": spec.steps,
            "seeds": [spec.seed + number for number in range(spec.seeds)],
            "compute_ps": facts.compute.ps,
        },
        inputs={"data": facts.data, "texts": list(spec.text), "seed": spec.seed},
        measured=["loss", "accuracy", "bytes"],
        assumed=[
            "time: every step's scripts simulated on the topology above, and compute beside them without overlap",
            "encode and decode: bytes over memory bandwidth and launches",
        ],
    )
