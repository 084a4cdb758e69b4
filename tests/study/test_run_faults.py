"""Faults of a whole run."""

import pytest

from s2sim.errors import OptionError, S2SimWarning, UnknownNameError
from s2sim.experiment.run import run
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.simulation.faults.registry import make_faults

TRACE = "synthetic:density=0.05,rows=300,width=8,dense=100"
TREE = 'kind = "fat-tree"\nhosts_per_leaf = 2\nuplinks_per_leaf = 2\n[fabric.link]\nlatency = "1us"'
EVERYTHING = (
    "slow-link:link=node1.nic0.out,factor=0.7",
    "fail-link:link=leaf0.up1",
    "slow-link:link=node0.*,factor=0.5,at=1us,until=20us",
    "fail-link:link=leaf1.up0,at=2us",
    "slow-rank:rank=3,delay=5us",
    "slow-rank:rank=2,factor=3",
    "jitter:latency=2us",
    "background:load=0.2,size=64KiB",
)


def rows(topology, *faults, workers=4, **options):
    options |= {"reducers": ["dense", "union"], "trace": TRACE, "break_even": False}
    result = run(topology, workers=workers, faults=faults, **options)
    return result.rows, result


def test_a_rank_whose_work_takes_longer(cluster_file):
    # A real library adds work of its own, which takes longer there too.
    (_, healthy), _ = rows(cluster_file(TREE), library="ideal")
    (_, slow), result = rows(cluster_file(TREE), "slow-rank:rank=3,factor=2", library="ideal")
    assert slow.time_s.encode == pytest.approx(2 * healthy.time_s.encode, rel=1e-6)
    assert slow.time_s.total == pytest.approx(healthy.time_s.total + healthy.time_s.encode, rel=1e-6)
    last = "slow-rank:rank=3,factor=2.0: dense: it has no work; union: its work took 2 times as long"
    assert result.notes[-1] == last


def test_a_rank_that_comes_late_is_waited_for(cluster_file):
    (healthy, _), _ = rows(cluster_file(TREE))
    (late, _), _ = rows(cluster_file(TREE), "slow-rank:rank=1,delay=1ms")
    assert late.time_s.total == pytest.approx(healthy.time_s.total + 1e-3, abs=1e-12)


def test_links_at_half_rate_are_a_slower_cluster(cluster_file):
    slow, _ = rows(cluster_file(TREE), "slow-link:link=*,factor=0.5")
    other, _ = rows(cluster_file(TREE, nic='rate = "25GiB/s"'))
    assert [(row.time_s.total, row.lower_bound_s) for row in slow] == [
        (row.time_s.total, row.lower_bound_s) for row in other
    ]


def test_message_by_message_is_the_same_as_alone(cluster_file):
    with pytest.warns(S2SimWarning, match="changes nothing here: all was over before 5s"):
        disturbed, _ = rows(cluster_file(TREE), "slow-link:link=*,factor=0.5,at=5s")
    healthy, _ = rows(cluster_file(TREE))
    assert [row.time_s.total for row in disturbed] == [row.time_s.total for row in healthy]


@pytest.mark.slow
def test_everything_at_once_is_the_same_twice(cluster_file):
    topology = cluster_file(TREE)
    (one, result), (two, _) = (rows(topology, *EVERYTHING, workers=8) for _ in range(2))
    assert one == two
    healthy, _ = rows(topology, workers=8)
    assert all(row.time_s.total > other.time_s.total for row, other in zip(one, healthy, strict=True))
    assert all(row.time_s.total >= row.lower_bound_s for row in one)
    assert len(result.notes) >= len(EVERYTHING)
    assert RunSpec.from_json(result.to_json(), "it") == result.spec
    assert make_faults(result.spec.faults)


@pytest.mark.parametrize(
    ("options", "within"),
    [
        ({"compute": "200s"}, True),
        ({"compute": "1000s"}, False),
        ({"profile": "resnet-18:efficiency=0.01"}, True),
        ({"profile": "resnet-152:efficiency=0.00001"}, False),
    ],
)
def test_the_slowest_rank_of_long_computes_is_simulated_or_refused(cluster_file, options, within):
    options |= {"faults": ("slow-rank:rank=1,factor=1e4", "jitter:latency=1s"), "reducers": ["fp16"], "trace": TRACE}
    if within:
        row = run(cluster_file(TREE), workers=4, break_even=False, **options).rows[1]
        assert (row.iteration_s or row.time_s.total) > 1000
    else:
        with pytest.raises(OptionError, match="a rank would take over 27 days"):
            run(cluster_file(TREE), workers=4, break_even=False, **options)


def test_wrong_faults_are_refused_before_anything_runs():
    with pytest.raises(UnknownNameError, match="did you mean 'jitter'"):
        resolve_run(RunSpec("fat-tree", (8,), faults=("jiter:latency=1us",)))
    with pytest.raises(OptionError, match="must be a tuple"):
        RunSpec("fat-tree", (8,), faults="jitter:latency=1us")


@pytest.mark.slow
@pytest.mark.parametrize("unlike", [{"compute_cv": 0.1}, {"faults": ["slow-rank:rank=3,factor=1.2"]}])
def test_waiting_for_a_straggler_is_no_communication(unlike):
    """What is queued behind a launch that waits for its last rank sends nothing: the slowest rank's is the healthy."""
    job = {"workers": 8, "profile": "gpt2", "reducers": ["powersgd"], "break_even": False, "thorough": False}
    healthy, other = (run("dgx-h100", **job, **each).rows[1].iteration for each in ({}, unlike))
    sent_s = [each.exposed_communication + each.hidden_communication for each in (healthy, other)]
    assert sent_s[1] == pytest.approx(sent_s[0], rel=0.05)
    assert other.waiting_mean > 0.01
