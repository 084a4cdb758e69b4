"""One comparison of reducers from beginning to end: prepare, run, look for break-even, answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.study.break_even.scan import scan_rates
from s2sim.study.compare.answer import answer
from s2sim.study.compare.follow_rows import follow_steps
from s2sim.study.compare.found import Found
from s2sim.study.compare.prepare import prepare
from s2sim.study.compare.vary_rate import vary_rate
from s2sim.study.compare.workers import run_workers
from s2sim.study.extrapolate.beyond import look_beyond
from s2sim.study.measuring.row_parts import Refused

if TYPE_CHECKING:
    from s2sim.study.compare.found import Wanted
    from s2sim.study.measuring.result import Result
    from s2sim.study.progress import Progress
    from s2sim.study.spec import RunSpec


def carry_out(spec: RunSpec, progress: Progress, wanted: Wanted) -> Result:
    """Return the result of a run; after Ctrl-C of what was finished by then."""
    scenario = prepare(spec)
    ranks = scenario.ranks_of(max(spec.workers))
    wanted.check(scenario, ranks)
    beyond = look_beyond(scenario, ranks, progress)
    if beyond is not None and beyond.refused:
        checked = tuple(item for item in scenario.reducers if item.option_string not in beyond.refused)
        scenario = replace(scenario, reducers=checked, refused={**scenario.refused, **beyond.refused})
    found = Found()
    found.refused += [Refused(name, each, why) for name, why in scenario.refused.items() for each in spec.workers]
    interrupted = False
    try:
        run_workers(spec, scenario, beyond, progress, found, thorough=wanted.thorough)
        if wanted.timelines is not None:
            wanted.timelines |= found.timelines(wanted.timeline_rank)
        if spec.steps > 1:
            follow_steps(spec, scenario, progress, found)
        if wanted.break_even:
            scanned = found.recorded[found.largest] if wanted.thorough else found.named(spec.max_error)
            found.scan = scan_rates(scenario, scanned, progress)
            found.look_over_batches(spec.max_error)
        if wanted.curves is not None:
            wanted.curves |= vary_rate(scenario, found, progress)
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the rows that are finished.
        if not found.rows:
            raise
        interrupted = True
    progress.stop()
    return answer(spec, scenario, found, beyond, interrupted=interrupted)
