"""JSON and CSV of benchmarks, made like those that their programs write."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.cli.main import main
from s2sim.errors import S2SimError
from s2sim.traffic.measured_files import read_measured

SIZES = [1024, 4096, 1 << 20]


def nccl_json(program="./build/all_reduce_perf", processes=2, threads=1, gpus=4, **changes):
    """Return what ``all_reduce_perf -J`` writes: of each process only its first GPU is listed."""

    def way(us):
        return {"time": us, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": 0.0}

    devices = [
        {
            "rank": p * threads * gpus,
            "group": 0,
            "pid": 7,
            "hostname": f"host{p}",
            "device": 0,
            "device_info": "NVIDIA H100",
        }
        for p in range(processes)
    ]
    results = [
        {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": way(10.0 + at),
        }
        | {"in_place": way(20.0 + at), "actual_iterations": 20, "experiment_name": ""}
        for at, size in enumerate(SIZES)
    ]
    config = {
        "nthreads": threads,
        "ngpus": gpus,
        "minimum_bytes": 1024,
        "blocking_collectives": "false",
        "devices": devices,
    }
    made = {"version": 3, "start_time": "now", "args": [program, "-b", "1K"], "env": ["A=1"], "nccl_version": 22705}
    return made | {"config": config, "results": results, "average_bus_bandwidth": {"bandwidth": 1.0}} | changes


def rccl_rows(name="AllReduce", mpi=True):
    where = {"nodes": 2, "ranks": 16, "ranksPerNode": 8, "gpusPerRank": 1} if mpi else {"gpus": 8}
    return [
        {"numCycle": 0, "name": name, **where, "size": size, "type": "float", "redop": "sum", "inPlace": in_place}
        | {"time": 10.0 + at + 10 * in_place, "algBw": 1.0, "busBw": 1.0, "wrong": "0"}
        for at, size in enumerate(SIZES)
        for in_place in (0, 1)
    ]


def rccl_csv(rows):
    """Return it as its `Reporter` writes it: other names in the header, texts in quotation marks."""
    out = io.StringIO()
    titles = {"name": "collective", "inPlace": "inplace", "algBw": "algbw", "busBw": "busbw", "wrong": "#wrong"}
    out.write(",".join(titles.get(key, key) for key in rows[0]) + "\n")
    for row in rows:
        out.write(",".join(f'"{value}"' if isinstance(value, str) else str(value) for value in row.values()) + "\n")
    return out.getvalue()


@pytest.fixture
def read(tmp_path):
    def read(text, **options):
        path = tmp_path / "measured.any"
        path.write_text(text if isinstance(text, str) else json.dumps(text), "utf-8")
        return read_measured(path, **options)

    return read


def points(table):
    return [(row.size_bytes, round(row.time_s * 1e6, 6)) for row in table.rows]


@pytest.mark.parametrize(("threads", "gpus", "ranks"), [(1, 4, 8), (2, 4, 16), (1, 1, 2)])
def test_json_of_nccl_tests(read, threads, gpus, ranks):
    (table,) = read(nccl_json(threads=threads, gpus=gpus))
    assert (table.collective, table.ranks, table.hosts, table.gpus) == ("all_reduce", ranks, 2, ("NVIDIA H100",))
    assert (table.gpus_per_thread, table.library) == (gpus, "NCCL 2.27.5")
    assert points(table) == [(1024, 10), (4096, 11), (1 << 20, 12)]
    assert [row.wrong for row in table.rows] == [0, 0, 0]
    assert points(read(nccl_json(), in_place=True)[0]) == [(1024, 20), (4096, 21), (1 << 20, 22)]


def test_json_of_processor_times_and_of_what_was_not_measured(read):
    value = nccl_json("alltoall_perf_mpi")
    value["results"][0]["out_of_place"] = None
    value["results"][1]["out_of_place"] = {"cpu_time": 5.0, "alg_bw": "nan", "bus_bw": "nan", "nwrong": None}
    value["results"][2]["out_of_place"]["time"] = "nan"
    (table,) = read(value)
    assert (table.collective, points(table)) == ("all_to_all", [(4096, 5)])
    value["results"][1]["out_of_place"] = None
    with pytest.raises(S2SimError, match="no row with an out-of-place time"):
        read(value)


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("mpi", [True, False])
def test_json_and_csv_of_rccl_tests(read, form, mpi):
    rows = [*rccl_rows(mpi=mpi), *rccl_rows("AlltoAll", mpi)]
    first, second = read(rows if form == "json" else rccl_csv(rows))
    assert (first.collective, second.collective, first.library) == ("all_reduce", "all_to_all", "RCCL")
    assert (first.ranks, first.hosts) == ((16, 2) if mpi else (None, 0))
    assert points(first) == points(second) == [(1024, 10), (4096, 11), (1 << 20, 12)]
    assert [row.wrong for row in first.rows] == [0, 0, 0]
    (in_place, _) = read(rows, in_place=True)
    assert points(in_place) == [(1024, 20), (4096, 21), (1 << 20, 22)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON of nccl-tests or rccl-tests"),
        ("{}", "results"),
        ('{"results": [{"size": -1}]}', "greater than or equal to 0"),
        ('{"results": [{"size": 1e30}]}', "results"),
        ('[{"name": "AllReduce"}]', "size"),
        ("[" * 100_000, "is no JSON"),
        ('{"results": [{"size": 8, "out_of_place": {"time": 1e300}}]}', "less than or equal to"),
        ("numCycle,collective,size,inplace,time\n0,AllReduce,many,0,1\n", "row 2, column size: 'many'"),
        ("numCycle,size\n", "has no column 'collective'"),
        ("# simulated by s2sim 0.1.0, not measured\n", "was simulated by s2sim, as its first line says"),
    ],
)
def test_what_is_no_measurement_is_one_line(read, text, said):
    with pytest.raises(S2SimError, match=said.replace("[", "\\[")) as caught:
        read(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [nccl_json, rccl_rows, lambda: rccl_csv(rccl_rows())])
@given(data=st.data())
def test_damage_is_a_table_or_one_line(tmp_path_factory, make, data):
    made = make()
    text = made if isinstance(made, str) else json.dumps(made)
    at = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", "9" * 400, "null", "[", '"', "-1", "1e999", ",", "\x00", "\u2028"]))
    path = tmp_path_factory.mktemp("damaged") / "measured"
    path.write_text(text[:at] + put + text[at + data.draw(st.integers(0, 20)) :], "utf-8")
    try:
        found = read_measured(path)
    except S2SimError as error:
        said = str(error)
    else:
        said = ""
        assert all(table.rows for table in found)
    assert "\n" not in said


def test_calibration_and_comparison_take_json(tmp_path, capsys):
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(nccl_json()), "utf-8")
    assert main(["collective", "log", str(file), "--topology", "dgx-h100", "--library", "nccl", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["size_bytes"], round(row["measured_s"] * 1e6)) for row in rows] == [
        (1024, 10),
        (4096, 11),
        (1 << 20, 12),
    ]
    machine = ("--topology", "dgx-h100", "--set", "node.gpus=4")
    assert main(["dev", "calibrate", str(file), *machine, "--suggest"]) == 0
    assert "all_reduce" in capsys.readouterr().out


def test_what_a_spreadsheet_writes_of_it_is_read(read):
    out = io.StringIO()
    rows = list(csv.reader(io.StringIO(rccl_csv(rccl_rows()))))
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    text = out.getvalue().replace('"numCycle"', "numCycle", 1)
    assert points(read(text)[0]) == [(1024, 10), (4096, 11), (1 << 20, 12)]
