"""Which GPU and library a cluster runs: what is asked for, what its topology says, or what is usual."""

import warnings
from pathlib import Path

import pytest

import s2sim
from s2sim.errors import S2SimWarning, UnknownNameError
from s2sim.experiment.scenario.cluster import resolve_machines
from s2sim.topology.hardware import load_gpu
from s2sim.topology.read_file import list_topologies, load_shape
from s2sim.traffic.collective_run import run_collective

SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"
SILENT = Path(__file__).parents[1] / "silent.toml"


def run(topology="fat-tree", **options):
    return s2sim.run(topology, workers=4, reducers=["union"], trace=SMALL, break_even=False, **options)


@pytest.mark.parametrize("name", [name for name, _, _ in list_topologies()])
def test_every_shipped_topology_says_both_and_why(name):
    shape = load_shape(name)
    machines = resolve_machines(shape, ())
    assert (machines.gpu.name, machines.library.option_string) == (shape.gpu, shape.library)
    assert machines.text.startswith(f"library {shape.library}")
    assert machines.text.endswith(f" and GPU {shape.gpu}, as {name} says")
    if shape.library != "ideal":
        assert (machines.library.profile, machines.library.unmodelled_reason(shape)) == (
            machines.library.measured,
            None,
        )
    assert {item.field for item in shape.quantities if item.source} >= {"gpu", "library"}


def test_options_win_over_fields_and_fields_over_what_is_usual(tmp_path):
    silent = resolve_machines(load_shape(SILENT), ())
    assert silent.text == "library nccl (the wire alone) and GPU a100, by default, as silent does not say"
    path = tmp_path / "own.toml"
    path.write_text(f'gpu = "h100"\nlibrary = "mpi:buffers=device"\n{SILENT.read_text()}')
    shape = load_shape(path)
    said = resolve_machines(shape, ()).text
    assert said == "library mpi:buffers=device (the wire alone) and GPU h100, as own says"
    asked = resolve_machines(shape, (), "ideal", "v100")
    assert (asked.library.name, asked.gpu, asked.text) == (
        "ideal",
        load_gpu("v100"),
        "library ideal and GPU v100, as asked for",
    )
    assert asked.real_library.option_string == "mpi:buffers=device"
    both = "library mpi:buffers=device (the wire alone), as own says; GPU v100"
    assert resolve_machines(shape, (), gpu="v100").text.startswith(both)


def test_a_run_takes_what_its_topology_says_and_tells():
    by_default, spelled_out = run(), run(library="nccl", gpu="a100")
    assert (by_default.library, by_default.gpu) == ("nccl", "a100")
    assert by_default.rows == spelled_out.rows
    assert by_default.provenance["spec_sha256"] == spelled_out.provenance["spec_sha256"]
    assert (by_default.spec.library, by_default.spec.gpu) == (None, None)
    faster = run(overrides=["gpu=h100"])
    assert faster.rows[1].time_s.encode < by_default.rows[1].time_s.encode
    assert faster.rows == run(gpu="h100").rows
    assert faster.provenance["spec_sha256"] == run(gpu="h100").provenance["spec_sha256"]


def test_the_nodes_of_a_rail_cluster_compute_as_h100():
    assert run("rail-optimised").rows == run("rail-optimised", gpu="h100").rows


def test_a_torus_without_a_library_of_its_own_shows_a_real_one_beside():
    result = run("torus")
    assert result.library == "ideal"
    assert {row.real_library for row in result.rows} == {"nccl"}


def test_what_is_unknown_is_told():
    with pytest.raises(UnknownNameError, match="unknown GPU ''"):
        run(gpu="")
    with pytest.raises(UnknownNameError, match="unknown GPU 'h10'"):
        run(overrides=["gpu=h10"])
    with pytest.raises(UnknownNameError, match=r"'ncll'.*did you mean 'nccl'"):
        run(overrides=["library=ncll"])


def test_a_library_runs_by_its_constants_where_the_topology_says_its_network():
    by_default, asked = run("dgx-h100"), run("dgx-h100", library="nccl:timing=measured")
    assert [row.time_s.total for row in by_default.rows] == [row.time_s.total for row in asked.rows]
    assert by_default.provenance["spec_sha256"] == asked.provenance["spec_sha256"]
    assert by_default.machines == (
        "library nccl (with its constants for ib-verbs, one process a GPU) and GPU h100, as dgx-h100 says"
    )
    known = by_default.provenance["inputs"]["library"]["fields"]
    assert known["network.ib-verbs.latency"].keys() == {"value", "kind", "source"}
    wire = run("dgx-h100", library="nccl:timing=wire")
    assert all(own.time_s.total < other.time_s.total for own, other in zip(wire.rows, by_default.rows, strict=True))
    assert "library" not in wire.provenance["inputs"]
    assert wire.provenance["spec_sha256"] != by_default.provenance["spec_sha256"]
    assert run("dgx-h100", library="nccl:launch=node").rows[0].time_s.total > by_default.rows[0].time_s.total


def test_a_topology_that_does_not_say_its_network_is_told_what_to_add():
    result = run(SILENT)
    note = (
        "nccl: times are those of the wire alone, because what nccl adds depends on the network, and the topology does "
        "not say which: where its latencies are those of the hardware alone, add nic.transport, one of "
    )
    assert [each for each in result.caveats if each.startswith(note)]
    for asked in ("nccl:timing=wire", "ideal"):
        assert not [each for each in run(SILENT, library=asked).caveats if "wire alone" in each]
    assert run(SILENT, overrides=["nic.transport=tcp"]).rows != result.rows
    with pytest.warns(S2SimWarning, match="launch changes nothing here: times are those of the wire alone"):
        run(SILENT, library="nccl:launch=node")
    with pytest.warns(S2SimWarning, match=r"--library nccl gives the time of the wire alone: .* add nic.transport"):
        run_collective("all_reduce", SILENT, workers=4, size_bytes=1024, library="nccl")


def test_a_field_that_decides_nothing_is_told():
    with pytest.warns(S2SimWarning, match="--set gpu=h100 changes nothing beside --gpu v100"):
        run(gpu="v100", overrides=["gpu=h100"])
    with pytest.warns(S2SimWarning, match="--set library=mpi changes nothing here"):
        run_collective("all_reduce", "fat-tree", workers=4, size_bytes=1024, overrides=["library=mpi"])


@pytest.mark.parametrize(
    ("kind", "size", "library", "warns"),
    [
        ("reduce_scatter", 1 << 20, "gloo", True),
        ("reduce_scatter", 1 << 20, "nccl", False),
        ("all_gather", (1 << 20, 2 << 20, 1 << 20), "nccl", True),
        ("all_reduce", 1 << 20, "gloo", False),
    ],
)
def test_a_collective_that_a_library_runs_otherwise_says_so(kind, size, library, warns):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run_collective(kind, "tcp-10g", workers=3, size_bytes=size, library=library)
    assert any(f"{library} runs {kind}" in str(each.message) for each in found) == warns
