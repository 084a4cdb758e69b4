"""The package of `examples/plugin`, without being installed: what its entry points name exists, and keeps the laws."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from s2sim.collectives.algorithms.registry import ALGORITHMS
from s2sim.simulation.bucketing.policy import DISCIPLINES
from s2sim.simulation.faults.registry import FAULTS, make_fault
from s2sim.testing.collectives import check_algorithm, check_discipline
from s2sim.testing.reducers import check_reducer
from s2sim.testing.topologies import check_topology

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
POINTS = {
    group: [EntryPoint(name, target, group) for name, target in targets.items()]
    for group, targets in tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"].items()
}
CHECKS = {
    "s2sim.reducers": lambda found: check_reducer(found, exhaustive=False),
    "s2sim.collectives": lambda found: check_algorithm(found(), exhaustive=False),
    "s2sim.disciplines": lambda found: check_discipline(found()),
    "s2sim.topologies": check_topology,
    "s2sim.faults": lambda found: make_fault(found.example),
}


@pytest.mark.parametrize("group", POINTS)
def test_plug_ins_of_a_group_keep_its_laws(group, monkeypatch):
    monkeypatch.syspath_prepend(PLUGIN)
    # Kits read option strings back by the name of the entry point.
    for registry in (ALGORITHMS, DISCIPLINES, FAULTS):
        installed = {point.name: point.value for point in POINTS[registry.group]}
        monkeypatch.setitem(vars(registry), "_targets", registry.builtin | installed)
    for point in POINTS[group]:
        found = point.load()
        CHECKS[group](found)
        name = found.stem.replace("_", "-") if isinstance(found, Path) else getattr(found, "about", found).name
        assert name == point.name


def test_the_readme_names_every_group_and_plug_in():
    readme = (PLUGIN / "README.md").read_text("utf-8")
    for group, points in POINTS.items():
        assert f"`{group}`" in readme
        assert all(point.name in readme for point in points)
