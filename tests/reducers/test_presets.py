"""Published systems that are others by another name."""

import pytest

import s2sim
from s2sim.errors import OptionError, UnknownNameError
from s2sim.options import split_option_string
from s2sim.reducers.registry import REDUCERS, make_reducer, option_string, reducer_names
from s2sim.reducers.systems.presets import PRESETS

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
    with pytest.raises(OptionError, match="topk has no option 'rows'"):
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
