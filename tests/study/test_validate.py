"""Errors of predictions against measured curves: computed by hand on made-up folders."""

import csv
import importlib.util
import json
import math
import random
import re
from pathlib import Path

import pytest

from s2sim.cli.main import main
from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.errors import S2SimError
from s2sim.files import data_directory
from s2sim.libraries.constants import load_constants
from s2sim.libraries.gloo import carrier
from s2sim.traffic.log_table import hiccups
from s2sim.validation.curve import MeasuredMachine, Point, read_folder, resampled
from s2sim.validation.harness import parse_row
from s2sim.validation.validate_curves import CurvePredictor, run_validation
from s2sim.validation.validate_iterations import validate_iterations

from .iterations_folder import iteration, write_iterations
from .validation_folder import row, write_folder

MIB = 2**20
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    """Return what makes the page."""
    spec = importlib.util.spec_from_file_location("make_fidelity", ROOT / "docs" / "make_fidelity.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def ring_us(size_bytes, ranks=2, rate_Bps=12.5e9, way_us=1.0):
    """Return microseconds of a ring over nodes of one GPU: 2 x 350 ns of interfaces, 2 x 150 ns of links."""
    return 2 * (ranks - 1) * (way_us + size_bytes / ranks / rate_Bps * 1e6)


def mpi_us(size_bytes):
    """Return microseconds of MPI's ring of two hosts: messages of half the size, half of which are added."""
    constants = load_constants("mpi")
    network = carrier(constants, "ib-verbs")
    part = size_bytes / 2
    wait_us = (
        part / constants[f"{network}.copy"] * 1e6
        if part < constants[f"{network}.eager"]
        else constants[f"{network}.rendezvous"] / 1e6
    )
    way_us = 1.0 + constants[f"{network}.latency"] / 1e6 + wait_us + part / 2 / constants["memory.add"] * 1e6
    return constants["call.latency"] / 1e6 + ring_us(
        size_bytes, rate_Bps=12.5e9 * constants[f"{network}.share"], way_us=way_us
    )


def points(*pairs):
    """Return points whose times are those of a ring of two hosts, times a factor."""
    return [(size, mpi_us(size) * factor) for size, factor in pairs]


@pytest.fixture
def predicted_us(tmp_path, monkeypatch):
    """Return what predicts the microseconds of one size on the machine of a row, or with another library."""

    def predict(size, profile=None, **cells):
        place = tmp_path / f"curve{len(list(tmp_path.iterdir()))}"
        (curve,) = read_folder(write_folder(place, (row(**cells), [(size, 1)])))
        with monkeypatch.context() as patch:
            if profile is not None:
                patch.setattr("s2sim.validation.validate_curves.machine_library", lambda _machine: profile)
            return CurvePredictor().times_s(curve.machine, [size])[0] * 1e6

    return predict


@pytest.fixture
def folder(tmp_path):
    """Two sources: one with two curves, predicted twice too fast and exactly at large sizes; one 1.5 times too slow."""
    return write_folder(
        tmp_path / "curves",
        (row(id="a1"), points((MIB, 2), (2 * MIB, 2), (4 * MIB, 3), (1024, 4), (2048, 1))),
        (row(id="a2"), points((MIB, 1), (2 * MIB, 1))),
        (row(id="b", system="there"), points((8 * MIB, 1 / 1.5))),
        (row(id="odd", doubt="two rows contradict"), points((MIB, 5))),
        (row(id="bad", quality="suspect"), points((MIB, 7))),
        (row(id="what", collective="shuffle"), points((MIB, 1))),
    )


def test_errors_are_those_computed_by_hand(folder):
    result = run_validation(str(folder), fit=False)
    a1, a2, b, odd, bad, what = result.curves
    assert [a1.n_points, a1.median_abs_log_error_large, a1.signed_log_error_large] == [
        5,
        pytest.approx(math.log(2), abs=1e-6),
        pytest.approx(-math.log(2), abs=1e-6),
    ]
    # The median of ln 4 and 0.
    assert a1.median_abs_log_error_small == pytest.approx(math.log(4) / 2, abs=1e-6)
    assert a2.median_abs_log_error_large == pytest.approx(0, abs=1e-6)
    assert a2.median_abs_log_error_small is None
    assert b.signed_log_error_large == pytest.approx(math.log(1.5), abs=1e-6)
    assert (odd.doubt, bad.quality, what.predicted) == ("two rows contradict", "suspect", False)
    assert "collective 'shuffle'" in what.reason
    large, small = result.overall.large, result.overall.small
    assert (result.overall.curves, result.overall.predicted, large.curves, small.curves) == (4, 3, 3, 1)
    assert large.median == pytest.approx(math.log(1.5), abs=1e-6)
    # Nine tenths of the way from the second to the third would be 0.8 of it.
    assert large.p90 == pytest.approx(math.log(1.5) + 0.8 * (math.log(2) - math.log(1.5)), abs=1e-6)
    assert large.bias == pytest.approx(0, abs=1e-6)
    assert large.off_by_half == 1
    # One voice a source: the median of ln 2 / 2 and ln 1.5.
    assert large.one_voice.sources == 2
    assert large.one_voice.median == pytest.approx((math.log(2) / 2 + math.log(1.5)) / 2, abs=1e-6)
    assert large.one_voice.low == pytest.approx(math.log(2) / 2, abs=1e-6)
    assert large.one_voice.high == pytest.approx(math.log(1.5), abs=1e-6)
    assert small.one_voice.low is None
    assert [group.name for group in result.by_source] == ["here", "there"]
    assert result.apart.doubtful.large.median == pytest.approx(math.log(5), abs=1e-6)
    assert result.apart.suspect.large.median == pytest.approx(math.log(7), abs=1e-6)


def test_hiccups_of_the_public_index_are_those_by_its_rule():
    public = [curve for curve in read_folder(data_directory("measured/curves")) if curve.machine is not None]
    assert len(public) > 100
    for curve in public:
        sizes = [point.size_bytes for point in curve.points]
        late = hiccups(sizes, [point.measured_s for point in curve.points])
        assert [size for size, is_late in zip(sizes, late, strict=True) if is_late] == [
            *curve.machine.outlier_sizes_bytes
        ]


def test_sizes_are_resampled_to_powers_of_two():
    sizes = [1, 3, 800, 900, 1100, 1300, 1536, 2_000_000, 2_100_000, 4 * MIB]
    found = resampled(tuple(Point(size, 1.0) for size in sizes), dropped=(4 * MIB,))
    assert [point.size_bytes for point in found] == [1, 1100, 2_100_000]
    assert [p.size_bytes for p in resampled((Point(819, 1.0), Point(1229, 1.0)))] == []
    assert [p.size_bytes for p in resampled((Point(820, 1.0), Point(1228, 1.0)))] == [820]


@pytest.mark.parametrize(
    ("cells", "expected_us"),
    [
        ({}, ring_us(64 * MIB)),
        # Four interfaces of a node with one GPU carry what they carry together.
        ({"nics_per_node": "4"}, ring_us(64 * MIB, rate_Bps=50e9)),
        # PCIe 3.0 of a T4 is narrower, and adds 250 ns at each end.
        ({"gpu_model": "Tesla T4"}, ring_us(64 * MIB, rate_Bps=12e9, way_us=1.5)),
        # 48 nodes do not fit below one switch: two more lie on a way.
        ({"nodes": "48", "ranks": "48"}, ring_us(64 * MIB, ranks=48, way_us=1.3)),
        # Half of a ping-pong is one message.
        ({"collective": "p2p_latency", "algorithm": ""}, 1 + 64 * MIB / 12.5e9 * 1e6),
        # 18 links of 20.6 GB/s through an NVSwitch, two ports of 250 ns.
        (
            {"gpu_model": "H100-80GB-HBM3", "gpus_per_node": "8", "nodes": "1", "ranks": "8"}
            | {"nvlink_domain_gpus": "8", "transport": "none"},
            ring_us(64 * MIB, ranks=8, rate_Bps=370.8e9, way_us=0.5),
        ),
        # Six NVLinks 4 to each of two others of four GPUs, through which rings run that share none.
        (
            {"gpu_model": "H100 SXM5 (94GB)", "gpus_per_node": "4", "nodes": "1", "ranks": "3"}
            | {"nvlink_domain_gpus": "4", "transport": "none"},
            ring_us(64 * MIB, ranks=3, rate_Bps=12 * 20.6e9, way_us=0.4),
        ),
        # A rack is one node of all ranks.
        (
            {"gpu_model": "GB200", "gpus_per_node": "4", "nodes": "18", "ranks": "72"}
            | {"nvlink_domain_gpus": "72", "transport": "none"},
            ring_us(64 * MIB, ranks=72, rate_Bps=721.8e9, way_us=0.5),
        ),
    ],
)
def test_machines_follow_from_their_rows(cells, expected_us, predicted_us):
    assert predicted_us(64 * MIB, NO_OVERHEADS, **cells) == pytest.approx(expected_us, rel=1e-6)


def test_what_the_library_adds_comes_with_the_row(predicted_us):
    """The smallest ring of two nodes of a GPU: a launch, and two hops of network and PCIe with the protocol LL."""
    constants = load_constants("nccl")
    added_us = (constants["launch.collective"] + 2 * constants["network.ib-verbs.latency"]) / 1e6
    assert predicted_us(8, gpu_model="A10") == pytest.approx(added_us + 2 * 1.5, rel=1e-3)
    cells = {"gpu_model": "A100", "gpus_per_node": "8", "nodes": "1", "nvlink_domain_gpus": "8", "transport": "none"}
    cells |= {"ranks": "8", "nccl_version": "2.21.5"}
    times = [predicted_us(8, **cells, launch=launch) for launch in ("gpu", "node")]
    assert times[0] < times[1] == pytest.approx(8 * (constants["launch.gpu"] + constants["launch.channel"]) / 1e6)
    cells["nccl_version"] = "2.22.3"
    assert predicted_us(8, **cells, launch="node") == pytest.approx(8 * constants["launch.gpu"] / 1e6)


def test_what_a_row_says_of_the_library_is_taken(predicted_us):
    """The smallest ring of two takes two hops with the protocol named; one version lacks what another sends with."""
    constants = load_constants("nccl")
    boards = {"gpu_model": "A100", "gpus_per_node": "8", "nodes": "1", "nvlink_domain_gpus": "8", "transport": "none"}
    low_latency_us, simple_us = (predicted_us(8, gpu_model="A10", protocol=name) for name in ("", "Simple"))
    later = 2 * (constants["protocol.Simple.network"] - constants["protocol.LL.network"])
    assert simple_us - low_latency_us == pytest.approx((later + constants["protocol.Simple.launch"]) / 1e6, rel=1e-3)
    old_us, new_us = (predicted_us(4 << 20, **boards, ranks="8", nccl_version=text) for text in ("2.4.8", "2.5.6"))
    assert new_us < old_us


@pytest.mark.parametrize(("cells", "library"), [({"gpu_model": "MI300X"}, "rccl"), ({"gpu_model": "A10"}, "nccl")])
def test_which_library_runs_follows_from_the_gpu(cells, library, predicted_us):
    """A launch and two hops with the protocol LL; the network is that of NCCL."""
    constants = load_constants(library)
    added_us = (constants["launch.collective"] + 2 * constants["network.ib-verbs.latency"]) / 1e6
    found = predicted_us(8, **cells, nvlink_domain_gpus="", intra_interconnect="PCIe")
    assert found == pytest.approx(added_us + 2 * 1.5, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "version", "library"),
    [("none (CPU buffers)", "Open MPI 5", "mpi"), ("None", "Gloo (PyTorch 2.3)", "gloo")],
)
def test_which_library_runs_between_hosts_follows_from_its_version(model, version, library, predicted_us):
    cells = {"gpu_model": model, "nccl_version": version, "collective": "p2p_latency", "algorithm": ""}
    constants = load_constants(library)
    network = carrier(constants, "tcp")
    expected_us = (constants["call.latency"] + constants[f"{network}.latency"]) / 1e6 + 1.2
    assert predicted_us(1, **cells, transport="tcp") == pytest.approx(expected_us, abs=0.2)


