"""Plug-ins that were written for version 0.1.0 find what they import, and are told where it is now."""

import importlib
import sys
from dataclasses import dataclass

import pytest

from s2sim.moved import moved_modules
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.systems.dense import Dense

SEAMS = {
    "s2sim.reducers.elements.gathered": "Gathered",
    "s2sim.reducers.elements.scattered": "Scattered",
    "s2sim.reducers.row_sparse.split": "Split",
    "s2sim.reducers.once": "reduce_once",
    "s2sim.codecs.base": "Codec",
    "s2sim.collectives.algorithms.over_groups": "OverGroups",
    "s2sim.collectives.schedules.clock": "Clock",
    "s2sim.collectives.libraries.tables": "choose_library",
    "s2sim.replay.iteration.disciplines.discipline": "Discipline",
    "s2sim.replay.faults.link_fault": "LinkFault",
    "s2sim.topology.files.catalogue": "load_shape",
    "s2sim.study.spec": "RunSpec",
    "s2sim.testing.reducer_laws.examples": "example_gradients",
}


@pytest.mark.parametrize(("module", "name"), SEAMS.items())
def test_an_old_path_has_its_names_and_says_where_they_are(module, name):
    new, renamed = moved_modules()[module]
    sys.modules.pop(module, None)
    with pytest.warns(DeprecationWarning, match=f"{module} is {new} now"):
        old = importlib.import_module(module)
    assert getattr(old, name) is getattr(importlib.import_module(new), renamed.get(name, name))


def test_every_old_name_is_there_under_its_new_one():
    for old, (new, renamed) in moved_modules().items():
        if new.startswith("s2sim.pytorch"):
            continue
        found = importlib.import_module(new)
        assert [name for name in renamed.values() if not hasattr(found, name)] == [], old


def test_the_hook_goes_by_its_old_path():
    pytest.importorskip("torch")
    sys.modules.pop("s2sim.bridge", None)
    with pytest.warns(DeprecationWarning, match=r"s2sim\.bridge is s2sim\.pytorch now"):
        old = importlib.import_module("s2sim.bridge")
    assert old.HookState is importlib.import_module("s2sim.pytorch").HookState


def test_what_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"s2sim\.reducers\.no_such"):
        importlib.import_module("s2sim.reducers.no_such")


def test_methods_that_a_plug_in_overrides_by_their_old_names_are_called():
    with pytest.warns(DeprecationWarning, match="Plugged") as told:

        @dataclass(slots=True)
        class Plugged(Dense):
            @property
            def settles_after(self):
                return 3

            def unit(self, ranks):
                return 7 * super(Plugged, self).unit(ranks)

    assert {str(each.message) for each in told} == {
        "Plugged.settles_after is warmup_steps now",
        "Plugged.unit is alignment now",
    }
    plugged = Plugged()
    assert (plugged.warmup_steps, plugged.alignment(2), plugged.unit(2)) == (3, 7, 7)
    assert make_reducer("per-layer:*=topk:density=0.01").unit(2) == 100
