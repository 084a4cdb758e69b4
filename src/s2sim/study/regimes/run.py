"""Which reducer wins where: recorded once for each density and overlap, replayed at every rate and latency."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from s2sim.collectives.libraries.tables import IDEAL, choose_library
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError, S2SimError, S2SimWarning
from s2sim.gradients.load import load_trace
from s2sim.provenance import content_hash, run_record
from s2sim.reducers.registry import make_reducer
from s2sim.replay.plan import make_plan
from s2sim.replay.run import replay
from s2sim.study.compare.library_notes import library_notes, warn_of_idle_library_options
from s2sim.study.compare.reducers_asked import INTERRUPTED_NOTE, earlier_gradients, warn_of_later_options
from s2sim.study.measuring.record import record
from s2sim.study.measuring.wire import ring_traffic
from s2sim.study.progress import Silent
from s2sim.study.regimes.map import Cell, Contender, RegimeMap
from s2sim.study.regimes.spec import DENSE
from s2sim.study.regimes.words import summarise
from s2sim.study.spec import PREFETCH
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape
from s2sim.topology.files.hardware import load_gpu
from s2sim.units import PS_PER_S, format_bytes, format_rate, parse_rate_Bps, parse_time_ps

if TYPE_CHECKING:
    from s2sim.replay.plan import Plan
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.progress import Progress
    from s2sim.study.regimes.spec import RegimeSpec
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.files.hardware import Gpu

_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Network:
    """One rate and latency."""

    rate_Bps: float
    latency_ps: int
    timer: Timer


@dataclass(frozen=True, slots=True)
class _Script:
    """One reducer's recording, and all of it that no network changes."""

    recorded: Recorded
    plan: Plan
    bytes_sent: int
    acceptable: bool


def run_regimes(spec: RegimeSpec, progress: Progress | None = None) -> RegimeMap:
    """Return the map of who wins where.

    Parameters
    ----------
    spec : RegimeSpec
        What to compare.
    progress : Progress, optional
        Told of reducers that were recorded and networks that they were replayed on.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked.
    """
    return _Run(spec, progress or Silent()).map()


class _Run:
    """One map in the making."""

    def __init__(self, spec: RegimeSpec, progress: Progress) -> None:
        self._spec, self._progress = spec, progress
        self._library, self._gpu = choose_library(spec.library), load_gpu(spec.gpu)
        self._networks = [_make_network(spec, *values) for values in product(spec.rates, spec.latencies)]
        self._reducers = {text: make_reducer(text) for text in spec.reducers}
        warn_of_later_options(self._reducers, what="the map")
        self._recorded: list[Recorded] = []
        self._refusals: dict[str, list[str]] = {}

    def map(self) -> RegimeMap:
        """Record, replay, and tell."""
        spec = self._spec
        points = list(product(spec.densities, spec.overlaps))
        self._progress.start(
            len(points) * (len(self._reducers) + len(self._networks)), "recording and replaying reducers"
        )
        cells: list[Cell] = []
        try:
            for density, overlap in points:
                scripts = self._record(density, overlap)
                for network in self._networks:
                    cells.append(self._cell(density, overlap, network, scripts))
                    self._progress.advance()
            warn_of_idle_library_options(spec.library, self._library, self._recorded)
        except KeyboardInterrupt:
            # Whoever does not want to wait any longer still gets the cells that are finished.
            if not cells:
                raise
        self._progress.stop()
        return RegimeMap(
            spec=spec,
            headline=_headline(spec, self._networks[0].timer.cluster),
            cells=tuple(cells),
            summary=summarise(cells, spec.max_error),
            notes=(*self._notes(), *([] if len(cells) == spec.cells else [INTERRUPTED_NOTE])),
            provenance=_provenance(spec, self._networks[0].timer.cluster, self._gpu),
        )

    def _record(self, density: float, overlap: float) -> list[_Script]:
        """Run every reducer on the gradients of one density and overlap; those that refuse are noted and left out."""
        spec = self._spec
        trace = load_trace(spec.trace(density, overlap), workers=spec.workers, seed=spec.seed)
        gradients = [trace.gradient(0, rank) for rank in range(spec.workers)]
        earlier = earlier_gradients(trace, self._reducers, spec.workers)
        scripts = []
        for text, reducer in self._reducers.items():
            try:
                (found,) = record({text: reducer}, gradients, seed=spec.seed, earlier=earlier)
            except S2SimError as error:
                if text == DENSE:
                    raise
                place = f"density {density:g}, overlap {overlap:g}"
                self._refusals.setdefault(f"{text} refuses some gradients and is left out there: {error}", []).append(
                    place
                )
            else:
                scripts.append(self._script(found))
                self._recorded.append(found)
            self._progress.advance()
        return scripts

    def _script(self, found: Recorded) -> _Script:
        plan = make_plan(found.recording, self._library)
        sent = int(ring_traffic(plan.lowered, self._spec.workers)[0].max())
        error = found.errors.whole.relative_l2
        # The limit is below 1, which no verdict allows; the only layer is compressed, or nothing is.
        acceptable = found.reducer.traits.lossless or (error is not None and error <= self._spec.max_error)
        return _Script(found, plan, sent, acceptable)

    def _cell(self, density: float, overlap: float, network: _Network, scripts: list[_Script]) -> Cell:
        contenders = tuple(
            Contender(
                reducer=script.recorded.option_string,
                total_ps=replay(script.recorded.recording, network.timer, self._gpu, script.plan).total_ps,
                error_relative_l2=script.recorded.errors.whole.relative_l2,
                bytes_sent_per_rank=script.bytes_sent,
                acceptable=script.acceptable,
            )
            for script in scripts
        )
        return Cell(density, overlap, network.rate_Bps, network.latency_ps / PS_PER_S, contenders)

    def _notes(self) -> list[str]:
        spec = self._spec
        notes = [
            "the gradients are synthetic, one row-sparse layer: real ones differ in tails and in how rows repeat",
            "communication phase only; margins under 1 % are ties",
        ]
        warm = [text for text, reducer in self._reducers.items() if reducer.traits.warm]
        if warm:
            notes.append(
                f"{', '.join(warm)}: as in every step but the first; what a step carries over is taken from another one"
            )
        if PREFETCH in spec.reducers:
            notes.append(
                f"{PREFETCH} presumes that the batch tells the rows before forward, as for embeddings, and that "
                "forward and backward are long enough to hide the exchange of supports"
            )
        elif any(text.partition(":")[0] == "union" for text in spec.reducers):
            notes.append("union learns the rows after backward; --prefetch adds a union that knows them from the batch")
        shape = self._networks[0].timer.cluster.shape
        last = {item.option_string: item for item in self._recorded}
        notes += library_notes(self._library, shape, list(last.values()))
        notes += [f"{text} ({'; '.join(places)})" for text, places in self._refusals.items()]
        return notes


