"""What a reader must know to read a run's numbers rightly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.replay.plan import make_plan
from s2sim.study.collective.sizes import counted_bytes
from s2sim.study.compare.fault_notes import fault_notes
from s2sim.study.compare.iteration_notes import compute_notes
from s2sim.study.compare.library_notes import library_notes, wire_note
from s2sim.study.measuring.record import names_of
from s2sim.study.progress import INTERRUPTED_NOTE
from s2sim.study.scenario.calibrated import outside_notes
from s2sim.study.spec import BASELINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.load import AnyTrace
    from s2sim.study.extrapolate.beyond import Beyond
    from s2sim.study.measuring.executed import Executed
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


def run_notes(spec: RunSpec, scenario: ReducerScenario, recorded: Sequence[Recorded]) -> list[str]:
    """Return what a reader must know who sees the rows of the largest number of workers."""
    trace, library = scenario.trace, scenario.library
    warm = [item for item in recorded if item.reducer.traits.warm]
    notes = ["of the first step of the trace: residuals are empty, and what later steps know already is exchanged too"]
    if warm:
        source = (
            "the trace's second step"
            if trace.steps > 1 and not spec.scaled
            else "the same gradients, which they fit better than in training"
        )
        notes.append(f"{names_of(warm)}: a later step, whose sizes, units or matrices are those of {source}")
    notes += _period_notes(spec, trace, recorded)
    notes += [
        f"{item.option_string}: as after its first {item.reducer.settles_after} steps, which go otherwise"
        for item in recorded
        if item.reducer.settles_after
    ]
    if spec.steps > 1:
        notes.append(
            f"over {spec.steps} steps what is carried over comes from the step before, and what needs error "
            "feedback runs with it; residuals over the L2 norm of the first step's gradients"
        )
        if warm:
            notes.append(f"{names_of(warm)}: a later step already, so that it is not followed over steps")
    if trace.manifest.kind == "synthetic":
        notes.append("the gradients are synthetic: errors and sizes are those of made-up data")
    notes += _type_notes(scenario.dtype)
    notes += compute_notes(spec, scenario, recorded)
    if spec.max_error is None:
        notes.append(
            "what is worse than zeros never wins: an error of 1 or more, or above 1 on a layer; nor, unless --steps "
            "follows its residuals, one of 0.995 or more; --max-error sets a stricter limit"
        )
    plans = [make_plan(item.recording, library) for item in recorded]
    kinds = sorted({demand.kind for plan in plans for lowered in plan.lowered for demand in lowered.demands})
    if not isinstance(scenario.algorithm, str):
        able = scenario.algorithm.kinds
        notes += [
            f"{spec.collective} does not run {kind}: the fastest that does ran instead"
            for kind in kinds
            if kind not in able
        ]
    notes += _granularity(trace, recorded)
    notes += [f"{item.option_string}: {note}{_found(item)}" for item in recorded for note in item.reducer.notes()]
    notes += [
        f"{item.option_string}: ranks do not end alike; the consensus distance, the RMS of their distances to their "
        f"average over its L2 norm, is {item.consensus:.3g} after the first step, and errors are those of the worst"
        for item in recorded
        if item.consensus
    ]
    notes += library_notes(library, scenario.shape, recorded)
    if len(spec.workers) > 1:
        notes.append(f"break-even is for {recorded[0].recording.workers} workers")
    return notes


def _period_notes(spec: RunSpec, trace: AnyTrace, recorded: Sequence[Recorded]) -> list[str]:
    """Return what the rows are of that do not exchange every step."""
    by_period: dict[int, list[Recorded]] = {}
    for item in recorded:
        by_period.setdefault(item.reducer.period, []).append(item)
    notes = []
    for period, items in by_period.items():
        steps = 1 if spec.scaled else trace.steps
        if period == 1:
            continue
        if steps == 1:
            source = "the same gradients in all of them, as there is but one step"
        elif steps < period:
            source = f"the gradients of {steps} steps in turn, as there are no more"
        else:
            source = f"those of the trace's first {period} steps"
        notes.append(
            f"{names_of(items)}: time and bytes are means over {period} steps, the last of which exchanges the sum; "
            f"{source}; that models drift apart in between shows in no error"
        )
    return notes


def _type_notes(dtype: str) -> list[str]:
    """Return what it means that gradients are not held in float32."""
    if dtype == "fp32":
        return []
    text = f"training holds gradients in {dtype}: what is not compressed travels so, rounded from what was recorded, "
    return [f"{text}and no reducer counts as lossy for that; GPU work is counted as for float32"]


def caveats_of(
    scenario: ReducerScenario,
    recorded: Sequence[Recorded],
    executed: Sequence[Executed],
    beyond: Beyond | None,
    *,
    interrupted: bool,
) -> tuple[str, ...]:
    """Return the notes without which the verdict would mislead."""
    of_wire = wire_note(scenario.library, scenario.shape)
    return (
        *([] if beyond is None else [beyond.sentence()]),
        *([] if of_wire is None else [of_wire]),
        *_groups(scenario),
        *_outside(scenario, recorded),
        *_missing_rivals(recorded),
        *_missing_levels(scenario, recorded),
        *fault_notes(scenario, recorded, executed),
        *([INTERRUPTED_NOTE] if interrupted else []),
    )


def _groups(scenario: ReducerScenario) -> list[str]:
    """Return what exchanges gradients beside what is shown."""
    if scenario.groups is None:
        return []
    if scenario.training is not None:
        return list(scenario.training.notes)
    each = (
        f"all {scenario.groups.count} data-parallel groups exchange at once, a rank a gradient as large as the trace's"
    )
    return [f"{each}; without --profile nothing is known of what tensor- and pipeline-parallel ranks send each other"]


def _outside(scenario: ReducerScenario, recorded: Sequence[Recorded]) -> list[str]:
    """Return where the library's constants are used outside of what they were fitted to."""
    library = scenario.library
    demands = [
        demand
        for item in recorded
        for lowered in make_plan(item.recording, library).lowered
        for demand in lowered.demands
    ]
    sent = {(demand.kind, counted_bytes(demand)) for demand in demands if demand.ranks > 1}
    return outside_notes(library, scenario, recorded[0].recording.workers, sent)


