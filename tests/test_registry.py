"""The registry of plug-ins: built-in names first, installed ones beside them, and what is wrong with either."""

from importlib.metadata import EntryPoint

import pytest

from s2sim.errors import S2SimError, S2SimWarning, UnknownNameError
from s2sim.registry import Registry

BUILTIN = {"json": "json:dumps", "path": "pathlib:Path"}


@pytest.fixture
def installed(monkeypatch):
    """Pretend that packages with these entry points are installed; returns the registry that sees them."""

    def install(**targets):
        points = [EntryPoint(name, target, "s2sim.things") for name, target in targets.items()]
        points.append(EntryPoint("stranger", "json:loads", "s2sim.others"))

        def select(*, group):
            return [point for point in points if point.group == group]

        monkeypatch.setattr("importlib.metadata.entry_points", select)
        return Registry("thing", "s2sim.things", BUILTIN)

    return install


def test_built_in_names_come_first_and_are_imported_when_asked_for(installed):
    registry = installed(fraction="fractions:Fraction")
    assert registry.names() == ["json", "path", "fraction"]
    assert registry.get("fraction").__name__ == "Fraction"
    assert registry.get("json")([1]) == "[1]"
    assert registry.builtin == BUILTIN


def test_an_unknown_name_tells_the_nearest(installed):
    with pytest.raises(UnknownNameError, match=r"unknown thing 'pth' \(did you mean 'path'\? known: json, path\)"):
        installed().get("pth")


def test_a_name_that_is_taken_warns_and_the_first_stays(installed):
    registry = installed(json="evil:dumps")
    with pytest.warns(S2SimWarning, match="thing 'json' of evil:dumps is ignored: the name is taken by json:dumps"):
        assert registry.names() == ["json", "path"]
    assert registry.get("json")([1]) == "[1]"


def test_two_packages_with_one_name_warn_and_the_first_stays(monkeypatch):
    points = [EntryPoint("new", target, "s2sim.things") for target in ("json:dumps", "json:loads", "json:dumps")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: points if group == "s2sim.things" else [])
    with pytest.warns(S2SimWarning, match="'new' of json:loads is ignored: the name is taken by json:dumps") as caught:
        assert Registry("thing", "s2sim.things", {}).get("new")([1]) == "[1]"
    # The same target twice, as an installation of two versions gives, is no contradiction.
    assert len(caught) == 1


@pytest.mark.parametrize("target", ["no_such_module_anywhere:thing", "json:no_such_attribute", "json.none:x"])
def test_a_plug_in_that_cannot_be_loaded_is_named(installed, target):
    registry = installed(broken=target)
    assert "broken" in registry.names()
    with pytest.raises(S2SimError, match=f"thing 'broken' cannot be loaded from {target}: "):
        registry.get("broken")


def test_a_plug_in_whose_own_import_fails_is_named(installed, tmp_path, monkeypatch):
    (tmp_path / "plugin_without_its_library.py").write_text("import no_such_library_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(S2SimError, match=r"cannot be loaded.*no_such_library_anywhere"):
        installed(broken="plugin_without_its_library:Thing").get("broken")
