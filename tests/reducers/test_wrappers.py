"""Wrappers among the options of reducers: how they are asked for, in which order they stand, what they refuse."""

import dataclasses

import pytest

from s2sim.errors import OptionError
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.wrappers.compose import WRAPPERS


def test_each_has_a_field_for_its_key_and_says_what_asks_for_it():
    for wrapper in WRAPPERS:
        assert wrapper.key in wrapper.option_names()
        assert "inner" not in wrapper.option_names()
        assert all(wrapper.takes(value) for value in wrapper.values())
        assert dataclasses.is_dataclass(wrapper)


def test_where_options_stand_does_not_matter():
    assert make_reducer("s2:warm=true,cells=2") == make_reducer("s2:cells=2,warm=true")
    assert option_string(make_reducer("topk:ef=true,density=0.05")) == "topk:density=0.05,ef=true"


def test_an_unknown_option_names_those_of_wrappers_too():
    with pytest.raises(OptionError, match="did you mean 'warm'"):
        make_reducer("topk:wram=true")
