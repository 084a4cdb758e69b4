import pytest

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import check_timing_cost
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

RANKS = 300_000


@pytest.fixture(scope="module")
def cluster():
    return build_cluster(load_shape("single-switch", ()), RANKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "kind", "refused"),
    [
        ("pairwise", "all_to_all", True),
        ("chain:chunks=1", "broadcast", True),
        ("binomial", "broadcast", False),
        ("ring", "all_reduce", False),
        ("halving-doubling", "all_reduce", False),
    ],
)
def test_schedules_of_too_many_unlike_rounds_are_refused(algorithm, kind, refused, cluster):
    schedule = make_algorithm(algorithm, kind).schedule(Demand(kind, (RANKS,) * RANKS, 4), cluster)
    if refused:
        with pytest.raises(
            OptionError, match=r"on 300000 ranks sends some .* messages .*: take fewer workers or another algorithm"
        ):
            check_timing_cost(schedule, len(cluster.fabric))
    else:
        check_timing_cost(schedule, len(cluster.fabric))


@pytest.mark.slow
def test_what_is_fastest_is_looked_for_among_the_others(cluster):
    demand = Demand("broadcast", (1000,) * RANKS, 4)
    assert Timer(cluster).time(demand).schedule.algorithm == "binomial"