@pytest.mark.parametrize(
    ("collective", "parts"),
    # Three of four parts come to the one interface of the root, or leave it; 64 messages follow each other.
    [("gather", 3 / 4), ("scatter", 3 / 4), ("p2p_bandwidth", 1), ("bandwidth", 1), ("latency", 1)],
)
def test_benchmarks_count_in_their_own_way(collective, parts, predicted_us):
    found_us = predicted_us(64 * MIB, NO_OVERHEADS, collective=collective, algorithm="", ranks="4", nodes="4")
    assert found_us == pytest.approx(parts * 64 * MIB / 12.5e9 * 1e6, rel=1e-3)


@pytest.mark.parametrize(
    ("algorithm", "collective"),
    [("ring", "broadcast"), ("ring", "alltoall"), ("tree", "alltoall"), ("nvls", "all_gather"), ("pat", "all_gather")],
)
def test_an_algorithm_is_forced_where_a_collective_has_it(algorithm, collective, predicted_us):
    cells = {"gpu_model": "A10", "algorithm": algorithm, "collective": collective, "ranks": "4", "nodes": "4"}
    assert predicted_us(MIB, **cells) > 0


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(({name: text}, {}) for name in ("path", "min_channels", "qps", "p2p") for text in ("unknown", "N/A", "-")),
        *(({"launch": text}, {"launch": ""}) for text in ("unknown", "?")),
        ({"launch": "Node"}, {"launch": "node"}),
        ({"quality": ""}, {}),
        ({"quality": "unknown"}, {}),
        ({"quality": "Suspect"}, {"quality": "suspect"}),
        ({"doubt": "no"}, {}),
        ({"doubt": "None"}, {}),
        ({"algorithm": "Ring"}, {}),
        ({"algorithm": "unknown"}, {"algorithm": ""}),
        ({"algorithm": "NVLS-Tree"}, {"algorithm": "nvlstree"}),
        ({"protocol": "simple"}, {"protocol": "Simple"}),
        *(({"collective": text}, {}) for text in ("AllReduce", "all-reduce", "all_reduce_perf")),
        ({"collective": "alltoall_perf", "algorithm": ""}, {"collective": "alltoall", "algorithm": ""}),
        *(({"transport": text}, {}) for text in ("IB", "InfiniBand", "rdma", "IB-verbs")),
        ({"transport": "RoCEv2"}, {"transport": "roce"}),
        ({"transport": "Ethernet"}, {"transport": "tcp"}),
        ({"transport": "unknown"}, {"transport": ""}),
        ({"nvlink_domain_gpus": "n/a"}, {"nvlink_domain_gpus": ""}),
        *(({"outlier_sizes_bytes": text}, {"outlier_sizes_bytes": "8 16"}) for text in ("8 16 ...", "8;16", "8, 16")),
        ({"outlier_sizes_bytes": "..."}, {}),
        ({"nics_per_node": "", "nic_rate_gbps": "unknown"}, {"nics_per_node": "0", "nic_rate_gbps": "0"}),
    ],
)
def test_cells_are_read_as_people_write_them(written, meant):
    assert parse_row(MeasuredMachine, row() | written) == parse_row(MeasuredMachine, row() | meant)


