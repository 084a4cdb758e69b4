"""Dumps of PyTorch's flight recorder and tables of OSU's benchmarks, made like those that their programs write."""

import json
import os
import pickle

import pytest

from s2sim.cli.main import main
from s2sim.errors import S2SimError
from s2sim.traffic.measured_files import read_measured

GROUPS = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}, "1": {"name": "1", "ranks": "[0, 2]"}}


def entry(name="nccl:all_reduce", sizes=((1024, 4),), out=None, dtype="Float", ms=0.5, group="0", **more):
    sizes, out = [list(each) for each in sizes], [list(each) for each in out or sizes]
    found = {
        "record_id": 7,
        "pg_id": 0,
        "process_group": (group, "default_pg"),
        "profiling_name": name,
        "time_created_ns": 1795752433120562723,
        "input_sizes": sizes,
        "input_dtypes": [dtype] * len(sizes),
        "output_sizes": out,
        "output_dtypes": [dtype] * len(out),
        "state": "completed",
        "duration_ms": ms,
        "frames": [{"name": "step", "filename": "train.py", "line": 3}],
    }
    return found | more


def dump(*entries):
    return {"version": "2.10", "comm_lib_version": "2.27.5", "pg_config": GROUPS, "entries": list(entries)}


@pytest.fixture(params=["json", "pickle"])
def write(request, tmp_path):
    """Return what writes a dump in either form."""

    def written(value):
        path = tmp_path / "nccl_trace_rank_0"
        path.write_bytes(json.dumps(value).encode() if request.param == "json" else pickle.dumps(value, 2))
        return path

    return written


def test_collectives_are_counted_as_nccl_tests_counts_them(write):
    path = write(
        dump(
            entry(ms=0.5),
            entry(ms=0.9),
            entry(ms=0.6),
            entry(sizes=((10,), (30,)), dtype="BFloat16", name="nccl:allreduce_coalesced"),
            entry("nccl:_all_gather_base", sizes=((100,),), out=((400,),), dtype="Half", group="1"),
            entry("nccl:_reduce_scatter_base", sizes=((400,),), out=((100,),)),
            entry("nccl:all_to_all", sizes=((64,),)),
            entry("nccl:send 0->1"),
            entry("nccl:all_reduce_barrier", sizes=((1,),), ms=25.0),
            entry(ms=None, sizes=((3,),)),
            entry(dtype="Quantised", sizes=((5,),)),
        )
    )
    tables = {table.collective: table for table in read_measured(path)}
    assert set(tables) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    rows = [(row.size_bytes, row.time_s, row.line) for row in tables["all_reduce"].rows]
    assert rows == [(80, pytest.approx(0.5e-3), 4), (16384, pytest.approx(0.6e-3), 1)]
    assert [table.ranks for table in tables.values()] == [4, 2, 4, 4]
    assert [tables[kind].rows[0].size_bytes for kind in ("all_gather", "reduce_scatter", "all_to_all")] == [
        800,
        1600,
        256,
    ]
    assert tables["all_reduce"].library == "NCCL 2.27.5"


def test_a_log_of_a_job_is_compared_with_the_simulation(write, capsys):
    path = write(dump(*(entry(sizes=((n,),), ms=0.2) for n in (1 << 18, 1 << 20))))
    assert main(["collective", "log", str(path), "--topology", "dgx-h100", "--library", "nccl", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["size_bytes"] for row in found["rows"]] == [1 << 20, 1 << 22]
    assert all(row["measured_s"] == pytest.approx(0.2e-3) for row in found["rows"])


def test_what_is_not_timed_says_how_to_time_it(write):
    with pytest.raises(S2SimError, match="TORCH_NCCL_ENABLE_TIMING=1"):
        read_measured(write(dump(entry(ms=None))))


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"entries": [Harmful()]}),
        pickle.dumps({"entries": bytearray(9)}, 5),
        b"\x80\x02r\xff\xff\xff\x7f.",
        b"\x80\x02}q\x00(X\x07\x00\x00\x00entriesq\x01]q\x02",
        b"\x80\x02h\x05.",
        b"\x80",
    ],
)
def test_other_pickles_make_nothing(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trace"
    path.write_bytes(data)
    with pytest.raises(S2SimError, match="no dump of the flight recorder"):
        read_measured(path)
    assert [each.name for each in tmp_path.iterdir()] == ["trace"]


@pytest.mark.slow
@pytest.mark.extra
def test_pytorch_writes_what_is_read(tmp_path):
    pytest.importorskip("torch")
    import subprocess
    import sys

    program = (
        "import os, sys, torch, torch.distributed as d\n"
        "from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json\n"
        "d.init_process_group('gloo', init_method=f'file://{sys.argv[1]}/store', rank=0, world_size=1)\n"
        "d.all_reduce(torch.ones(1000))\n"
        "open(sys.argv[1] + '/pickle', 'wb').write(_dump_fr_trace())\n"
        "open(sys.argv[1] + '/json', 'wb').write(_dump_fr_trace_json())\n"
    )
    environment = os.environ | {"TORCH_FR_BUFFER_SIZE": "100"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, env=environment, timeout=120)
    for name in ("pickle", "json"):
        # Gloo times nothing.
        with pytest.raises(S2SimError, match="no collective with a duration"):
            read_measured(tmp_path / name)


OSU = """
# OSU MPI-CUDA Allreduce Latency Test v7.0
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                       8.30              8.10              8.52         1000
[node1] Registered an eviction
16777216             8630.58           8619.50           8642.46          100
"""


def test_osu_tables(tmp_path):
    path = tmp_path / "osu.txt"
    path.write_text(OSU, "utf-8")
    (table,) = read_measured(path)
    tagged = tmp_path / "tagged.txt"
    tagged.write_text("".join(f"[1,0]<stdout>:{line}\n" for line in OSU.splitlines()), "utf-8")
    assert read_measured(tagged) == (table,)
    assert (table.collective, table.ranks) == ("all_reduce", None)
    assert [(row.size_bytes, row.time_s) for row in table.rows] == [(4, 8.3e-6), (1 << 24, pytest.approx(8630.58e-6))]


@pytest.mark.parametrize(
    ("name", "said"),
    [("Allgather", "of Allgather"), ("Barrier", "of Barrier"), ("Non-blocking Allreduce", "of Non-blocking")],
)
def test_sizes_of_parts_are_refused(tmp_path, name, said):
    path = tmp_path / "osu.txt"
    path.write_text(OSU.replace("Allreduce", name), "utf-8")
    with pytest.raises(S2SimError, match=said):
        read_measured(path)
