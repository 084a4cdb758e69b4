"""Published systems that are others by another name."""

import pytest

import s2sim
from s2sim.errors import OptionError, UnknownNameError
from s2sim.experiment.rate_curve import rate_curves
from s2sim.experiment.spec import RunSpec
from s2sim.options import split_option_string
from s2sim.reducers.registry import PRESETS, REDUCERS, make_reducer, option_string, reducer_names
from s2sim.regimes.map import RegimeSpec
from s2sim.regimes.run import resolve_regimes

SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"


def test_each_is_what_it_says_and_nothing_else_is_called_so():
    assert not set(PRESETS) & set(REDUCERS.names())
    assert reducer_names() == [*REDUCERS.names(), *PRESETS]
    for name, preset in PRESETS.items():
        assert make_reducer(name) == make_reducer(preset.option_string)
        # What it sets is not what would be so without it.
        assert option_string(make_reducer(name)).count("=") == len(split_option_string(preset.option_string)[1])
        assert preset.summary
        assert preset.source


def test_options_win_over_those_of_a_preset():
    assert make_reducer("mem-sgd:density=0.1") == make_reducer("topk:density=0.1,ef=true")
    assert make_reducer("mem-sgd:ef=false") == make_reducer("topk")
    with pytest.raises(OptionError, match="mem-sgd has no option 'rows'"):
        make_reducer("mem-sgd:rows=3")
    with pytest.raises(UnknownNameError, match="did you mean 'mem-sgd'"):
        make_reducer("memsgd")


def test_it_has_a_row_beside_what_it_stands_for():
    result = s2sim.run("ring", workers=2, trace=SMALL, reducers=["topk:ef=true", "mem-sgd"])
    rows = {row.option_string: row for row in result.rows}
    assert set(rows) == {"dense", "topk:ef=true", "mem-sgd"}
    assert rows["mem-sgd"].bytes_sent_per_rank == rows["topk:ef=true"].bytes_sent_per_rank
    with pytest.raises(OptionError, match="asked for twice"):
        s2sim.run("ring", workers=2, trace=SMALL, reducers=["mem-sgd", "mem-sgd:ef=true"])


@pytest.mark.slow
def test_a_system_that_is_an_algorithm_runs_by_it():
    """What it sends and how long it takes is what dense does where all run by that algorithm."""
    for name, algorithm in (("firecaffe", "binary-tree"), ("parameter-server", "parameter-server")):
        rows = {row.option_string: row for row in run([name]).rows}
        (same,) = run(["dense"], collective=algorithm).rows
        found, dense = rows[name], rows["dense"]
        assert (found.time_s.total, found.bytes_sent_per_rank) == (same.time_s.total, same.bytes_sent_per_rank)
        assert found.collectives[0].algorithm.partition(":")[0] == algorithm
        assert dense.baseline
        assert not found.baseline
        assert found.exact
        # Its own algorithm, whatever all others run by.
        beside = {row.option_string: row for row in run([name], collective="ring").rows}
        assert beside[name].time_s.total == found.time_s.total
    server = {row.option_string: row for row in run(["parameter-server"]).rows}["parameter-server"]
    # The server, which is a rank, sends the sums to all others.
    assert server.bytes_sent_per_rank == 7 * 4 * (600 * 4 + 400)


def test_other_rates_keep_the_algorithm():
    spec = RunSpec(topology="ring", workers=(8,), trace=SMALL, reducers=("parameter-server",))
    (slow, fast) = rate_curves(spec, [1e6, 1e8]).speedups["parameter-server"]
    # A ring sends 2 (P-1)/P of a gradient, the server (P-1), of which several share a link of a ring of nodes.
    assert slow <= 2 / 8
    assert fast > slow


def test_an_unknown_algorithm_and_what_a_map_cannot_weigh_are_told_at_once():
    with pytest.raises(UnknownNameError, match="did you mean 'ring'"):
        run(["dense:collective=rnig"])
    with pytest.raises(OptionError, match="ranks end with weights"):
        resolve_regimes(RegimeSpec("ring", 4, reducers=("dense", "local-sgd")))
    with pytest.raises(OptionError, match="leave collective= out"):
        resolve_regimes(RegimeSpec("ring", 4, reducers=("dense", "firecaffe")))


def run(reducers, **more):
    return s2sim.run("ring", workers=8, trace=SMALL, reducers=reducers, **more)
