"""``s2sim dev calibrate``: from logs to constants, and what is refused."""

import json
import random
import tomllib
from contextlib import nullcontext, suppress

import pytest

from s2sim.cli.main import main
from s2sim.collectives.schedules.demand import bus_factor
from s2sim.errors import S2SimError
from s2sim.traffic.nccl_tests import parse_nccl_tests
from s2sim.traffic.size_sweep import time_sizes
from s2sim.traffic.spec import CollectiveSpec
from s2sim.validation.calibrate import run_calibration
from s2sim.validation.calibrate_runs import read_runs
from s2sim.validation.calibrate_spec import CalibrateSpec
from s2sim.validation.compare_log import check_bus_factors, choose_tables

MACHINE = ("--topology", "dgx-h100")
SIZES = ("16B", "64KiB", "1MiB", "16MiB", "1GiB")


def table(s2sim, *asked):
    code, out, err = s2sim("collective", "table", *asked)
    assert (code, err) == (0, "")
    # With the first line, which says that it was simulated, it would be refused.
    return out.partition("\n")[2]


@pytest.fixture(scope="module")
def logs():
    """Return the texts of logs by name, empty before the first test that needs them."""
    return {}


@pytest.fixture
def other_machine(s2sim, tmp_path, monkeypatch, logs):
    """Write the log of a machine of other constants than the shipped, of five sizes; return their values."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "truth.toml").write_text(
        'name = "truth"\nbase = "nccl"\nsource = "made up"\n'
        "[launch]\ncollective = '9us'\n[network.ib-verbs]\nlatency = '9us'\n"
        "[protocol.LL128]\nnetwork = '14us'\n[in-network.hopper]\nshare-over-nodes = 0.7\n"
        "[fitted]\ntopology = 'dgx-h100'\ncollectives = ['all_reduce']\nworkers = [16]\nnodes = [2]\n"
        "smallest_bytes = 8\nlargest_bytes = 1073741824\npoints = 5\nmedian_error_before = 0.1\n"
        "median_error_after = 0.1\nmedian_error_held_out = 0.1\nversions = []\nlogs = []\n"
    )
    if not logs:
        asked = ("all_reduce", *MACHINE, "--workers", "16", "--library", "nccl:timing=truth.toml")
        logs["five.log"] = "".join(table(s2sim, *asked, "--size", size) for size in SIZES)
        logs["all.log"] = table(s2sim, *asked, "--from", "32B", "--to", "512MiB", "--factor", "8")
    for name, text in logs.items():
        (tmp_path / name).write_text(text)


def against(s2sim, library):
    asked = ("collective", "log", "all.log", *MACHINE, "--library", library, "--json", "-")
    return json.loads(s2sim(*asked)[1])


@pytest.mark.slow
@pytest.mark.usefixtures("other_machine")
def test_five_points_of_another_machine_make_all_others_surer(s2sim, tmp_path):
    code, out, err = s2sim("dev", "calibrate", "five.log", *MACHINE, "--out", "mine.toml", "--json", "-")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert [point["size_bytes"] for point in result["points"]] == [16, 2**16, 2**20, 2**24, 2**30]
    assert result["after"]["large"] < 0.01
    assert result["after"]["small"] < 0.01
    shipped, own = (against(s2sim, f"nccl:timing={timing}") for timing in ("measured", "mine.toml"))
    assert own["notes"] == []
    for size in ("large", "small"):
        key = f"median_abs_log_error_{size}"
        assert own[key] < min(0.03, 0.4 * shipped[key])
    fitted = {each["name"]: each for each in result["constants"]}
    for name, truth in (("network.ib-verbs.latency", 9), ("in-network.hopper.share-over-nodes", 0.7)):
        assert fitted[name]["low"] < truth < fitted[name]["high"]
    written = tomllib.loads((tmp_path / "mine.toml").read_text())
    assert written["base"] == "nccl"
    assert written["fitted"] == {
        "topology": "dgx-h100",
        "collectives": ["all_reduce"],
        "workers": [16],
        "nodes": [2],
        "smallest_bytes": 16,
        "largest_bytes": 2**30,
        "points": 5,
        "median_error_before": pytest.approx(0.2, abs=0.15),
        "median_error_after": pytest.approx(0.0, abs=0.01),
        "median_error_held_out": pytest.approx(0.0, abs=0.3),
        "versions": [],
        "logs": written["fitted"]["logs"],
    }
    (log,) = written["fitted"]["logs"]
    assert log.startswith("five.log, SHA-256 ")
    assert all(value["kind"] == "measured" for value in written["network"]["ib-verbs"].values())


@pytest.mark.slow
@pytest.mark.usefixtures("other_machine")
def test_the_screen_has_constants_errors_and_points(s2sim):
    code, out, err = s2sim("dev", "calibrate", "five.log", *MACHINE, "--out", "mine.toml")
    assert (code, err) == (0, "")
    for part in (
        "fitted to 5 points (3 from 1 MiB on, 2 below)",
        "all_reduce over 16 workers",
        "each point left out",
        "in-network.hopper.share-over-nodes",
        "predicted beside measured",
        "Written to mine.toml: simulate with --library nccl:timing=mine.toml",
    ):
        assert part in out


@pytest.mark.slow
@pytest.mark.usefixtures("other_machine")
def test_what_to_measure_next_narrows_the_band_when_it_is_measured(s2sim, tmp_path):
    def suggestion(*logs):
        code, out, err = s2sim("dev", "calibrate", *logs, *MACHINE, "--workers", "8", "--suggest", "--json", "-")
        assert (code, err) == (0, "")
        return json.loads(out)["suggestion"]

    first = suggestion()
    assert first["command"].startswith("mpirun -np 8 ")
    assert first["band_after"] < first["band_now"]
    asked = (first["collective"], *MACHINE, "--workers", "8", "--size", f"{first['size_bytes']}B")
    (tmp_path / "next.log").write_text(table(s2sim, *asked, "--library", "nccl:timing=truth.toml"))
    assert suggestion("next.log")["band_now"] == pytest.approx(first["band_after"], rel=0.3)


def test_one_process_for_all_gpus_is_known_from_the_log(s2sim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("all_reduce", *MACHINE, "--workers", "8", "--size", "1MiB")
    (tmp_path / "node.log").write_text(table(s2sim, *asked, "--library", "nccl:timing=measured,launch=node"))
    code, out, _ = s2sim("dev", "calibrate", "node.log", *MACHINE, "--json", "-", "--out", "mine.toml")
    assert code == 0
    assert s2sim("collective", *asked, "--library", "nccl:timing=mine.toml,launch=node")[0] == 0
    result = json.loads(out)
    assert result["before"]["large"] == pytest.approx(0, abs=0.001)
    assert any("launch=node" in note for note in result["notes"])
    assert any("1 size alone" in note for note in result["notes"])


def test_the_library_is_that_of_the_log(log, s2sim):
    text = LOG.replace("NCCL version 2.27.5+cuda12.9", "RCCL version 2.20.5 hip6.1").replace("NVIDIA H100", "MI300X")
    log.write_text(text.replace("21.50", "50.50"))
    code, out, err = s2sim("dev", "calibrate", "a.log", "--topology", "mi300x-8", "--out", "mine.toml")
    assert (code, err) == (0, "")
    assert "simulate with --library rccl:timing=mine.toml" in out
    asked = ("collective", "all_reduce", "--topology", "mi300x-8", "--workers", "2", "--size", "1MiB", "--json", "-")
    own, shipped = (json.loads(s2sim(*asked, "--library", f"rccl:timing={t}")[1]) for t in ("mine.toml", "measured"))
    assert "notes" not in own
    assert abs(own["time_s"] - 50.5e-6) < 0.2 * abs(shipped["time_s"] - 50.5e-6)


LOG = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid 1 on node-a device  0 [0x18] NVIDIA H100
#  Rank  1 Group  0 Pid 2 on node-a device  1 [0x2a] NVIDIA H100
NCCL version 2.27.5+cuda12.9
#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong
    65536   16384  float  sum  -1  15.50  4.23  4.23  0  15.40  4.26  4.26  0
node-a:1:2 [0] NCCL INFO Connected all rings
  1048576  262144  float  sum  -1  21.50  48.77  48.77  0  21.40  49.00  49.00  0
"""


