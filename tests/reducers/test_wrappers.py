"""Wrappers among the options of reducers: how they are asked for, in which order they stand, what they refuse."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError
from s2sim.reducers.registry import WRAPPERS, make_reducer, option_string
from s2sim.reducers.wrappers.wrapper import Wrapper, unwrap_all


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


KINDS = ["", "ef=true", "ef=ef21", "ef=filtered,beta=0.25", "momentum=0.5,masking=false", "gmc=0.75"]
OTHERS = ["warmup=3,epoch=2", "warmup=2,ramp=quarters", "hierarchical=true,node=2", "h=4", "h=2,after=3"]


@given(
    st.sampled_from(KINDS),
    st.lists(st.sampled_from(OTHERS), unique_by=lambda text: text.partition("=")[0]),
    st.randoms(),
)
def test_whatever_composes_comes_back_and_nests_in_one_order(kind, others, random):
    options = [option for text in filter(None, [kind, *others]) for option in text.split(",")]
    random.shuffle(options)
    made = make_reducer("topk:" + ",".join(["density=0.25", *options]))
    written = option_string(made)
    assert make_reducer(written) == made
    assert sorted(written.partition(":")[2].split(",")) == sorted(["density=0.25", *options])
    places = [WRAPPERS.index(type(each)) for each in unwrap_all(made) if isinstance(each, Wrapper)]
    assert places == sorted(places, reverse=True)
    assert len(places) == len(others) + bool(kind)
