"""Constants of Gloo fitted to the collectives of one testbed setting, and predictions of reducers with them.

Exchanges are simulated. Codecs run in NumPy on processors that all workers share: their measured time is scaled by the
work in the reducer's script and by the workers per processor.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import isinf
from pathlib import Path
from typing import Any, cast, get_args

from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError, check_known
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.gradients.synthetic import load_trace
from s2sim.libraries.constants import ConstantOverrides
from s2sim.libraries.gloo import HostLibraryProfile
from s2sim.libraries.library import FittedRange
from s2sim.libraries.lowering import choose_library
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Recording, Work
from s2sim.simulation.plan import make_plan, work_ps
from s2sim.simulation.run import replay
from s2sim.testbed.layout import SEGMENT_BYTES, choose_shaping
from s2sim.testbed.measured import MeasuredSetting, MeasuredTiming
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import load_gpu
from s2sim.topology.quantity import Quantity
from s2sim.topology.read_file import parse_shape
from s2sim.topology.shape import ClusterShape
from s2sim.uncertainty.machine_fit import HOST_FIT_STEPS, HostFit, fit_host_constants, profile_text
from s2sim.units import PS_PER_S

# Rate of links without shaping: more than any processor reaches.
_UNSHAPED_BPS = 1e12
LIBRARY = "gloo"
# Any GPU serves to compare the work of scripts.
_GPU = "a100"


def setting_shape(setting: MeasuredSetting) -> ClusterShape:
    """Return the cluster of a setting, on one machine's processors: a node a worker, a leaf for each testbed node."""
    source = f"testbed {setting.name}"
    given = {field: Quantity(field, value, "user", source) for field, value in _fields(setting).items()}
    return parse_shape(given, Path(f"{setting.name}.toml"))


def setting_toml(setting: MeasuredSetting) -> str:
    """Return the same cluster as a topology file."""
    tables: dict[str, list[str]] = {"": []}
    for field, value in _fields(setting).items():
        table, _, key = field.rpartition(".")
        head = [f"[{table}]"]
        if table.startswith("link."):
            # One table each, whose name is the links'.
            head = ["[[links]]", f'name = "{table.removeprefix("link.")}"']
        tables.setdefault(table, head).append(f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}")
    return "\n\n".join([*map("\n".join, tables.values()), ""])