def _granularity(trace: AnyTrace, recorded: Sequence[Recorded]) -> list[str]:
    """Return at which granularity row-sparse layers are sent, by those that compress them."""
    names = [layer.name for layer in trace.manifest.layers if layer.sparse]
    by_text: dict[str, list[Recorded]] = {}
    for item in recorded:
        if item.reducer.traits.granularity:
            by_text.setdefault(item.reducer.traits.granularity, []).append(item)
    if not names or not by_text:
        return []
    parts = "; ".join(f"{text} ({names_of(items)})" for text, items in by_text.items())
    return [f"row-sparse layers ({', '.join(names)}) are sent by {parts}; dense ones, with layers=all, by element"]


def _missing_levels(scenario: ReducerScenario, recorded: Sequence[Recorded]) -> list[str]:
    """Return that nothing sums inside nodes first, where nodes have several ranks and tables are compressed by row."""
    ranks = np.bincount(scenario.cluster(recorded[0].recording.workers).node_of_rank)
    reducers = [item.reducer for item in recorded]
    levels = any(each.traits.name == "node-union" or each.options().get("hierarchical") for each in reducers)
    by_row = any(each.traits.granularity for each in reducers)
    if not by_row or levels or ranks.max() == 1 or np.count_nonzero(ranks) == 1:
        return []
    shared = f"up to {ranks.max()} GPUs share a node, and nothing compared here sums inside nodes first"
    return [f"{shared}: --reducer node-union does, exactly, and takes some seconds more"]


def _missing_rivals(recorded: Sequence[Recorded]) -> list[str]:
    """Return what S2 has to be compared with to be fair, if it is not."""
    names = {item.reducer.traits.name for item in recorded}
    missing = [name for name in BASELINES if name not in names]
    if not missing or not names & {"s2", "s2-exact"}:
        return []
    asked = " ".join(f"--reducer {name}" for name in missing)
    return [f"S2 is compared without all that is exact and simpler: {asked} makes it fair"]


def _found(item: Recorded) -> str:
    """Return what came out of a size that an error was asked for with."""
    if item.reducer.options().get("error") is None:
        return ""
    error = item.errors.compressed.relative_l2
    return f"; found {'no error that is defined' if error is None else f'{error:.3g}'}"
