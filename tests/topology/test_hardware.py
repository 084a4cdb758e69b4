"""The hardware catalogue."""

import pytest

from s2sim.errors import TopologyError, UnitError, UnknownNameError
from s2sim.topology.files.hardware import list_hardware, load_gpu, read_hardware
from s2sim.topology.files.read import read_shape


def test_catalogue():
    a100, turing = load_gpu("a100"), load_gpu("rtx-2080")
    assert (a100.memory_bandwidth_Bps, turing.memory_bandwidth_Bps) == (1555e9, 448e9)
    assert a100.stream_Bps == pytest.approx(1555e9 * a100.memory_efficiency)
    assert 10_000_000 <= a100.host_sync_ps <= 30_000_000
    assert {"a100", "v100", "h100", "h200", "b200", "rtx-2080"} <= {name for name, _, _ in list_hardware()}
    assert all(summary and source for _, summary, source in list_hardware())


def test_every_gpu_of_the_catalogue_has_what_is_optional_elsewhere():
    for name, _, _ in list_hardware():
        gpu = load_gpu(name)
        operations_while_a_byte_passes = 1 / gpu.flops_s(1) / gpu.stream_Bps
        assert 5 < operations_while_a_byte_passes < 50
        assert gpu.host_ps(10) == 10_500


def test_passes_explain_the_published_timings():
    gpu = load_gpu("rtx-2080")
    table_bytes = 32317 * 1024 * 4
    encode_s = gpu.dense_encode_passes * table_bytes / gpu.memory_bandwidth_Bps
    decode_s = gpu.dense_decode_passes * table_bytes / gpu.memory_bandwidth_Bps
    assert 2 * encode_s == pytest.approx(2.972e-3, rel=1e-3)
    assert 2 * decode_s == pytest.approx(7.247e-3, rel=1e-3)


OWN = """
[gpu.mine]
description = "what I have"
memory_bandwidth = { value = "2TB/s", kind = "datasheet", source = "its data sheet" }
memory_efficiency = 0.9
kernel_launch = "4us"
host_sync = "15us"
dense_encode_passes = 5
dense_decode_passes = 12
"""


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    gpu = load_gpu(str(path))
    assert (gpu.name, gpu.stream_Bps, gpu.host_sync_ps) == ("mine", 1.8e12, 15_000_000)
    assert [(item.kind, item.source) for item in gpu.quantities[:2]] == [
        ("datasheet", "its data sheet"),
        ("user", ""),
    ]
    path.write_text(OWN + OWN.replace("mine", "other"))
    with pytest.raises(TopologyError, match=r"mine.toml: 2 \[gpu.NAME\] tables were found: leave one"):
        load_gpu(str(path))
    path.write_text("[gpu]\n")
    with pytest.raises(TopologyError, match=r"mine.toml: 0 \[gpu.NAME\] tables were found"):
        load_gpu(str(path))
    with pytest.raises(TopologyError, match=r"there is no file .*none.toml"):
        load_gpu(str(tmp_path / "none.toml"))


def test_what_is_missing_in_a_file_is_named_once_it_is_needed(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    gpu = load_gpu(str(path))
    assert (gpu.flops_s(0), gpu.host_ps(0)) == (0.0, 0)
    with pytest.raises(
        TopologyError, match=r'gpu.mine.fp32_flops is missing.*add for example fp32_flops = "20TFLOP/s"'
    ):
        gpu.flops_s(1)
    with pytest.raises(TopologyError, match=r'mine.host_step is missing.*add for example host_step = "1ns"'):
        gpu.host_ps(1)
    path.write_text(OWN + 'fp32_flops = "20TFLOP/s"\nhost_step = "2ns"\n')
    with pytest.raises(TopologyError, match=r"gpu.mine.flops_efficiency is missing"):
        load_gpu(str(path)).flops_s(1)
    path.write_text(OWN + 'fp32_flops = "20TFLOP/s"\nflops_efficiency = 0.5\nhost_step = "2ns"\n')
    assert load_gpu(str(path)).flops_s(10**13) == 1.0
    assert load_gpu(str(path)).host_ps(3) == 6000


def test_a_file_that_never_ends_is_refused():
    with pytest.raises(TopologyError, match="/dev/zero"):
        load_gpu("/dev/zero")


def test_a_topology_finds_the_file_beside_it(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(OWN)
    path = tmp_path / "cluster.toml"
    path.write_text('gpu = "mine.toml"\n[node]\ngpus = 1\n[nic]\nrate = "1Gbps"\n[fabric]\nkind = "single-switch"\n')
    assert load_gpu(read_shape(path).gpu).name == "mine"
    # What stands on the command line is taken from the working directory.
    monkeypatch.chdir(tmp_path)
    assert read_shape(path, ["gpu=./mine.toml"]).gpu == "./mine.toml"


def test_refused(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown GPU 'a10'.*'a100'"):
        load_gpu("a10")
    path = tmp_path / "hardware.toml"
    good = {
        "memory_bandwidth": '"100GB/s"',
        "memory_efficiency": "0.9",
        "kernel_launch": '"5us"',
        "host_sync": '"20us"',
        "dense_encode_passes": "5",
        "dense_decode_passes": "12.0",
    }

    def read(**changes):
        lines = [f"{key} = {value}" for key, value in (good | changes).items() if value]
        path.write_text("\n".join(["[gpu.mine]", *lines]))
        return read_hardware(path)

    assert read()["mine"].dense_encode_passes == 5.0
    for changes, error, message in [
        ({"memory_efficiency": "1.2"}, TopologyError, "is a share"),
        ({"flops_efficiency": "1.2"}, TopologyError, "is a share"),
        ({"fp32_flops": '"20TB/s"'}, UnitError, "gpu.mine.fp32_flops: rate of work '20TB/s' has the unit"),
        ({"fp32_flops": '"0TFLOP/s"'}, UnitError, "out of range"),
        ({"memory_efficiency": "0"}, TopologyError, "not a positive number"),
        ({"kernel_launch": ""}, TopologyError, "gpu.mine.kernel_launch is missing"),
        ({"kernel_lunch": '"5us"'}, TopologyError, "'kernel_lunch'.*'kernel_launch'"),
        ({"host_sync": "20"}, UnitError, "gpu.mine.host_sync: 20 is not a time"),
        ({"memory_bandwidth": '"100GB"'}, UnitError, "unit 'GB'"),
    ]:
        with pytest.raises(error, match=message):
            read(**changes)
    path.write_text("gpu = 3")
    with pytest.raises(TopologyError, match=r"no \[gpu.NAME\] table"):
        read_hardware(path)
