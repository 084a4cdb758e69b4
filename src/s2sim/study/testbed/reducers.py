"""Predicts whole reducers on a testbed: exchanges simulated, codecs as long as one setting measured them.

Codecs are NumPy on the processors that all workers share, and no GPU's: their time cannot be simulated. What one
setting measured of a reducer beside its simulated exchange is scaled by the work that its script notes, and by how many
workers share a processor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.tables import choose_library
from s2sim.gradients.load import load_trace
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.scripts.script import Work
from s2sim.replay.gpu_time import work_ps
from s2sim.replay.plan import make_plan
from s2sim.replay.run import replay
from s2sim.study.testbed.predict import LIBRARY, timer_of
from s2sim.topology.files.hardware import load_gpu
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.libraries.constants import Own
    from s2sim.reducers.scripts.script import Recording
    from s2sim.testbed.measured import Setting, Timed

# Any GPU tells how much more work one script is than another.
_GPU = "a100"


@dataclass(frozen=True, slots=True)
class Codec:
    """Seconds that a setting measured of a reducer outside of collectives, and the work that this was."""

    seconds: float
    work: float


@cache
def recorded(what: str, trace: str, workers: int, seed: int = 0) -> Recording:
    """Return what every rank does in the first step of a reducer."""
    loaded = load_trace(trace, workers=workers, seed=seed)
    gradients = [loaded.gradient(0, rank) for rank in range(workers)]
    return run_reducer(make_reducer(what).fitted(gradients, seed), gradients, seed=seed).recording


def exchange_s(setting: Setting, what: str, trace: str, own: Own) -> float:
    """Return the seconds of a reducer's collectives one after the other, as the library executes them."""
    recording = recorded(what, trace, setting.workers)
    plan = make_plan(recording, choose_library(LIBRARY))
    timer = timer_of(setting, own)
    played = replay(recording, timer, load_gpu(_GPU), replace(plan, profile=timer.profile))
    return played.communication_ps / PS_PER_S


def codec_of(setting: Setting, row: Timed, own: Own) -> Codec:
    """Return what a measured row tells of a reducer's codec, and of all that a rank waits for beside its exchange."""
    beside_s = row.median_s - row.compute_s - exchange_s(setting, row.what, row.trace, own)
    return Codec(max(row.codec_s, beside_s), _work(setting, row))


def codec_s(setting: Setting, row: Timed, told: Codec | None) -> float:
    """Return the predicted seconds of a codec: as told, in proportion to work and to workers that share a processor."""
    if told is None or not told.work:
        return 0.0 if told is None else told.seconds
    return told.seconds * _work(setting, row) / told.work


def _work(setting: Setting, row: Timed) -> float:
    recording = recorded(row.what, row.trace, setting.workers)
    gpu = load_gpu(_GPU)
    busiest = max(
        sum(work_ps(event, gpu, None) for event in script if isinstance(event, Work)) for script in recording.scripts
    )
    return busiest * max(1.0, setting.workers / setting.processors)
