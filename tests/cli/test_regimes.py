"""The command that draws regime maps, alone."""

import json

import pytest
import typer

from s2sim.cli.more import regimes_command
from s2sim.cli.options import command

TINY = (
    *("--workers", "8", "--density", "0.01,0.2", "--overlap", "1", "--rate", "1Gbps,100Gbps", "--latency", "1us,50us"),
    *("--rows", "1000", "--width", "8", "--reducer", "union", "--reducer", "topk:density=0.01"),
)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    app = typer.Typer()
    command(app, "regimes")(regimes_command)
    monkeypatch.setattr("s2sim.cli.main.app", app)


def strict(text):
    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_the_output_is_headline_tables_notes_and_summary(s2sim):
    code, out, err = s2sim(*TINY)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == (
        "fat-tree: 8 workers in 2 nodes; library nccl (the wire alone) and GPU a100, as fat-tree says; "
        "gradient of 1000 x 8 float32 (32 kB), gaussian values"
    )
    assert lines[-1].startswith("Of 8 cells, fastest with an error of at most 0.1: ")
    assert [line for line in lines if line.startswith("latency of a NIC")] == [
        "latency of a NIC 1 us: the fastest, and its speed-up over dense",
        "latency of a NIC 50 us: the fastest, and its speed-up over dense",
    ]
    assert "Short names: topk is topk:density=0.01." in out
    assert "Note: the gradients are synthetic" in out
    assert max(map(len, lines[2:12])) <= 120


def test_quiet_prints_the_summary_alone(s2sim):
    code, out, _ = s2sim(*TINY, "-q")
    assert code == 0
    assert out.count("\n") == 1
    assert out.startswith("Of 8 cells")


def test_json_is_strict_and_alone_on_standard_output(s2sim):
    code, out, err = s2sim(*TINY, "--json", "-")
    assert (code, err) == (0, "")
    value = strict(out)
    assert len(value["cells"]) == 8
    assert value["spec"]["reducers"] == ["dense", "union", "topk:density=0.01"]
    keys = {"density", "overlap", "rate_Bps", "latency_s", "winner", "ties", "speedup_vs_dense", "reducers"}
    assert all(keys <= set(cell) for cell in value["cells"])
    assert {(cell["rate_Bps"], cell["latency_s"]) for cell in value["cells"]} == {
        (rate, latency) for rate in (1.25e8, 1.25e10) for latency in (1e-6, 5e-5)
    }


@pytest.mark.slow
def test_files_are_written(s2sim, tmp_path):
    picture, saved = tmp_path / "map.svg", tmp_path / "map.json"
    code, out, _ = s2sim(*TINY, "--png", picture, "--json", saved)
    assert code == 0
    assert out.startswith("fat-tree")
    assert picture.read_bytes().startswith(b"<?xml")
    assert len(strict(saved.read_text())["cells"]) == 8


def test_every_option_reaches_the_spec(s2sim, monkeypatch):
    seen = []

    def run_regimes(spec, _progress):
        seen.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sim.regimes.run.run_regimes", run_regimes)
    options = {
        "topology": ("--topology", "leaf-spine", "leaf-spine"),
        "workers": ("--workers", "32", 32),
        "densities": ("--density", "0.3, 0.01", (0.3, 0.01)),
        "overlaps": ("--overlap", "0", (0.0,)),
        "rates": ("--rate", "25Gbps", ("25Gbps",)),
        "latencies": ("--latency", "3us", ("3us",)),
        "tail": ("--tail", "1.5", "1.5"),
        "rows": ("--rows", "500", 500),
        "width": ("--width", "4", 4),
        "overrides": ("--set", "nic.count=2", ("nic.count=2",)),
        "library": ("--library", "nccl", "nccl"),
        "gpu": ("--gpu", "rtx-2080", "rtx-2080"),
        "max_error": ("--max-error", "0.5", 0.5),
        "seed": ("--seed", "3", 3),
    }
    assert s2sim(*(word for option, text, _ in options.values() for word in (option, text)))[0] == 130
    (spec,) = seen
    for field, (_, _, value) in options.items():
        assert getattr(spec, field) == value, field
    # What s2 is sized for follows the error that is allowed.
    assert "s2:error=0.5,warm=true" in spec.reducers
    assert "union:prefetch=true" not in spec.reducers


def test_defaults_are_those_of_the_spec(s2sim, monkeypatch):
    from s2sim.regimes.map import RegimeSpec

    seen = []

    def run_regimes(spec, _progress):
        seen.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sim.regimes.run.run_regimes", run_regimes)
    s2sim()
    s2sim("--prefetch")
    assert seen[0] == RegimeSpec("fat-tree", 16)
    assert seen[1].reducers == (*seen[0].reducers, "union:prefetch=true")


def test_an_interruption_keeps_what_is_finished(s2sim, monkeypatch, tmp_path):
    from s2sim.regimes import map as regime_map
    from s2sim.regimes import run as regimes

    places = set()

    def cell(*values):
        places.add(values[:-1])
        if len(places) > 3:
            raise KeyboardInterrupt
        return regime_map.Cell(*values)

    monkeypatch.setattr(regimes, "Cell", cell)
    saved = tmp_path / "map.json"
    code, out, _ = s2sim(*TINY, "--json", saved, "--png", tmp_path / "map.png")
    assert code == 130
    assert "Note: interrupted" in out
    assert len(strict(saved.read_text())["cells"]) == 3
    assert (tmp_path / "map.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--density", "0.1,x"), "--density: 'x' is not a number; write for example --density 0.01,0.1"),
        (("--density", "0.1,,0.2"), "has an empty place"),
        (("--overlap", ""), "has an empty place"),
        (("--overlap", "0,7"), "overlap=7.0 is not between 0 and 1"),
        (("--rate", "10"), "has no unit: write for example '100Gbps'"),
        (("--rate", "10Gbps,"), "as in --rate 1Gbps,100Gbps"),
        (("--latency", "1us,1000ns"), "1us and 1000ns are the same value"),
        (("--workers", "0"), "at least 1 worker"),
        (("--workers", "1"), "needs at least 2"),
        (("--workers", "2"), "all 2 workers are in one node of fat-tree"),
        (("--prefetch",), "--prefetch changes nothing beside --reducer"),
        (("--reducer", "s3"), "unknown reducer 's3'"),
        (("--set", "nic.rate=1Gbps"), "give its values by --rate"),
        (("--library", "nccI"), "did you mean 'nccl'"),
        (("--png", "map.gif"), "its name must end in .png, .svg, .pdf"),
        (("--png", "-"), "name a file"),
        (("--json", "nowhere/map.json"), "there is no directory nowhere"),
    ],
)
def test_what_is_refused(arguments, message, fails):
    assert message in fails(*TINY, *arguments)