SILENT = """
node.gpus = 1
nic.count = 1
nic.rate = "800Gbps"
fabric.kind = "single-switch"
"""


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text(LOG)
    (tmp_path / "silent.toml").write_text(SILENT)
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "zero.log").write_text(LOG.replace("15.50", "0.00").replace("21.50", "0.00"))
    (tmp_path / "two.log").write_text(LOG.replace("Pid 2 on node-a", "Pid 2 on node-b"))
    (tmp_path / "old.log").write_text(LOG.replace("NVIDIA H100", "NVIDIA A100-SXM4-80GB"))
    (tmp_path / "nameless.log").write_text(LOG.partition("\n")[2])
    (tmp_path / "huge.log").write_text(LOG.replace("Rank  1 ", "Rank  99999999 "))
    return tmp_path / "a.log"


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "--topology must be given"),
        (MACHINE, "no log was given"),
        (("no.log", *MACHINE), "cannot read the log no.log: No such file"),
        (("empty.log", *MACHINE), "empty.log holds no table of nccl-tests"),
        (("zero.log", *MACHINE), "no row has both a size and a time"),
        (("huge.log", *MACHINE), "is of 100000000 ranks: give logs of 2 to 8192"),
        (("two.log", *MACHINE, "--out", "mine.toml"), "ran on 2 hosts, simulated are 1 node: give --set node.gpus=1"),
        (
            ("old.log", *MACHINE, "--out", "mine.toml"),
            "NVIDIA A100-SXM4-80GB, simulated is h100: give another --topology, or --set gpu=a100-80gb",
        ),
        (("nameless.log", *MACHINE), "names no collective: say which with --collective, for example all_reduce"),
        (("a.log", *MACHINE, "--workers", "16"), "a.log is of 2 ranks, not of 16"),
        (("a.log", *MACHINE, "--collective", "all_gather"), "all_reduce: leave --collective out"),
        (("a.log", *MACHINE, "--collective", "all_gatter"), "unknown collective 'all_gatter'"),
        (("a.log", *MACHINE, "--library", "gloo"), "has no constants that are fitted"),
        (("a.log", *MACHINE, "--library", "ideal"), "has no constants that are fitted"),
        (("two.log", "--topology", "silent.toml"), "nic.transport"),
        (("a.log", "--topology", "dgx-h200x"), "unknown topology"),
        (("a.log", *MACHINE, "--out", "mine"), "ends in .toml"),
        (("--suggest", *MACHINE), "with --workers"),
        (("--suggest", *MACHINE, "--workers", "4", "--out", "mine.toml"), "--out writes what logs tell"),
        (("a.log", *MACHINE, "--set", "node.gpus=0"), "node.gpus"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(arguments, part, fails):
    assert part in fails("dev", "calibrate", *arguments)


def test_what_a_log_says_of_itself_is_noted(log, s2sim):
    lines = LOG.replace("21.50  48.77  48.77  0", "21.50  48.77  48.77  3").splitlines(keepends=True)
    log.write_text("".join(line for line in lines if "Rank  " not in line and "nThread" not in line))
    asked = ("dev", "calibrate", "a.log", *MACHINE, "--workers", "2", "--json", "-")
    code, out, _ = s2sim(*asked)
    notes = json.loads(out)["notes"]
    assert code == 0
    assert "a.log: line 6 measured sums that came out wrong" in notes
    assert "a.log: the table at line 3 does not say how many ranks ran and is taken for 2" in notes


def rows_of(kind, workers, times_us):
    """Return rows of a table of some collective, bandwidths as nccl-tests prints them."""
    bandwidths = {size: size / time / 1e3 for size, time in times_us.items()}
    factor = bus_factor(kind, workers)
    return "".join(
        f"{size} 0 float sum -1 {times_us[size]:.2f} {algbw:.2f} {algbw * factor:.2f} 0\n"
        for size, algbw in bandwidths.items()
    )


@pytest.fixture
def as_simulated(log):
    """Return what writes a log of eight GPUs with s2sim's own times, some of them longer by a factor."""
    sizes = [2**power for power in (3, 10, 13, 16, 20, 23, 26, 30)]
    found = time_sizes(CollectiveSpec("dgx-h100", "all_reduce", 8, sizes[-1], library="nccl"), sizes)[0]
    ranks = "".join(f"#  Rank  {rank} Pid 3 on node-a device {rank} [0x2b] NVIDIA H100\n" for rank in range(2, 8))
    head = LOG.replace("NCCL version", f"{ranks}NCCL version").partition("    65536 ")[0]

    def write(longer=(), kind="all_reduce", factor=1.0):
        times_us = {each.size_bytes: each.time_s * 1e6 * factor for each in found}
        log.write_text(head + rows_of(kind, 8, times_us | {size: 20 * times_us[size] for size in longer}))

    return write


def test_a_hiccup_moves_no_constant_and_is_named(as_simulated, log, s2sim):
    results = []
    for longer in ((), (2**23,), (2**3, 2**16)):
        as_simulated(longer)
        result = run_calibration(topology="dgx-h100", logs=(str(log),))
        assert len(result.points) == 8 - len(longer)
        notes = [note for note in result.notes if "over 30 % longer than a larger message" in note]
        assert len(notes) == bool(longer)
        results.append({each.name: each.fitted for each in result.constants})
    for found in results[1:]:
        assert found == {name: pytest.approx(results[0][name], rel=0.02) for name in found}
    as_simulated((2**23,))
    _, out, _ = s2sim("collective", "log", "a.log", *MACHINE, "--library", "nccl", "--json", "-")
    compared = json.loads(out)
    assert len(compared["rows"]) == 8
    assert any("line 18 took over 30 % longer" in note for note in compared["notes"])


def test_times_that_no_cluster_reaches_and_another_collectives_bandwidths_are_refused(as_simulated, fails, s2sim):
    asked = ("a.log", *MACHINE)
    as_simulated(factor=1e-3)
    assert "and the cluster takes" in fails("dev", "calibrate", *asked)
    notes = json.loads(s2sim("collective", "log", *asked, "--json", "-")[1])["notes"]
    assert any("its times are in other units, or its links are faster" in note for note in notes)
    as_simulated(kind="all_gather")
    for command in (("dev", "calibrate"), ("collective", "log")):
        error = fails(*command, *asked)
        assert "is not 1.75 times algbw, as of all_reduce over 8 ranks: what ran" in error
        assert "what ran is all_gather or reduce_scatter or all_to_all" in error


@pytest.mark.parametrize(
    ("printed", "kind", "workers", "refused"),
    [
        (("all_reduce", 8), "all_reduce", 8, False),
        (("all_reduce", 16), "all_reduce", 8, True),
        (("all_reduce", 2), "all_reduce", 8, True),
        (("broadcast", 8), "all_gather", 8, False),  # As old versions print it
        (("broadcast", 8), "all_to_all", 8, True),
        (("reduce", 8), "broadcast", 3, False),
        (("all_gather", 128), "all_gather", 256, False),  # They differ by less than rows may be off
        (("all_gather", 8), "reduce_scatter", 8, False),
    ],
)
def test_bandwidths_are_those_of_the_collective_and_its_ranks(printed, kind, workers, refused):
    head = LOG.splitlines()[5]
    text = f"{head.partition('#wrong')[0]}#wrong\n" + rows_of(*printed, {8: 12.0, 2**20: 30.0, 2**30: 5e3})
    chosen = choose_tables(parse_nccl_tests(text, "a.log"), "a.log", kind, workers)
    with pytest.raises(S2SimError, match="what ran is") if refused else nullcontext():
        check_bus_factors(chosen)


def test_constants_that_predict_sizes_left_out_worse_than_the_shipped_are_noted(log):
    ranks = "".join(f"#  Rank  {rank} Pid 3 on node-a device {rank} [0x2b] NVIDIA H100\n" for rank in (2, 3))
    rows = [(1 << 20, 35.5), (1 << 24, 110), (1 << 30, 4700)]
    table = "".join(f"{size} 0 float sum -1 {time} 1 1 0\n" for size, time in rows)
    log.write_text(LOG.replace("NCCL version", f"{ranks}NCCL version").partition("    65536 ")[0] + table)
    result = run_calibration(topology="dgx-h100", logs=(str(log),))
    errors = f"{result.held_out.large:.3f} from 1 MiB on, with the shipped constants by {result.before.large:.3f}"
    assert result.held_out.large > result.before.large > result.after.large
    assert [note for note in result.notes if "likely worse" in note] == [
        f"points left out are off by {errors}: the fitted ones are likely worse than these there, measure more sizes"
    ]


@pytest.mark.usefixtures("log")
def test_an_interruption_ends_it(s2sim, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sim.validation.calibrate_runs.MachinePredictor.candidates", interrupt)
    assert s2sim("dev", "calibrate", "a.log", *MACHINE)[0] == 130


MADE_UP = ("", "0", "9" * 25, "-", "nan", "1e308", "inf", "\n", "\t", "#", "\x7f", "ü")


def mutated(text, drawn):
    """Return a text of which something was lost, doubled, swapped or made up."""
    for _ in range(drawn.randint(1, 4)):
        at, other = (drawn.randrange(len(text) + 1) for _ in range(2))
        first, last = sorted((at, other))
        last = min(last, first + drawn.choice((1, 5, 80)))
        made_up = drawn.choice((*MADE_UP, text[first:last] * 3))
        text = text[:first] + made_up + text[last:]
    return text


@pytest.mark.parametrize(
    ("read", "ran"), [(100, 10), pytest.param(1000, 60, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_mutated_logs_are_read_or_refused(read, ran, log):
    drawn = random.Random(7)
    spec = CalibrateSpec("dgx-h100", logs=(str(log),))
    texts = [mutated(LOG, drawn) for _ in range(read)]
    for number, text in enumerate(texts):
        log.write_text(text)
        with suppress(S2SimError):
            read_runs(spec)
            if number < ran:
                run_calibration(spec)


@pytest.mark.slow
@pytest.mark.usefixtures("other_machine")
def test_logs_that_print_other_collectives_are_fitted_together(s2sim, tmp_path):
    asked = (*MACHINE, "--workers", "16", "--library", "nccl:timing=truth.toml", "--size", "64MiB")
    (tmp_path / "gather.log").write_text(table(s2sim, "all_gather", *asked))
    assert main(["calibrate", "five.log", "gather.log", *MACHINE, "--out", "both.toml"]) == 0
    fitted = tomllib.loads((tmp_path / "both.toml").read_text())["fitted"]
    assert fitted["collectives"] == ["all_gather", "all_reduce"]
    assert len(fitted["logs"]) == 2
