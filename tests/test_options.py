"""Option strings: parsed, refused with the nearest name, and printed back."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError
from s2sim.options import build, join_option_string, non_default, split_option_string


@dataclass(frozen=True)
class Options:
    count: int = 1
    share: float = 0.5
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = None
    ef: bool = False
    derived: int = field(init=False, default=7)

    def __post_init__(self):
        if self.count < 0:
            raise OptionError(f"count={self.count} is negative")


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("s2", "s2", {}),
        ("s2:", "s2", {}),
        (" s2 : rows = 3 , cells=2 ", "s2 ", {"rows": "3", "cells": "2"}),
        ("s2:rows=3,", "s2", {"rows": "3"}),
        ("s2:key=a=b", "s2", {"key": "a=b"}),
    ],
)
def test_a_string_is_split_at_its_marks(text, name, options):
    found_name, found = split_option_string(text)
    assert found_name.strip() == name.strip()
    assert found == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names nothing"),
        (":rows=3", "names nothing"),
        ("s2:rows", "'rows' in 's2:rows' is not key=value"),
        ("s2:rows=", "not key=value"),
        ("s2:=3", "not key=value"),
        ("s2:rows=1,rows=2", "'rows' stands twice"),
    ],
)
def test_a_broken_string_is_refused(text, message):
    with pytest.raises(OptionError, match=message):
        split_option_string(text)


LETTERS = string.ascii_lowercase
WORDS = st.builds(str.__add__, st.sampled_from(LETTERS), st.text(f"{LETTERS}{string.digits}.-", max_size=8))


@given(WORDS, st.dictionaries(WORDS, WORDS))
def test_splitting_undoes_joining(name, options):
    assert split_option_string(join_option_string(name, options)) == (name, options)


def test_texts_become_the_types_of_the_fields():
    texts = {"count": "3", "share": "0.25", "mode": "slow", "limit": "9", "ef": "true"}
    assert build(Options, texts, "it") == Options(3, 0.25, "slow", 9, True)
    assert build(Options, {}, "it") == Options()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuont": "1"}, "it has no option 'cuont'.*did you mean 'count'"),
        ({"derived": "1"}, "no option 'derived'"),
        ({"count": "1.5"}, "it: count=1.5 is not a whole number"),
        ({"limit": "many"}, "it: limit=many is not a whole number"),
        ({"share": "half"}, "it: share=half is not a number"),
        ({"mode": "medium"}, "it: mode=medium is not one of fast, slow"),
        ({"ef": "yes"}, "it: ef=yes is neither true nor false"),
        ({"count": "-1"}, "count=-1 is negative"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(options, message):
    with pytest.raises(OptionError, match=message) as caught:
        build(Options, options, "it")
    assert "\n" not in str(caught.value)


@given(
    st.builds(
        Options,
        count=st.integers(0, 10**9),
        share=st.floats(allow_nan=False),
        mode=st.sampled_from(["fast", "slow"]),
        limit=st.integers(1, 9),
        ef=st.booleans(),
    )
)
def test_what_differs_from_the_defaults_builds_the_same_again(options):
    texts = non_default(options)
    assert build(Options, texts, "it") == options
    assert all(getattr(Options(), key) != getattr(options, key) for key in texts)