def test_a_node_of_its_own_needs_no_interface(predicted_us):
    cells = {"gpu_model": "A100", "gpus_per_node": "8", "nodes": "1", "nvlink_domain_gpus": "8", "ranks": "8"}
    blank = {"nics_per_node": "", "nic_rate_gbps": "", "transport": ""}
    assert predicted_us(MIB, **cells, **blank) == predicted_us(MIB, **cells, transport="none")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu_model": "TPU v4"}, "GPU 'TPU v4' is not in the hardware catalogue"),
        ({"transport": "carrier-pigeon"}, "transport 'carrier-pigeon'"),
        ({"algorithm": "star"}, "algorithm 'star'"),
        ({"algorithm": "a" * 101}, "column algorithm: '" + "a" * 40 + "': string should have at most 100"),
        ({"nics_per_node": "0"}, "nics_per_node or nic_rate_gbps is 0"),
        ({"nic_rate_gbps": ""}, "nics_per_node or nic_rate_gbps is 0 or not given"),
        ({"collective": ""}, "column collective: ''"),
        ({"ranks": "1"}, "one rank has nothing to send"),
        ({"ranks": "5"}, "5 ranks do not fit on 2 nodes of 1 GPUs"),
        ({"nodes": "9999", "ranks": "9999"}, "takes too long"),
        ({"gpu_model": "A100", "gpus_per_node": "8", "ranks": "16", "nvlink_domain_gpus": "7"}, "no board of 7 A100"),
        ({"gpu_model": "GB200", "gpus_per_node": "4", "ranks": "8"}, "what joins 4 GB200 without NVLink"),
        ({"collective": "all_gather", "algorithm": "tree"}, "double-binary-tree does not run all_gather"),
        ({"gpu_model": "A10", "protocol": "LL256"}, "protocol 'LL256'"),
        ({"min_channels": "0"}, "column min_channels: '0'"),
        ({"collective": "gather", "nodes": "1025", "ranks": "1025", "algorithm": ""}, "1025 ranks is more than 1024"),
        ({"nodes": "zwei"}, "index.csv, row 2, column nodes: 'zwei'"),
        ({"nic_rate_gbps": "nan"}, "column nic_rate_gbps: 'nan'"),
    ],
)
def test_what_is_not_known_is_not_predicted(cells, reason, tmp_path):
    folder = write_folder(tmp_path / "one", (row(**cells), points((MIB, 1))))
    (curve,) = run_validation(str(folder), fit=False).curves
    assert not curve.predicted
    assert reason in curve.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("size_bytes,time_us\n8,1\n16,-2\n", "pair.csv, row 3, column time_us: '-2'"),
        ("size_bytes,time_us\n8,1e-320\n", "row 2, column time_us: '1e-320': input should be greater"),
        ("size_bytes,time_us\n8,nan\n", "row 2, column time_us: 'nan': input should be a finite number"),
        ("size_bytes,time_us\n8,\n", "row 2, column time_us: '': input should be a valid number"),
        ("size_bytes,time_us\n8\n", "row 2: it has 1 cells and the header 2 columns"),
        ("size_bytes,time_ms\n8,1\n", "no column 'time_us' (did you mean 'time_ms'?"),
        ("size_bytes," + "t" * 99 + "\n8,1\n", "(known: size_bytes, " + "t" * 40 + ")"),
        ("size_bytes,time_us\n", "has no point"),
        ("size_bytes,time_us\n8.5,1\n", "column size_bytes: '8.5': input should be a multiple of 1"),
        ('size_bytes,time_us\n"8,1\n', "pair.csv, row 2"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(text, reason, tmp_path):
    folder = write_folder(tmp_path / "one", (row(), []))
    (folder / "pair.csv").write_text(text)
    (curve,) = run_validation(str(folder), fit=False).curves
    assert not curve.predicted
    assert reason in curve.reason


def named_again(folder, name):
    """Give the second curve of a folder's index another name."""
    text = (folder / "index.csv").read_text()
    (folder / "index.csv").write_text(text.replace("\nother,", f"\n{name},"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "names no file of the folder") for name in ("../pair", "", ".", "a/b", ".hidden", "n" * 201)),
        ("pair", "stands in row 2 too"),
    ],
)
def test_a_name_that_leads_elsewhere_or_comes_again_is_not_predicted(name, reason, tmp_path):
    curves = [(row(**cells), points((MIB, 1))) for cells in ({}, {"id": "other"}, {"id": "last"})]
    folder = write_folder(tmp_path / "one", *curves)
    named_again(folder, name)
    first, named, last = run_validation(str(folder), fit=False).curves
    assert [curve.predicted for curve in (first, named, last)] == [True, False, True]
    assert (named.id, named.reason) == ("index.csv, row 3", f"column id: {name[:40]!r} {reason}")


