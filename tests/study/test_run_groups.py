"""Comparisons of reducers where replicas stand beside tensor- and pipeline-parallel ranks."""

import pytest

import s2sim
from s2sim.errors import OptionError, S2SimWarning

SMALL = {"reducers": ("dense", "fp16"), "trace": "synthetic:density=0.05,rows=300,width=8,dense=2000"}
ITERATIONS = {**SMALL, "profile": "gpt2", "batch": 4, "break_even": False, "thorough": False}


def row(result, name="dense", workers=None):
    return next(each for each in result.rows if each.option_string == name and workers in (None, each.workers))


def compared(**options):
    return s2sim.run("dgx-h100", **options)


def test_a_run_without_groups_is_a_run_of_one_group():
    with pytest.warns(S2SimWarning, match="one group has all ranks"):
        found = s2sim.run("dgx-h100", workers=8, groups="tp=1", **SMALL)
    plain = s2sim.run("dgx-h100", workers=8, **SMALL)
    assert [each.to_json() for each in found.rows] == [each.to_json() for each in plain.rows]


def test_groups_share_what_one_has_alone():
    """Eight groups of eight ranks on one interface a node send eight times what one group sends that is alone there."""
    slow, options = ("nic.count=1", "nic.rate=1Gbps"), {"break_even": False, **SMALL}
    one = s2sim.run("dgx-h100", workers=8, overrides=("node.gpus=1", *slow), **options)
    found = s2sim.run("dgx-h100", workers=64, overrides=slow, groups="tp=8", **options)
    for reducer in ("dense", "fp16"):
        alone, beside = row(one, reducer), row(found, reducer)
        assert beside.workers == 64
        assert beside.bytes_sent_per_rank == alone.bytes_sent_per_rank
        assert beside.lower_bound_s == pytest.approx(8 * alone.lower_bound_s, rel=1e-3)
        assert beside.lower_bound_s < beside.time_s.communication
        assert 3 * alone.time_s.communication < beside.time_s.communication < 8.5 * alone.time_s.communication
    assert any("all 8 data-parallel groups exchange at once" in each for each in found.caveats)


@pytest.mark.slow
def test_iterations_of_a_rank_of_the_first_stage():
    found = compared(workers=64, groups="tp=4,pp=2,dp=rest", accumulate=4, **ITERATIONS)
    dense = row(found).iteration
    plain = row(compared(workers=8, accumulate=4, **ITERATIONS)).iteration
    # An eighth of the compute, and what the four ranks of a layer exchange.
    assert plain.forward / 8 < dense.forward < plain.forward / 3
    assert dense.waiting > 0
    # Replicas compute mini-batches: eight of them in 64 workers.
    assert dense.samples_per_s == pytest.approx(8 * 4 * 4 / dense.total_s)
    assert any("one rank of 4 that share the first of 2 stages" in each for each in found.caveats)
    assert any("waits" in each for each in found.caveats)


@pytest.mark.slow
def test_rates_are_those_of_all_that_ranks_send():
    """Tensor-parallel ranks over nodes: a run at another rate finds the same rate at which fp16 ceases to pay."""
    asked = {**ITERATIONS, "workers": 32, "groups": "tp=8,dp=rest", "accumulate": 4, "break_even": True}
    found = [s2sim.run("leaf-spine", overrides=(f"nic.rate={rate}Gbps",), **asked) for rate in (25, 90)]
    rates = [[each.at_Bps for each in result.verdict.break_even] for result in found]
    assert rates[0] == pytest.approx(rates[1], rel=0.01)
    assert len(rates[0]) == 1
    assert rates[0][0] > 90e9 / 8


@pytest.mark.slow
def test_more_mini_batches_wait_for_a_smaller_share():
    shares = []
    for accumulate in (1, 4, 16):
        dense = row(compared(workers=16, groups="pp=4", accumulate=accumulate, **ITERATIONS)).iteration
        shares.append(dense.waiting / (dense.forward + dense.backward))
    assert shares[0] == pytest.approx(4 * shares[1], rel=0.5)
    assert shares[0] > shares[1] > shares[2] > 0


def test_several_numbers_of_workers_differ_in_replicas():
    found = s2sim.run("dgx-h100", workers=(16, 32), groups="tp=8,dp=rest", break_even=False, **SMALL)
    assert [each.workers for each in found.rows if each.option_string == "dense"] == [16, 32]
    assert found.verdict.workers == 32


@pytest.mark.slow
def test_groups_decide_the_hash():
    hashes = {
        s2sim.run("dgx-h100", workers=32, groups=groups, **SMALL).provenance["spec_sha256"]
        for groups in ("tp=8", "tp=8,dp=4", "tp=4", None)
    }
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"groups": "tp=3"}, "16 workers do not divide by tp=3"),
        ({"groups": "tp=2,pp=2,dp=2"}, "are 8 ranks and not 16"),
        ({"groups": "tp=8", "faults": ("slow-rank:rank=0,factor=2",)}, "leave either out"),
        ({"groups": "tp=8", "steps": 2}, "leave it or --groups out"),
        ({"groups": "tp=2,pp=rest,dp=2", "workers": (8, 16)}, "write dp=rest"),
        ({"groups": "tp=2", "profile": "resnet-50"}, "take tp=1"),
        ({"groups": "pp=16", "profile": "lstm"}, "fewer than stages"),
    ],
)
def test_groups_that_cannot_be(options, part):
    with pytest.raises(OptionError) as error:
        s2sim.run("dgx-h100", **{"workers": 16, **SMALL, **options})
    assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_other_mini_batches_are_shared_out_too():
    """A reducer gains with the mini-batch that ran as with the same one among those that are tried."""
    asked = {**SMALL, "workers": 64, "profile": "gpt2", "groups": "tp=4,pp=2,dp=rest", "accumulate": 8, "batch": 4}
    found = s2sim.run("dgx-h100", overrides=("nic.rate=25Gbps",), thorough=False, **asked)
    gain = row(found).iteration_s / row(found, "fp16").iteration_s
    assert gain > 1.01
    pays = next(each for each in found.verdict.pays_over if each.field == "batch")
    assert any(first <= 4 <= last for first, last in pays.spans)
