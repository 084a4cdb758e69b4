"""Ranks that begin at unlike instants, their messages as fast as with all in step."""

import numpy as np
import pytest

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.critical_path import critical_path
from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.lowering import choose_library
from s2sim.simulation.skewed_communicator import lockstep_path
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

RANKS = 16
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")


@pytest.mark.parametrize("topology", ["tcp-10g", "dgx-a100", "torus"])
@pytest.mark.parametrize("library", ["nccl", pytest.param("mpi", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_ends_lie_between_those_of_the_first_and_of_the_last_rank(topology, library, kind):
    shape = load_shape(topology)
    timer = Timer(build_cluster(shape, RANKS)).with_profile(choose_library(library).on(shape).profile)
    rng = np.random.default_rng(7)
    for elements in (RANKS, 10**4 * RANKS):
        timed = timer.time(Demand(kind, (elements,) * RANKS, 4))
        passage = lockstep_path(timed, RANKS)
        assert passage is not None
        launch_ps, alone_ps = timed.schedule.launch_ps, timed.duration_ps
        assert passage.ends_ps(np.full(RANKS, launch_ps)).max() == alone_ps
        for spread in (0.01, 0.3, 3.0):
            posted_ps = rng.exponential(spread * alone_ps, RANKS).astype(np.int64)
            ends_ps = passage.ends_ps(posted_ps + launch_ps)
            assert (ends_ps >= posted_ps + launch_ps).all()
            assert posted_ps.min() + alone_ps <= ends_ps.max() <= posted_ps.max() + alone_ps
            exact = critical_path(timed.schedule, timer.cluster, timed.times.routes)
            if exact is not None:
                exact_ps = exact.ends_ps(posted_ps + launch_ps)
                assert (ends_ps >= exact_ps).all()
                if timed.schedule.text.startswith("ring"):
                    np.testing.assert_array_equal(ends_ps, exact_ps)
