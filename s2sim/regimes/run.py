"""The winner of each cell: recorded once per density and overlap, replayed at every rate and latency."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError
from s2sim.experiment.execute import mean_bytes, ring_traffic
from s2sim.experiment.notes import warn_of_idle_library_options
from s2sim.experiment.progress import INTERRUPTED_NOTE, SILENT, ProgressWatcher
from s2sim.experiment.record import RecordedReducer, record
from s2sim.experiment.scenario.cluster import estimated_ranges, gpu_corners
from s2sim.experiment.scenario.reducers import place_reducers, step_reader
from s2sim.gradients.synthetic import SyntheticTrace
from s2sim.regimes.describe import map_headline, map_notes, map_provenance, summarise_map
from s2sim.regimes.map import Cell, Contender, RegimeMap, RegimeSpec, Wins
from s2sim.regimes.scenario import RegimeScenario, resolve_regimes
from s2sim.simulation.plan import Plan, make_plan
from s2sim.simulation.run import replay
from s2sim.topology.hardware import Gpu
from s2sim.units import PS_PER_S


@dataclass(frozen=True, slots=True)
class RecordedScript:
    """One reducer's recording, and the values that no network changes."""

    recorded: RecordedReducer
    plan: Plan
    bytes_sent: int
    acceptable: bool

    def contend(self, timer: Timer, gpu: Gpu) -> Contender:
        """Return the reducer on one network and GPU."""
        return Contender(
            reducer=self.recorded.option_string,
            total_ps=replay(self.recorded.recording, timer, gpu, self.plan).total_ps,
            error_relative_l2=self.recorded.errors.whole.relative_l2,
            bytes_sent_per_rank=self.bytes_sent,
            acceptable=self.acceptable,
        )


@dataclass(slots=True)
class CellRecorder:
    """Records all reducers of a map, and keeps their refusals."""

    scenario: RegimeScenario
    max_error: float
    recorded: list[RecordedReducer] = field(default_factory=list)
    refusals: dict[str, list[str]] = field(default_factory=dict)

    def record(self, trace: SyntheticTrace, progress: ProgressWatcher) -> list[RecordedScript]:
        """Run every reducer on the gradients; those that refuse are noted and left out."""
        # Networks differ in rates and latencies alone.
        cluster = self.scenario.networks[0].scenario.healthy(trace.world_size)
        gradients = [trace.gradient(0, rank) for rank in range(trace.world_size)]
        others = step_reader(trace, trace.world_size)
        scripts = []
        for asked in place_reducers(cluster, self.scenario.reducers):
            try:
                ((found,), _) = record([asked], gradients, seed=trace.seed, others=others)
            except S2SimError as error:
                if asked.reducer.traits.baseline:
                    raise
                refusal = f"{asked.option_string} refuses some gradients and is left out there: {error}"
                place = f"density {trace.options.density:g}, overlap {trace.options.overlap:g}"
                self.refusals.setdefault(refusal, []).append(place)
            else:
                plan = make_plan(found.recording, self.scenario.machines.library)
                traffic, _ = ring_traffic(plan.lowered, found.recording.workers)
                error_l2 = found.errors.whole.relative_l2
                # The limit is below 1, which no verdict allows; the only layer is compressed, or nothing is.
                acceptable = found.reducer.traits.lossless or (error_l2 is not None and error_l2 <= self.max_error)
                sent = mean_bytes(int(traffic.max()), found.recording)
                scripts.append(RecordedScript(found, plan, sent, acceptable))
                self.recorded.append(found)
            progress.advance()
        return scripts


def run_regimes(spec: RegimeSpec, progress: ProgressWatcher = SILENT) -> RegimeMap:
    """Return the map of winners; after Ctrl-C of the cells that are finished.

    Parameters
    ----------
    spec : RegimeSpec
        Gradients, networks and reducers.
    progress : ProgressWatcher
        Called as the work advances.
    """
    scenario = resolve_regimes(spec)
    networks = [(each, each.scenario.timer(spec.workers)) for each in scenario.networks]
    each = len(scenario.reducers) + len(networks)
    progress.start(len(scenario.traces) * each, "recording and replaying reducers")
    recorder = CellRecorder(scenario, spec.max_error)
    gpu = scenario.machines.gpu
    gpus = (gpu, *gpu_corners(gpu))
    cells: list[Cell] = []
    # By GPU: who wins how many cells.
    won: list[Counter[str]] = [Counter() for _ in gpus]
    try:
        for trace in scenario.traces:
            scripts, drawn = recorder.record(trace, progress), trace.options
            for network, timer in networks:
                latency_s = network.latency_ps / PS_PER_S
                where = drawn.density, drawn.overlap, network.rate_Bps, latency_s
                found = [Cell(*where, tuple(script.contend(timer, each) for script in scripts)) for each in gpus]
                cells.append(found[0])
                for counter, cell in zip(won, found, strict=True):
                    counter[cell.winner] += 1
                progress.advance()
        warn_of_idle_library_options(spec.library, scenario.machines.library, recorder.recorded)
    except KeyboardInterrupt:
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
        cluster=map_headline(spec, scenario),
        cells=tuple(cells),
        wins=wins,
        summary=summarise_map(cells, spec.max_error, wins, estimated_ranges(gpu)),
        notes=(*notes, *([] if len(cells) == spec.cells else [INTERRUPTED_NOTE])),
        provenance=map_provenance(spec, scenario),
    )
