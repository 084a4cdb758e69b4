"""NVLink domains of several nodes: to collectives each is one node of all its GPUs and interfaces."""

import pytest

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.pipeline import channel_count
from s2sim.collectives.timing.bounds import lower_bound
from s2sim.collectives.timing.timer import Timer
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape


def rack(tmp_path, workers, *, gpus, domain_nodes):
    path = tmp_path / f"rack{gpus}.toml"
    domain = f"domain_nodes = {domain_nodes}\n" if domain_nodes > 1 else ""
    path.write_text(
        f"[node]\ngpus = {gpus}\n[nvlink]\nrate = '400GB/s'\nlatency = '250ns'\n{domain}[nic]\ncount = {gpus}\n"
        "rate = '50GB/s'\nlatency = '300ns'\n[fabric]\nkind = 'single-switch'\n"
    )
    return build_cluster(load_shape(path), workers)


@pytest.mark.parametrize(
    ("algorithm", "kind", "workers"),
    [
        *(("ring", "all_reduce", workers) for workers in (4, 12, 20, 24, 36)),
        *(("ring", "all_gather", workers) for workers in (4, 20, 24)),
        *(("double-binary-tree:chunks=4", "all_reduce", workers) for workers in (4, 12, 20, 36)),
        *(("nvls-tree", "all_reduce", workers) for workers in (20, 24, 36)),
        *(("in-network", "all_reduce", workers) for workers in (4, 12, 20, 36)),
        *(("spread", "all_to_all", workers) for workers in (12, 20, 36)),
        *(("hierarchical:mode=leader", "all_reduce", workers) for workers in (12, 20, 36)),
    ],
)
def test_a_domain_is_like_one_node_of_all_its_gpus(tmp_path, workers, algorithm, kind):
    demand = Demand(kind, (1_200,) * workers, 4)
    several, one = (
        Timer(rack(tmp_path, workers, gpus=gpus, domain_nodes=12 // gpus), algorithm).time(demand) for gpus in (4, 12)
    )
    assert several.schedule.algorithm == one.schedule.algorithm
    assert several.duration_ps == one.duration_ps
    check_schedule(several.schedule)


@pytest.mark.parametrize("workers", [8, 24, 30])
def test_no_time_is_under_the_bound_of_domains(tmp_path, workers):
    cluster = rack(tmp_path, workers, gpus=4, domain_nodes=3)
    demand = Demand("all_reduce", (1 << 24,) * workers, 4)
    for algorithm in ("ring", "double-binary-tree", "in-network"):
        timed = Timer(cluster, algorithm).time(demand)
        bound = lower_bound([demand], cluster.cuts(), assisted=timed.schedule.assisted)
        assert timed.duration_ps / 1e12 >= bound.seconds > 0


def test_a_rack_has_no_more_channels_than_rings_that_run(tmp_path):
    cluster = rack(tmp_path, 144, gpus=4, domain_nodes=18)
    assert channel_count(cluster, None) == 32
    make_algorithm("ring", "all_reduce").schedule(Demand("all_reduce", (144,) * 144, 4), cluster)
