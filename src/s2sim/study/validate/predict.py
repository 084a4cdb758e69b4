"""Predicts the points of a curve: its machine as a cluster, its collective as a demand, by the fluid network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.study.fidelity.contender import contender_of
from s2sim.study.fidelity.run_class import run_class
from s2sim.study.validate.asked import algorithm_of, demand_of, kind_of, messages_in_a_row
from s2sim.study.validate.library import library_of
from s2sim.study.validate.machine import MachineClusters
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.libraries.profile import Profile
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.study.fidelity.run_class import RunClass
    from s2sim.study.fidelity.told import Contender
    from s2sim.study.validate.curve import Machine
    from s2sim.topology.files.links import LinkCatalogue

# A schedule that takes so many times as long as the fastest is not the fastest with other constants either.
_MAY_WIN = 1.3


class Predictor:
    """Predicts curves one after the other; machines that are alike are laid out once.

    Collectives run as ``profile`` says; None takes that of the library that the machine has, as its row
    says it was started.
    """

    def __init__(self, catalogue: LinkCatalogue, profile: Profile | None = None) -> None:
        self._catalogue, self._profile = catalogue, profile
        self._clusters = MachineClusters(catalogue)

    def times_s(self, machine: Machine, sizes_bytes: Sequence[int]) -> list[float]:
        """Return the predicted time of each size in seconds; `S2SimError` says why there is none."""
        in_a_row = messages_in_a_row(machine)
        timer, demands = self._asked(machine, sizes_bytes)
        return [timer.time(demand).duration_ps / in_a_row / PS_PER_S for demand in demands]

    def contenders(self, machine: Machine, sizes_bytes: Sequence[int]) -> list[tuple[Contender, ...]]:
        """Return for each size what may be fastest with other constants, told by these; the first is fastest now."""
        in_a_row = messages_in_a_row(machine)
        timer, demands = self._asked(machine, sizes_bytes)
        found = [timer.contenders(demand, _MAY_WIN) for demand in demands]
        library = getattr(timer.profile, "library", "")
        return [tuple(contender_of(timed, timer.cluster, library, in_a_row) for timed in each) for each in found]

    def run_class(self, machine: Machine) -> RunClass | None:
        """Return what a machine's collective has in common with others."""
        profile = self._profile or library_of(machine, self._catalogue)
        return run_class(self._clusters.of(machine)[0], profile, kind_of(machine))

    def _asked(self, machine: Machine, sizes_bytes: Sequence[int]) -> tuple[Timer, list[Demand]]:
        """Return what times a machine's collective, and what each size demands as its benchmark counts both."""
        kind = kind_of(machine)
        algorithm = algorithm_of(machine, kind)
        cluster, ways = self._clusters.of(machine)
        if algorithm != AUTO:
            make_algorithm(algorithm, kind)
        timer = Timer(cluster, algorithm, ways, self._profile or library_of(machine, self._catalogue))
        return timer, [demand_of(machine, kind, size) for size in sizes_bytes]