def _fields(setting: MeasuredSetting) -> dict[str, str | int]:
    slowest_Bps = min(setting.rate_Bps, setting.uplink_Bps)
    joined = setting.nodes < setting.workers
    fields: dict[str, str | int] = {
        "name": f"testbed-{setting.name}",
        "description": f"{setting.workers} network namespaces of one machine, {setting.machine}",
        "library": "gloo",
        "node.gpus": 1,
        "nic.rate": _rate(setting.rate_Bps),
        "nic.transport": "tcp",
        "fabric.kind": "leaf-spine" if joined else "single-switch",
        "machine.processors": setting.processors,
        "machine.packet": f"{choose_shaping(setting.workers, slowest_Bps).segments * SEGMENT_BYTES}B",
    }
    if joined:
        uplink = _rate(setting.uplink_Bps)
        fields |= {"fabric.hosts_per_leaf": setting.workers // setting.nodes, "fabric.uplinks_per_leaf": 1}
        fields |= {"link.leaf*.up*.rate": uplink, "link.leaf*.down*.rate": uplink}
    return fields


def _rate(rate_Bps: float) -> str:
    return f"{(_UNSHAPED_BPS if isinf(rate_Bps) else rate_Bps):.0f}B/s"


@cache
def _timer(setting: MeasuredSetting) -> Timer:
    return Timer(build_cluster(setting_shape(setting), setting.workers), profile=HostLibraryProfile(LIBRARY))


def setting_timer(setting: MeasuredSetting, own: ConstantOverrides) -> Timer:
    """Return the timer of a setting's collectives, with constant overrides."""
    return _timer(setting).with_profile(HostLibraryProfile(LIBRARY, own))


def collective_s(setting: MeasuredSetting, what: str, payload_bytes: int, own: ConstantOverrides = ()) -> float:
    """Return the predicted seconds of a collective; ``payload_bytes`` are counted as in nccl-tests."""
    check_known(what, get_args(Kind), f"{what!r} was measured, which is no collective", S2SimError)
    demand = make_demand(cast("Kind", what), payload_bytes, setting.workers)
    return setting_timer(setting, own).time(demand).duration_ps / PS_PER_S


@dataclass(frozen=True, slots=True)
class SettingFit(HostFit):
    """Constants fitted to ``rows``, the collectives of one setting."""

    setting: MeasuredSetting
    rows: tuple[MeasuredTiming, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the constants and how far off predictions were and are."""
        return {
            "setting": self.setting.name,
            "constants": [asdict(constant) for constant in self.constants],
            "points": len(self.rows),
            "median_error_before": self.before,
            "median_error_after": self.after,
        }


def fit_setting(
    setting: MeasuredSetting, rows: Sequence[MeasuredTiming], progress: ProgressWatcher = SILENT
) -> SettingFit:
    """Return the best constants, see `fit_host_constants`; `S2SimError` without points."""
    if not (own_rows := tuple(row for row in rows if row.setting == setting.name)):
        raise S2SimError(f"no collective was measured of {setting.name}: name another setting, or measure it")

    def predicted_s(own: ConstantOverrides) -> list[float]:
        return [collective_s(setting, row.what, row.payload_bytes, own) for row in own_rows]

    progress.start(HOST_FIT_STEPS, f"fitting to {setting.name}")
    fit = fit_host_constants(LIBRARY, predicted_s, [row.median_s for row in own_rows], progress.advance)
    progress.stop()
    return SettingFit(fit.constants, fit.own, fit.before, fit.after, setting, own_rows)


def profile_toml(fit: SettingFit) -> str:
    """Return the text of a TOML file that `s2sim.libraries.library.read_calibration` reads."""
    setting, sizes = fit.setting, [row.payload_bytes for row in fit.rows]
    fitted = FittedRange(
        topology=f"testbed-{setting.name}",
        collectives=tuple(dict.fromkeys(row.what for row in fit.rows)),
        workers=(setting.workers,),
        nodes=(setting.workers,),
        smallest_bytes=min(sizes),
        largest_bytes=max(sizes),
        points=len(sizes),
        median_error_before=fit.before,
        median_error_after=fit.after,
        versions=(),
        logs=(f"testbed {setting.name}, {setting.date}: {setting.command}",),
    )
    written = [(constant, value) for constant, (_, value) in zip(fit.constants, fit.own, strict=True)]
    origin = f"fitted to {len(sizes)} times of {setting.name} on {setting.machine}, PyTorch {setting.torch}"
    return profile_text(LIBRARY, written, fitted, origin)


@dataclass(frozen=True, slots=True)
class CodecTime:
    """Seconds that a setting measured of a reducer outside of collectives, and the work that this was."""

    seconds: float
    work: float


@cache
def record_reducer(what: str, trace: str, workers: int) -> Recording:
    """Return the recording of a reducer's first step."""
    loaded = load_trace(trace, workers=workers, seed=0)
    gradients = [loaded.gradient(0, rank) for rank in range(workers)]
    return run_reducer(make_reducer(what).fitted(gradients, 0), gradients, seed=0).recording


def exchange_s(setting: MeasuredSetting, what: str, trace: str, own: ConstantOverrides) -> float:
    """Return the seconds of a reducer's collectives one after the other, as the library executes them."""
    recording = record_reducer(what, trace, setting.workers)
    plan = make_plan(recording, choose_library(LIBRARY))
    timer = setting_timer(setting, own)
    return replay(recording, timer, load_gpu(_GPU), replace(plan, profile=timer.profile)).communication_ps / PS_PER_S


def measured_codec_time(setting: MeasuredSetting, row: MeasuredTiming, own: ConstantOverrides) -> CodecTime:
    """Return the measured time of a reducer's codec and of other waiting outside of its exchange."""
    outside_s = row.median_s - row.compute_s - exchange_s(setting, row.what, row.trace, own)
    return CodecTime(max(row.codec_s, outside_s), _work(setting, row))


def predict_codec_s(setting: MeasuredSetting, row: MeasuredTiming, codec: CodecTime | None) -> float:
    """Return the predicted seconds of a codec, in proportion to work and to workers per processor."""
    if codec is None or not codec.work:
        return 0.0 if codec is None else codec.seconds
    return codec.seconds * _work(setting, row) / codec.work


def _work(setting: MeasuredSetting, row: MeasuredTiming) -> float:
    recording = record_reducer(row.what, row.trace, setting.workers)
    gpu = load_gpu(_GPU)
    works = ([event for event in script if isinstance(event, Work)] for script in recording.scripts)
    busiest = max(sum(work_ps(work, gpu, None) for work in of_rank) for of_rank in works)
    return busiest * max(1.0, setting.workers / setting.processors)