def _make_network(spec: RegimeSpec, rate: str, latency: str) -> _Network:
    """Return the cluster with one rate and latency; refuse one on which they would change nothing."""
    rate_Bps, latency_ps = parse_rate_Bps(rate), parse_time_ps(latency)
    shape = load_shape(spec.topology, spec.network(rate, latency))
    if any((node.nic.rate_Bps, node.nic.latency_ps) != (rate_Bps, latency_ps) for node in shape.nodes):
        raise OptionError(
            f"{shape.name} gives some of its [[nodes]] a nic.rate or nic.latency of their own, which --rate and "
            "--latency cannot vary: leave these out of the file"
        )
    cluster = build_cluster(shape, spec.workers, seed=spec.seed)
    if int(cluster.node_of_rank.max()) == 0:
        raise OptionError(
            f"all {spec.workers} workers are in one node of {shape.name}, where --rate and --latency change nothing: "
            "take more workers or --set node.gpus=1"
        )
    if shape.host_cable and shape.link.rate_Bps < rate_Bps:
        text = f"--rate {rate} is cut to {format_rate(shape.link.rate_Bps)} by fabric.link.rate of {shape.name}"
        warnings.warn(text, S2SimWarning, stacklevel=5)
    return _Network(rate_Bps, latency_ps, Timer(cluster))


def _headline(spec: RegimeSpec, cluster: Cluster) -> str:
    nodes = int(cluster.node_of_rank.max()) + 1
    size = format_bytes(spec.rows * spec.width * _FLOAT32_BYTES)
    values = "gaussian values" if spec.tail == "gaussian" else f"values with a power-law tail of exponent {spec.tail}"
    over = "" if spec.library == IDEAL.option_string else f", {spec.library}"
    return (
        f"{cluster.shape.name}: {spec.workers} workers in {nodes} nodes{over}; gradient of {spec.rows} x {spec.width} "
        f"float32 ({size}), {values}"
    )


def _provenance(spec: RegimeSpec, cluster: Cluster, gpu: Gpu) -> dict[str, Any]:
    varied = {name.partition("=")[0] for name in spec.network("", "")[len(spec.overrides) :]}
    inputs: dict[str, Any] = {}
    for kind, name, quantities in (
        ("topology", cluster.shape.name, cluster.shape.quantities),
        ("gpu", gpu.name, gpu.quantities),
    ):
        fields = {
            item.field: {"value": item.value, "kind": item.kind, "source": item.source}
            for item in quantities
            if item.field not in varied
        }
        inputs[kind] = {"name": name, "sha256": content_hash(fields), "fields": fields}
    return run_record(
        spec=spec.to_json(),
        inputs={**inputs, "gradients": {"kind": "synthetic"}, "seed": spec.seed},
        measured=["bytes", "error"],
        assumed=[
            "gradients: drawn at random with the densities, overlaps and tail asked for",
            "time: simulated on the topology above at each rate and latency",
            "encode and decode: bytes over memory bandwidth and launches",
        ],
    )
