"""A library's constants in a file of one's own: they count, and a use outside of what they were fitted to is named."""

import json

import pytest

from s2sim.libraries.constants import load_constants

MACHINE = ("--topology", "dgx-h100")
FILE = """
name = "nccl on dgx-h100"
base = "nccl"
source = "made up"

[launch]
collective = {{ value = "{launch}", kind = "measured", source = "made up" }}

[share]
nvlink = 0.5

[fitted]
topology = "dgx-h100"
collectives = ["all_reduce"]
workers = [4, 8]
nodes = [1]
smallest_bytes = 1024
largest_bytes = 1073741824
points = 5
median_error_before = 0.2
median_error_after = 0.01
median_error_held_out = 0.05
versions = ["NCCL 2.21.5"]
logs = ["five.log"]
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Return the name of a file of constants in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(FILE.format(launch="105us"))
    return "mine.toml"


def changed(old, new):
    return FILE.format(launch="5us").replace(old, new)


def collective(s2sim, library, *more, workers=8, size="1KiB"):
    asked = ("collective", "all_reduce", *MACHINE, "--workers", workers, "--size", size, "--json", "-")
    code, out, err = s2sim(*asked, "--library", library, *more)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_own_constants_take_the_place_of_the_shipped_ones(s2sim, mine):
    shipped = collective(s2sim, "nccl:timing=measured")
    own = collective(s2sim, f"nccl:timing={mine}")
    launch_s = load_constants("nccl")["launch.collective"] / 1e12
    assert own["time_s"] - shipped["time_s"] == pytest.approx(105e-6 - launch_s, rel=0.01)
    assert "notes" not in own
    ring = ("--algorithm", "ring")
    large = [
        collective(s2sim, library, *ring, size="1GiB") for library in ("nccl:timing=measured", f"nccl:timing={mine}")
    ]
    assert large[1]["time_s"] / large[0]["time_s"] == pytest.approx(0.915 / 0.5, rel=0.05)


@pytest.mark.parametrize(
    ("more", "changed", "said"),
    [
        ((), {"size": "2GiB"}, "sizes of 2.147 GB, not 1.024 kB to 1.074 GB"),
        ((), {"workers": 2}, "2 workers, not 4 to 8"),
        ((), {"workers": 16}, "16 workers, not 4 to 8; 2 nodes, not 1"),
        (("--set", "nvlink.rate=300GB/s"), {}, "the topology is dgx-h100 nvlink.rate=300GB/s, not dgx-h100"),
    ],
)
def test_a_use_outside_of_what_they_were_fitted_to_is_named(s2sim, mine, more, changed, said):
    (note,) = collective(s2sim, f"nccl:timing={mine}", *more, **changed)["notes"]
    assert note == f"mine.toml is used outside of what it was fitted to: {said}"


def test_other_collectives_are_outside_in_all_forms_of_output(s2sim, mine):
    asked = (*MACHINE, "--workers", "8", "--library", f"nccl:timing={mine}")
    said = "mine.toml is used outside of what it was fitted to: all_gather was not measured, only all_reduce"
    _, out, _ = s2sim("collective", "all_gather", *asked, "--size", "1MiB")
    assert f"Note: {said}." in out.splitlines()
    _, out, _ = s2sim("collective", "table", "all_gather", *asked, "--size", "1MiB")
    assert f"# {said}" in out.splitlines()
    _, out, _ = s2sim("run", *asked, "--trace", "ncf", "--reducer", "topk", "--no-break-even")
    assert said in " ".join(out.split())


def test_a_run_inside_says_nothing(s2sim, mine):
    asked = (*MACHINE, "--workers", "8", "--library", f"nccl:timing={mine}")
    _, out, _ = s2sim("run", *asked, "--trace", "ncf", "--reducer", "fp16", "--no-break-even")
    assert "outside" not in out


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "name is missing"),
        ("name = 'a'\nbase = 'nccl'\nsource = 'b'\n", "[fitted]"),
        (FILE.format(launch="5GB/s"), "launch.collective"),
        (changed("nvlink = 0.5", "nvlink = 1.5"), "share.nvlink = 1.5 is a share"),
        (changed("nvlink = 0.5", "nvlink = [1]"), "a constant is a list"),
        (changed("nvlink = 0.5", "nvlinc = 0.5"), "no constant 'share.nvlinc'"),
        (changed("workers = [4, 8]", "workers = []"), "names no workers"),
        (changed("workers = [4, 8]", "workers = 4"), "workers: Input should be a valid tuple"),
        (changed('base = "nccl"', 'base = "rccl"'), "was fitted for rccl: give --library rccl:"),
        (changed('base = "nccl"', 'base = "nchl"'), "fitted for nchl, which s2sim does not have"),
        ("[", "is not valid TOML"),
    ],
)
def test_a_file_that_says_something_else_is_refused_in_one_line(fails, mine, tmp_path, text, part):
    (tmp_path / mine).write_text(text)
    asked = ("collective", "all_reduce", *MACHINE, "--workers", "8", "--size", "1MiB")
    line = fails(*asked, "--library", f"nccl:timing={mine}")
    assert "mine.toml" in line
    assert part in line


def test_a_file_that_is_not_there(fails):
    line = fails(
        "collective", "all_reduce", *MACHINE, "--workers", "8", "--size", "1MiB", "--library", "nccl:timing=no.toml"
    )
    assert "there is no file no.toml" in line
