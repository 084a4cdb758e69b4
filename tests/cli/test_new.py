"""The package that ``s2sim new reducer`` writes works as it is."""

import os
import subprocess
import sys
import tomllib

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("topk", "there is a reducer topk"),
        ("mem-sgd", "there is a reducer mem-sgd"),
        ("numpy", "there is a Python module numpy"),
        ("taken", "there is a folder taken"),
        ("Signs", "'Signs' is no name of a reducer"),
        ("../signs", "is no name of a reducer"),
        ("lambda", "is no name of a reducer"),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused(fails, folder, name, said):
    (folder / "taken").mkdir()
    assert said in fails("new", "reducer", name)
    assert [path.name for path in folder.iterdir()] == ["taken"]


@pytest.mark.slow
def test_the_package_passes_its_own_test_and_runs(s2sim, process, folder):
    code, out, _ = s2sim("new", "reducer", "my-signs")
    package = folder / "my-signs"
    assert code == 0
    assert "--reducer my-signs:ef=true" in out
    assert {path.name for path in package.iterdir()} == {"pyproject.toml", "my_signs.py", "test_my_signs.py"}
    # What an installer makes of pyproject.toml
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    points = [f"{key} = {value}\n" for key, value in project["entry-points"]["s2sim.reducers"].items()]
    installed = package / "my_signs-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-signs\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text("".join(["[s2sim.reducers]\n", *points]))
    paths = os.pathsep.join([str(package), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": paths}
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "my-signs"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout
    trace = "synthetic:density=0.05,rows=300,width=8,dense=100"
    arguments = ("--topology", "single-switch", "--workers", "4", "--trace", trace, "--reducer", "my-signs:ef=true")
    ran = process("run", *arguments, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert "my-signs" in ran.stdout
