"""Parameter servers: rounds, times, and where servers stand."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.levels import ParameterServer
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError, OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

PS = 1e12
RATE_BPS = 50 * 2**30


def cluster_for(algorithm, ranks, gpus, placement="linear"):
    shape = load_shape("fat-tree", [f"node.gpus={gpus}"])
    return build_cluster(shape, ranks + algorithm.helpers(ranks, gpus), placement=placement)


@pytest.mark.parametrize("on", ["ranks", "nodes"])
@pytest.mark.parametrize("servers", [1, 3])
def test_every_number_of_ranks(on, servers):
    algorithm = ParameterServer(servers, on)
    for ranks in range(1, 34):
        demand = Demand("all_reduce", (37,) * ranks, 4)
        cluster = cluster_for(algorithm, ranks, 4)
        if on == "ranks" and ranks < servers:
            with pytest.raises(OptionError, match=f"servers=3 on ranks need as many ranks, found {ranks}"):
                algorithm.schedule(demand, cluster)
            continue
        schedule = algorithm.schedule(demand, cluster)
        check_schedule(schedule)
        assert schedule.rounds == (2 if ranks > 1 else 0)
        assert schedule.assisted == (on == "nodes" and ranks > 1)


@pytest.mark.parametrize(("ranks", "gpus", "places"), [(8, 4, [8, 12]), (6, 4, [8, 12]), (3, 1, [3, 4])])
def test_servers_have_nodes_of_their_own(ranks, gpus, places):
    algorithm = ParameterServer(2, "nodes")
    cluster = cluster_for(algorithm, ranks, gpus)
    schedule = algorithm.schedule(Demand("all_reduce", (100,) * ranks, 4), cluster)
    assert np.flatnonzero(schedule.traffic()[0])[ranks:].tolist() == places
    node = cluster.node_of_rank
    assert len(set(node[places])) == 2
    assert not set(node[places]) & set(node[:ranks])


@pytest.mark.parametrize(("ranks", "servers"), [(2, 1), (2, 2), (8, 1), (8, 4), (8, 8)])
def test_times_on_a_switch(ranks, servers, make_cluster, switch_fabric):
    """The busiest port carries D/s from or to each worker but its own, or all of a worker's shards."""
    cluster = make_cluster(ranks, switch_fabric)
    demand = Demand("all_reduce", (1_000_000,) * ranks, 4)
    timed = Timer(cluster, f"parameter-server:servers={servers}").time(demand)
    shards = max(ranks - 1, servers if servers < ranks else servers - 1)
    expected = 2 * (1e-6 + shards * 4e6 / servers / RATE_BPS)
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)
    if ranks == 2:
        assert closed_form_s(timed.schedule, cluster) == pytest.approx(expected, rel=1e-12)
    else:
        with pytest.raises(ContendedError, match="share link directions"):
            closed_form_s(timed.schedule, cluster)


def test_incast_at_a_server_of_its_own(make_cluster, switch_fabric):
    """2(L + P·D/B): all workers through one port."""
    cluster = make_cluster(9, switch_fabric)
    demand = Demand("all_reduce", (1_000_000,) * 8, 4)
    duration_ps = Timer(cluster, "parameter-server:on=nodes").time(demand).duration_ps
    assert duration_ps / PS == pytest.approx(2 * (1e-6 + 8 * 4e6 / RATE_BPS), rel=1e-6)


def test_refusals(make_cluster, switch_fabric):
    with pytest.raises(OptionError, match="servers=0 must be at least 1"):
        ParameterServer(0)
    with pytest.raises(OptionError, match="on=racks is not one of ranks, nodes"):
        ParameterServer(on="racks")
    algorithm, demand = ParameterServer(2, "nodes"), Demand("all_reduce", (8,) * 6, 4)
    with pytest.raises(OptionError, match="found 1 with 7 workers: build the cluster with 8 and linear placement"):
        algorithm.schedule(demand, make_cluster(7, switch_fabric))
    with pytest.raises(OptionError, match="found 0 with 13 workers: build the cluster with 13 and linear placement"):
        algorithm.schedule(demand, cluster_for(algorithm, 6, 4, placement="round-robin"))
