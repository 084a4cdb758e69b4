"""Option strings make reducers and reducers give them back."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError, UnknownNameError
from s2sim.reducers.registry import REDUCERS, make_reducer, option_string

CHOICES = {
    "dense": {"dtype": ["fp32", "bf16", "fp16"]},
    "fp16": {"ef": ["true", "false"]},
    "topk": {"ef": ["true"], "density": [0.01, 0.5, 1, 1e-05, 0.1 + 0.2]},
    "union": {"layers": ["sparse"], "bitmap": ["packed", "byte", "float32"], "prefetch": ["true", "false"]},
    "owner-reduce": {"layers": ["sparse", "all"]},
    "gather-rows": {"layers": ["sparse", "all"]},
    "s2": {
        "rows": [1, 3, 16],
        "cells": [0.25, 2, 2.0, 1e22],
        "bitmap": ["packed", "byte", "float32"],
        "hash": ["mix", "modulo", "product"],
        "layers": ["sparse", "all"],
        "margin": [1, 1.1],
        "ef": ["true", "false"],
    },
}


@st.composite
def option_texts(draw):
    name = draw(st.sampled_from(sorted(CHOICES)))
    given_options = draw(st.lists(st.sampled_from(sorted(CHOICES[name])), unique=True)) if CHOICES[name] else []
    options = [f"{key}={draw(st.sampled_from(CHOICES[name][key]))}" for key in given_options]
    return f"{name}:{','.join(options)}" if options else name


@given(option_texts())
def test_round_trip(text):
    reducer = make_reducer(text)
    assert make_reducer(option_string(reducer)) == reducer
    assert option_string(make_reducer(option_string(reducer))) == option_string(reducer)


@pytest.mark.parametrize(
    "text",
    [
        "dense",
        "fp16",
        "topk:density=0.05,ef=true",
        "union:bitmap=byte",
        "union:prefetch=true",
        "owner-reduce",
        "gather-rows:layers=all",
        "s2:rows=3,cells=2",
        "s2:columns=500",
        "s2:preset=authors-gnmt",
        "s2:preset=authors-lstm,ef=true",
    ],
)
def test_what_people_write_comes_back_as_it_was(text):
    assert option_string(make_reducer(text)) == text


def test_all_are_registered_and_described():
    systems = {"dense", "fp16", "topk", "union", "owner-reduce", "gather-rows", "s2", "s2-exact"}
    assert systems < set(REDUCERS.names())
    for name in REDUCERS.names():
        cls = REDUCERS.get(name)
        assert cls.about.name == name
        assert cls.about.summary
        assert cls.about.source
        assert dataclasses.is_dataclass(cls)


def test_unknown_names_and_options_name_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'union'"):
        make_reducer("unoin")
    with pytest.raises(OptionError, match="did you mean 'density'"):
        make_reducer("topk:densty=0.1")
    with pytest.raises(OptionError, match="not a number"):
        make_reducer("topk:density=lots")