def test_an_index_that_is_no_text_is_refused(tmp_path):
    folder = write_folder(tmp_path / "one", (row(), []), (row(id="other"), []))
    named_again(folder, "x\0y")
    with pytest.raises(S2SimError, match="not text"):
        read_folder(folder)


def test_rows_that_cannot_be_read_count_apart(tmp_path, capsys):
    damaged = ({"launch": "xx"}, {"quality": "whatever"}, {"ranks": "two"})
    curves = [row(), *(row(id=f"odd{number}", system="there", **cells) for number, cells in enumerate(damaged))]
    folder = write_folder(tmp_path / "curves", *((cells, points((MIB, 1))) for cells in curves))
    result = run_validation(str(folder), fit=False)
    assert result.what == "1 curves of 1 sources in curves"
    assert [result.apart.doubtful.curves, result.apart.suspect.curves, result.apart.unreadable.curves] == [0, 0, 3]
    assert [item.group.name for item in result.by_class if item.kind == "launch"] == ["gpu"]
    assert main(["dev", "validate", str(folder), "--no-fit"]) == 0
    out = capsys.readouterr().out
    assert "apart: doubtful or suspect" not in out
    assert "cannot be read     0/3" in out
    for part in ("launch: 'xx'", "quality: 'whatever'", "ranks: 'two'"):
        assert len(re.findall(f"Not predicted: odd.*{part}", out)) == 1


