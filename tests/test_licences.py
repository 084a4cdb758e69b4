"""The package names the licence of everything that it ships."""

import re
import tomllib
from pathlib import Path

import s2sim
from s2sim.gradients.manifest import read_manifest
from s2sim.gradients.read_trace import shipped_directories

ROOT = Path(__file__).parents[1]


def test_every_shipped_trace_has_its_licence_in_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "traces/LICENSES.md" in project["license-files"]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "traces" / "LICENSES.md").read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    named = {trace: row for row in rows for trace in re.findall(r"`([^`]+)`", row[0])}
    assert set(named) == set(shipped_directories())
    for trace, directory in shipped_directories().items():
        *_, licence, _, text = named[trace]
        assert licence == read_manifest(directory).origin.licence
        assert text.startswith("<https://")
    assert {"Apache-2.0", *(row[4] for row in rows)} == set(project["license"].split(" AND "))


def test_the_citation_is_of_this_version():
    cited = dict(re.findall(r"^(\w[\w-]*): (.*)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE))
    assert cited["version"] == s2sim.__version__
    assert cited["license"] == "Apache-2.0"


def test_the_authors_of_the_package_are_those_of_the_citation():
    cited = re.findall(r"^  - name: (.*)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [author["name"] for author in project["authors"]] == cited != []
