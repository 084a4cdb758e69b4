"""``--spec``: what was saved runs again, and nothing beside it is dropped quietly."""

import json

import pytest

COLLECTIVE = (
    "collective", "all_gather", "--topology", "leaf-spine", "--workers", "9", "--size", "1MiB", "--set",
    "nic.rate=25Gbps", "--fault", "jitter:latency=1us", "--placement", "random", "--seed", "3",
)  # fmt: skip


@pytest.fixture
def flows(tmp_path):
    path = tmp_path / "traffic.csv"
    path.write_text("start_s,src,dst,bytes\n0,0,8,2e6\n1e-5,4,8,1234567\n")
    return (
        "flows",
        path,
        "--topology",
        "fat-tree",
        "--workers",
        "12",
        "--network",
        "packet",
        "--packet-bytes",
        "16KiB",
    )


@pytest.fixture(params=["run", "collective", "flows"])
def command(request, tiny, flows):
    return {"run": tiny, "collective": COLLECTIVE, "flows": flows}[request.param]


@pytest.mark.slow
def test_a_saved_result_runs_again(s2sim, command, tmp_path):
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    assert s2sim(*command, "--json", first)[0] == 0
    assert s2sim(command[0], "--spec", first, "--json", again)[0] == 0
    assert json.loads(first.read_text()) == json.loads(again.read_text())


def test_options_beside_a_spec_are_refused_by_name(fails, command):
    given = [word for word in command if str(word).startswith("--")]
    line = fails(*command, "--spec", "saved.json", "--quiet")
    assert "--spec saved.json holds the whole experiment, so " in line
    assert all(option in line for option in given)
    assert "--quiet" not in line


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (("run",), "--topology and --workers must be given"),
        (("run", "--workers", "4"), "--topology must be given"),
        (("collective", "all_reduce", "--topology", "ring"), "--workers must be given"),
        (("collective", "--workers", "2", "--topology", "ring"), "KIND must be given"),
        (("flows", "--topology", "ring"), "FILE.csv must be given"),
    ],
)
def test_what_is_missing_is_named(fails, arguments, missing):
    assert missing in fails(*arguments)


def test_a_spec_of_something_else_is_refused(fails, flows, s2sim, tmp_path):
    saved = tmp_path / "saved.json"
    s2sim(*flows, "--json", saved)
    assert "is not a collective spec: kind: Field required" in fails("collective", "--spec", saved)