def test_software_without_a_version_is_that_of_its_date(tmp_path):
    """Sources name it in prose, such as "NGC 25.04 container"."""
    named = ("", "as it came", "container of the vendor")
    folder = write_folder(
        tmp_path / "curves", *((row(id=f"c{at}", nccl_version=text), points((MIB, 1))) for at, text in enumerate(named))
    )
    predicted = {curve.points[0].predicted_s for curve in run_validation(str(folder), fit=False).curves}
    assert len(predicted) == 1


@pytest.mark.parametrize(
    ("cells", "factor", "why"),
    [
        ({}, 2, "another share of the rate"),
        ({"transport": "tcp"}, 20, "its software"),
        ({"path": "staged"}, 2, "(staged)"),
        ({"gpu_model": "H100", "intra_interconnect": "NVSwitch (NVLink4)"}, 0.01, "NVLS"),
    ],
)
def test_why_a_prediction_is_off_comes_from_its_row(cells, factor, why, tmp_path):
    more = {"gpus_per_node": "8", "ranks": "16", "nvlink_domain_gpus": "8"} if "gpu_model" in cells else {}
    folder = write_folder(tmp_path / "one", (row(**more, **cells), points((MIB, factor))))
    (curve,) = run_validation(str(folder), fit=False).curves
    assert curve.predicted
    assert why in curve.likely_why[0]


