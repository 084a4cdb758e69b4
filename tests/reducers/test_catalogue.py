"""The tables of what own reducers are and what their options do: entries are of something, and nothing is left out."""

import dataclasses
import importlib
from collections import Counter
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from s2sim import reducers
from s2sim.experiment.reducer_facts import describe_options
from s2sim.options import option
from s2sim.reducers.catalogue import option_text, own_traits, read_table
from s2sim.reducers.rank import Reducer, Traits
from s2sim.reducers.registry import PRESETS, REDUCERS, WRAPPERS
from s2sim.reducers.systems import topk
from s2sim.reducers.wrappers.wrapper import Wrapper

SYSTEMS, OPTIONS = read_table("systems"), read_table("options")
OWN = [REDUCERS.get(name) for name in SYSTEMS["reducers"]]


def classes():
    """Return the classes of all files of the room by name."""
    room = Path(reducers.__file__).parent
    names = [".".join(path.relative_to(room.parent.parent).with_suffix("").parts) for path in room.rglob("*.py")]
    found = [value for name in names for value in vars(importlib.import_module(name)).values()]
    return {cls.__name__: cls for cls in found if isinstance(cls, type) and issubclass(cls, Reducer)}


@pytest.mark.parametrize("name", SYSTEMS["reducers"])
def test_every_reducer_of_the_table_is_a_class_with_facts_of_their_types(name):
    row = SYSTEMS["reducers"][name]
    about = REDUCERS.get(name).about
    assert about == Traits(name=name, **{key: row[key] for key in row.keys() - {"family", "class"}})
    assert vars(REDUCERS.get(name))["about"] is about
    assert row["family"] in SYSTEMS["families"]
    for key, kind in get_type_hints(Traits).items():
        value = getattr(about, key)
        assert value in get_args(kind) if get_origin(kind) is Literal else isinstance(value, kind), key


def test_every_family_has_reducers_and_every_preset_all_of_its_fields():
    assert {row["family"] for row in SYSTEMS["reducers"].values()} == set(SYSTEMS["families"])
    assert SYSTEMS.keys() == {"families", "reducers", "presets"}
    assert SYSTEMS["presets"] == {name: dataclasses.asdict(preset) for name, preset in PRESETS.items()}


def test_every_text_is_of_an_option_of_a_class():
    known, used = classes(), Counter()
    for name, texts in OPTIONS.items():
        if name == "*":
            continue
        inherited = [OPTIONS.get(base.__name__, {}) for base in known[name].__mro__[1:]]
        for key, text in texts.items():
            assert key in get_type_hints(known[name]), f"{name}.{key}"
            assert text != next((each[key] for each in inherited if key in each), ""), f"{name}.{key}"
            used[text] += 1
    assert all(used[name] > 1 for name in OPTIONS["*"])


@pytest.mark.parametrize("cls", [*OWN, *WRAPPERS])
def test_every_option_has_a_text(cls):
    # What asks for a wrapper is told by its class.
    without = {"inner", cls.key} if issubclass(cls, Wrapper) else set()
    silent = {each.name for each in describe_options(cls) if not each.text}
    assert silent <= without


def test_classes_of_others_say_for_themselves_what_they_are():
    @dataclasses.dataclass(slots=True)
    class Mine(topk.TopK):
        depth: int = option(2, "how deep")
        plain: int = 3
        about = Traits("mine", "as topk", "this test")

    assert Mine.about.name == "mine"
    density, granularity = OPTIONS["Selecting"]["density"], OPTIONS["TopK"]["granularity"]
    texts = {item.name: option_text(Mine, item) for item in dataclasses.fields(Mine) if item.init}
    assert texts == {"density": density, "granularity": granularity, "depth": "how deep", "plain": None}


def test_a_name_alone_makes_no_class_an_own_one():
    @dataclasses.dataclass(slots=True)
    class TopK(Reducer):
        granularity: str = "layer"

    assert own_traits(TopK) is None
    assert not hasattr(TopK, "about")
    assert {option_text(TopK, item) for item in dataclasses.fields(TopK)} == {None}
