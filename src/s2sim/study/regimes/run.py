"""Which reducer wins where: recorded once for each density and overlap, replayed at every rate and latency."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from s2sim.replay.run import replay
from s2sim.study.compare.library_notes import warn_of_idle_library_options
from s2sim.study.progress import INTERRUPTED_NOTE, SILENT
from s2sim.study.regimes.map import Cell, Contender, RegimeMap, Wins
from s2sim.study.regimes.origin import headline, map_notes, map_origin
from s2sim.study.regimes.scenario import resolve_regimes
from s2sim.study.regimes.scripts import Recorder
from s2sim.study.regimes.words import summarise
from s2sim.study.scenario.estimates import corners_of, estimates_of
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.timing.timer import Timer
    from s2sim.study.progress import Progress
    from s2sim.study.regimes.scripts import Script
    from s2sim.study.regimes.spec import RegimeSpec
    from s2sim.topology.files.hardware import Gpu


def run_regimes(spec: RegimeSpec, progress: Progress = SILENT) -> RegimeMap:
    """Return the map of who wins where."""
    scenario = resolve_regimes(spec)
    networks = [(each, each.scenario.timer(spec.workers)) for each in scenario.networks]
    each = len(scenario.reducers) + len(networks)
    progress.start(len(scenario.traces) * each, "recording and replaying reducers")
    recorder = Recorder(scenario, spec.max_error)
    gpu = scenario.machines.gpu
    gpus = (gpu, *corners_of(gpu))
    cells: list[Cell] = []
    # By GPU: who wins how many cells.
    won: list[Counter[str]] = [Counter() for _ in gpus]
    try:
        for trace in scenario.traces:
            scripts, drawn = recorder.record(trace, progress), trace.options
            for network, timer in networks:
                latency_s = network.latency_ps / PS_PER_S
                where = drawn.density, drawn.overlap, network.rate_Bps, latency_s
                found = [Cell(*where, _replayed(scripts, timer, each)) for each in gpus]
                cells.append(found[0])
                for counter, cell in zip(won, found, strict=True):
                    counter[cell.winner] += 1
                progress.advance()
        warn_of_idle_library_options(spec.library, scenario.machines.library, recorder.recorded)
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the cells that are finished.
        if not cells:
            raise
    progress.stop()
    wins = {
        name: Wins(won[0][name], min(each[name] for each in won), max(each[name] for each in won))
        for name in dict.fromkeys(name for each in won for name in each)
    }
    notes = map_notes(spec, scenario, recorder.recorded, recorder.refusals)
    return RegimeMap(
        spec=spec,
        cluster=headline(spec, scenario),
        cells=tuple(cells),
        wins=wins,
        summary=summarise(cells, spec.max_error, wins, estimates_of(gpu)),
        notes=(*notes, *([] if len(cells) == spec.cells else [INTERRUPTED_NOTE])),
        provenance=map_origin(spec, scenario),
    )


def _replayed(scripts: Sequence[Script], timer: Timer, gpu: Gpu) -> tuple[Contender, ...]:
    """Return how long each reducer takes in one cell, and whether it may win."""
    return tuple(
        Contender(
            reducer=script.recorded.option_string,
            total_ps=replay(script.recorded.recording, timer, gpu, script.plan).total_ps,
            error_relative_l2=script.recorded.errors.whole.relative_l2,
            bytes_sent_per_rank=script.bytes_sent,
            acceptable=script.acceptable,
        )
        for script in scripts
    )