def test_an_index_that_cannot_be_read_is_one_line(folder, tmp_path, capsys):
    (folder / "index.csv").write_text("id,nodes\na,1\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "index.csv").touch()
    for bad, text in (
        (tmp_path / "empty", "index.csv is empty"),
        (folder, "no column 'gpu_model'"),
        (tmp_path / "no", "is no directory"),
        (tmp_path, "cannot read"),
    ):
        assert main(["dev", "validate", str(bad)]) == 2
        err = capsys.readouterr().err
        assert text in err
        assert err.count("\n") == 1


def test_the_command_shows_and_writes_the_same(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page, file = tmp_path / "page.html", tmp_path / "errors.json"
    assert main(["dev", "validate", str(folder), "--no-fit", "--html", str(page), "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "3 of 4 good curves without a doubt are predicted" in out
    assert "Not predicted: what:" in out
    assert "Errors are |ln(predicted/measured)|" in out
    value = json.loads(file.read_text())
    assert [curve["id"] for curve in value["curves"]] == ["a1", "a2", "b", "odd", "bad", "what"]
    assert value["overall"]["large"]["one_voice"]["sources"] == 2
    assert value["provenance"]["inputs"]["curves"]["folder"] == "curves"
    html = page.read_text()
    charts = json.loads(re.search('id="data">(.*?)</script>', html)[1])
    shown = {chart["title"].partition(": ")[2]: chart for chart in charts}
    curves = {curve["id"]: curve for curve in value["curves"] if curve["predicted"]}
    assert set(shown) == set(curves) >= {"a1", "a2", "b"}
    for chart, curve in ((shown[name], curve) for name, curve in curves.items()):
        measured, predicted = ([[x, y] for x, y, _ in series["points"]] for series in chart["series"])
        assert measured == [[point["size_bytes"], point["measured_s"]] for point in curve["points"]]
        assert predicted == [[point["size_bytes"], point["predicted_s"]] for point in curve["points"]]
    assert not re.search("<(link|img)|(src|@import|url)[=(][\"']?http", html)


def test_interrupted_validation_keeps_what_is_finished(folder, capsys, monkeypatch):
    real, calls = CurvePredictor.times_s, []

    def times_s(self, machine, sizes):
        calls.append(machine.id)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, machine, sizes)

    monkeypatch.setattr(CurvePredictor, "times_s", times_s)
    assert main(["dev", "validate", str(folder), "--no-fit", "--json", "-"]) == 130
    value = json.loads(capsys.readouterr().out)
    assert not value["complete"]
    assert [curve["predicted"] for curve in value["curves"]] == [True, True, False, False, False, False]
    assert value["curves"][2]["reason"] == "interrupted before it was its turn"


def test_public_curves_are_shipped_with_their_origin():
    curves = read_folder(data_directory("measured/curves"))
    assert len(curves) == 120
    assert not [curve.problem for curve in curves if curve.problem]
    assert all(curve.machine.source_url for curve in curves)
    files = {path.stem for path in data_directory("measured/curves").glob("*.csv")} - {"index"}
    assert files == {curve.id for curve in curves}


def test_the_page_on_fidelity_is_made_of_what_the_command_says(folder, script, tmp_path):
    iterations = validate_iterations(str(write_iterations(tmp_path / "iterations", iteration())))
    made = script.page(run_validation(str(folder), fit=False), iterations)
    assert "1 iterations of 1 sources in iterations" in made
    assert "| a1 | 5 | 0.69 | -0.69 | 0.69 | -0.69 |" in made
    page = script.PAGE.read_text("utf-8")
    for part in (script.HEAD, script.LIMITS, script.LEGEND, script.ITERATIONS):
        assert part in page, "run python docs/make_fidelity.py"
    names = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]
    assert {curve.id for curve in read_folder(data_directory("measured/curves"))} <= set(names)


@pytest.mark.slow
def test_the_page_on_fidelity_is_up_to_date(script, one_validation):
    curves, iterations = (validate() for validate in one_validation)
    assert script.PAGE.read_text("utf-8") == script.page(curves, iterations), "run python docs/make_fidelity.py"


def mutated(text, draw):
    """Return a CSV text with one thing wrong."""
    rows = list(csv.reader(text.splitlines()))
    line = draw.randrange(len(rows))
    column = draw.randrange(len(rows[line]))
    junk = ["", "nan", "-1", "inf", "1e999", "0", "99999999999999999999", "\x00", '"', "é", "9" * 5000, "[0,1]", "None"]
    kind = draw.randrange(5)
    if kind == 0:
        rows[line][column] = draw.choice(junk)
    elif kind == 1:
        del rows[line][column]
    elif kind == 2:
        del rows[line]
    elif kind == 3:
        rows.insert(line, draw.choice([[], ["x"], rows[line]]))
    else:
        other = draw.randrange(len(rows[line]))
        rows[line][column], rows[line][other] = rows[line][other], rows[line][column]
    made = "\n".join(",".join(cells) for cells in rows)
    return made[: draw.randrange(len(made) + 1)] if draw.random() < 0.1 else made


@pytest.mark.slow
def test_mutated_folders_are_refused_or_not_predicted(tmp_path):
    draw = random.Random(0)
    public = data_directory("measured/curves")
    header, *lines = (public / "index.csv").read_text("utf-8").splitlines()
    refused = unpredicted = 0
    for number in range(400):
        line = draw.choice(lines)
        # Of the public curves those that take no second.
        if int(next(csv.reader([line]))[6]) > 64:
            continue
        name = line.partition(",")[0]
        folder = tmp_path / str(number)
        folder.mkdir()
        table, index = (public / f"{name}.csv").read_text(), f"{header}\n{line}\n"
        which = draw.random() < 0.7
        (folder / "index.csv").write_text(mutated(index, draw) if which else index)
        (folder / f"{name}.csv").write_text(table if which else mutated(table, draw))
        try:
            result = run_validation(str(folder), fit=False)
        except S2SimError:
            refused += 1
        else:
            unpredicted += sum(not curve.predicted and bool(curve.reason) for curve in result.curves)
    assert refused > 20
    assert unpredicted > 20
