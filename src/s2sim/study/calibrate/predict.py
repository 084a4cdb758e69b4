"""Predicts runs on one machine, told by the constants that predictions are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.software import Software
from s2sim.collectives.libraries.tables import choose_library
from s2sim.collectives.libraries.version import version_of
from s2sim.errors import OptionError
from s2sim.study.collective.sizes import make_demand
from s2sim.study.fidelity.contender import contender_of
from s2sim.study.scenario.cluster import resolve_cluster
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Collection

    from s2sim.collectives.libraries.constants import Own
    from s2sim.collectives.timing.timer import Timer
    from s2sim.study.calibrate.runs import Run
    from s2sim.study.calibrate.spec import CalibrateSpec
    from s2sim.study.fidelity.told import Contender
    from s2sim.study.scenario.cluster import Scenario
    from s2sim.topology.cluster import Cluster

# A schedule that takes so many times as long as the fastest is not the fastest with constants of one's own either.
_MAY_WIN = 3.0
# Where no log tells: GPU clusters run NCCL.
_USUAL = "nccl"


def predictor_of(spec: CalibrateSpec, libraries: Collection[str] = ()) -> MachinePredictor:
    """Return what predicts the machine of a spec, with the version that texts of its library name.

    `S2SimError` where the library has no constants that are fitted.
    """
    text = spec.library or _library_of(libraries)
    library = choose_library(text)
    if not isinstance(library.measured, Software):
        raise OptionError(f"--library {text} has no constants that are fitted: nccl and rccl have")
    if library.calibration is not None:
        raise OptionError(f"--library {text} is fitted already: give {library.name}")
    return MachinePredictor(resolve_cluster(spec), replace(library.measured, version=version_of(libraries)))


def _library_of(libraries: Collection[str]) -> str:
    """Return the library that texts such as ``RCCL 2.18.6`` name; NCCL where they name none, or several."""
    found = {text.split()[0].lower() for text in libraries}
    return found.pop() if len(found) == 1 else _USUAL


class MachinePredictor:
    """Predicts what runs on a machine, with constants of one's own in place of a library's.

    Parameters
    ----------
    scenario : Scenario
        The machine.
    profile : Software
        The library, with the shipped constants.
    """

    def __init__(self, scenario: Scenario, profile: Software) -> None:
        self._scenario, self._profile = scenario, profile
        self._timers: dict[int, Timer] = {}

    @property
    def library(self) -> str:
        """Whose constants hold."""
        return self._profile.library

    @property
    def topology(self) -> str:
        """Name of the machine."""
        return self._scenario.shape.name

    def cluster(self, workers: int) -> Cluster:
        """Return the machine with so many ranks."""
        return self._scenario.cluster(workers)

    def nodes(self, workers: int) -> int:
        """Return how many nodes so many ranks are on."""
        return len(np.unique(self.cluster(workers).node_of_rank[:workers]))

    def time_s(self, run: Run, size_bytes: int, own: Own) -> float:
        """Return the predicted time in seconds of a size as nccl-tests counts it."""
        demand = make_demand(run.kind, size_bytes, run.workers)
        return self._timer(run, own).time(demand).duration_ps / PS_PER_S

    def contenders(self, run: Run, size_bytes: int, own: Own) -> dict[str, Contender]:
        """Return what may be the fastest with somewhat other constants, by text, told by these; the first is it now."""
        timer, demand = self._timer(run, own), make_demand(run.kind, size_bytes, run.workers)
        return {timed.schedule.text: contender_of(timed, timer.cluster) for timed in timer.contenders(demand, _MAY_WIN)}

    def _timer(self, run: Run, own: Own) -> Timer:
        if run.workers not in self._timers:
            self._timers[run.workers] = self._scenario.timer(run.workers)
        profile = replace(self._profile, one_process=run.one_process or self._profile.one_process, own=own)
        return self._timers[run.workers].with_profile(profile)
