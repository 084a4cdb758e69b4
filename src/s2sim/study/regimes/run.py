"""Which reducer wins where: recorded once for each density and overlap, replayed at every rate and latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.replay.run import replay
from s2sim.study.compare.library_notes import warn_of_idle_library_options
from s2sim.study.progress import INTERRUPTED_NOTE, SILENT
from s2sim.study.regimes.map import Cell, Contender, RegimeMap
from s2sim.study.regimes.origin import headline, map_notes, map_origin
from s2sim.study.regimes.scenario import resolve_regimes
from s2sim.study.regimes.scripts import Recorder
from s2sim.study.regimes.words import summarise
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
    cells: list[Cell] = []
    try:
        for trace in scenario.traces:
            scripts, drawn = recorder.record(trace, progress), trace.options
            for network, timer in networks:
                contenders = _contend(scripts, timer, scenario.machines.gpu)
                latency_s = network.latency_ps / PS_PER_S
                cells.append(Cell(drawn.density, drawn.overlap, network.rate_Bps, latency_s, contenders))
                progress.advance()
        warn_of_idle_library_options(spec.library, scenario.machines.library, recorder.recorded)
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the cells that are finished.
        if not cells:
            raise
    progress.stop()
    notes = map_notes(spec, scenario, recorder.recorded, recorder.refusals)
    return RegimeMap(
        spec=spec,
        headline=headline(spec, scenario),
        cells=tuple(cells),
        summary=summarise(cells, spec.max_error),
        notes=(*notes, *([] if len(cells) == spec.cells else [INTERRUPTED_NOTE])),
        provenance=map_origin(spec, scenario),
    )


def _contend(scripts: Sequence[Script], timer: Timer, gpu: Gpu) -> tuple[Contender, ...]:
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
