"""The hardware catalogue."""

from contextlib import nullcontext

import pytest

from s2sim.errors import S2SimWarning, TopologyError, UnitError, UnknownNameError
from s2sim.topology.hardware import find_gpu_links, gpu_links, load_gpu, read_hardware, shipped_tables
from s2sim.topology.read_file import PARTS, find_part, list_parts, load_shape
from s2sim.topology.shape import TRANSPORTS, usual_path
from s2sim.units import parse_rate_Bps, parse_size_bytes, parse_time_ps, parse_work_rate_per_s


def test_catalogue():
    a100, turing = load_gpu("a100"), load_gpu("rtx-2080")
    assert (a100.memory_bandwidth_Bps, turing.memory_bandwidth_Bps) == (1555e9, 448e9)
    assert a100.stream_Bps == pytest.approx(1555e9 * a100.memory_efficiency)
    assert 10_000_000 <= a100.host_sync_ps <= 30_000_000


GRAPHICS_MEMORY = ("a10g", "a40", "rtx-4090", "rtx-6000-ada", "l4", "gb10", "rtx-5090", "rtx-pro-6000")


def test_every_gpu_of_the_catalogue_has_what_is_optional_elsewhere():
    for name, _, _ in list_parts("gpus"):
        gpu = load_gpu(name)
        operations_while_a_byte_passes = 1 / gpu.flops_s(1) / gpu.stream_Bps
        # Cards with graphics memory compute more for each byte than those with stacked memory.
        most = 120 if name.startswith(GRAPHICS_MEMORY) else 50
        assert 5 < operations_while_a_byte_passes < most
        assert gpu.host_ps(10) == 10_500


UNITS = {
    "memory": parse_size_bytes,
    "memory_bandwidth": parse_rate_Bps,
    "rate": parse_rate_Bps,
    "latency": parse_time_ps,
    "header": parse_size_bytes,
    "payload": parse_size_bytes,
}
NUMBERS = {"sms", "links", "ports", "down"}


@pytest.mark.parametrize("kind", PARTS)
def test_every_part_says_what_it_is_and_its_numbers_where_they_come_from(kind):
    for name, summary, source in list_parts(kind):
        part = find_part(kind, name)
        assert part.description in summary
        assert source
        assert part.quantities
        for field, item in part.quantities.items():
            assert item.kind in ("datasheet", "measured", "estimated"), f"{name}.{field}"
            assert item.source
            parse = parse_work_rate_per_s if field.endswith(("_flops", "_ops")) else UNITS.get(field)
            assert parse is None or parse(item.value)
            assert field not in NUMBERS or item.value >= 1
    names = [name for name, _, _ in list_parts(kind)]
    assert len(names) == len(set(names))


def test_what_parts_name_is_in_the_catalogue():
    tables = shipped_tables()
    for name in tables.names("gpu"):
        part = find_part("gpus", name)
        assert part.value("nvlink") in (None, *tables.names("nvlink"))
        assert part.value("pcie") in (*tables.names("pcie"), "c2c")
        assert (part.value("nvlink") is None) == (part.value("links") is None)
        for board in part.value("boards") or ():
            gpus, shape = board.split()
            assert int(gpus) > 1
            assert shape in ("mesh", "switch", "rack", *tables.names("board"))
    for name in tables.names("nic"):
        assert find_part("nics", name).value("pcie") in tables.names("pcie")
    for name in tables.names("transport"):
        part = find_part("transports", name)
        assert part.value("nic") in (None, *tables.names("nic"))
        assert part.value("switch") in (None, *tables.names("switch"))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("A100-SXM4-80GB", "a100-80gb"),
        ("A100-SXM4-40GB", "a100"),
        ("H100 80GB HBM3", "h100"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("H100 PCIe", "h100-pcie"),
        ("H200", "h200"),
        ("RTX A6000", "rtx-a6000"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("AMD Instinct MI300X", "mi300x"),
        ("GB200 NVL72", "gb200"),
        ("L40S", "l40s"),
        ("RTX4090", "rtx-4090"),
        ("GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("A10G", "a10g"),
        ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("GH200 (H100-96GB)", "gh200"),
        ("H100 SXM5 (94GB)", "h100"),
        ("A100 or H100", None),
        ("Radeon VII", None),
        ("", None),
    ],
)
def test_what_people_write_is_one_gpu_or_none(written, name):
    assert find_gpu_links(written) is (gpu_links()[name] if name else None)


def test_no_gpu_may_have_a_remark():
    for written in ("none", "none (CPU buffers)"):
        assert find_gpu_links(written).names == ("none",)


def test_what_does_not_reach_gpu_memory_is_staged_where_no_path_is_stated(tmp_path):
    tables = shipped_tables()
    for name in TRANSPORTS:
        reached = tables.part("transport", name).value("gpu_memory") == "yes"
        assert usual_path(name) == ("switch" if reached else "staged")
    text = '[node]\ngpus = 1\n[nic]\nrate = "1Gbps"\ntransport = "TCP"\n[fabric]\nkind = "single-switch"\n'
    for transport in ("tcp", "roce"):
        (tmp_path / "hosts.toml").write_text(text.replace("TCP", transport))
        assert load_shape(tmp_path / "hosts.toml").nodes[0].path == usual_path(transport)


@pytest.mark.parametrize(
    ("topology", "overrides", "path", "warned"),
    [
        ("dgx-a100", ["nic.transport=tcp"], "staged", True),
        ("dgx-a100", ["nic.transport=tcp", "nic.path=switch"], "switch", False),
        ("dgx-a100", ["nic.transport=tcp", "nic.path=staged"], "staged", False),
        ("dgx-a100", ["nic.transport=roce"], "switch", False),
        ("tcp-10g", ["nic.transport=tcp"], "staged", False),
        ("tcp-10g", ["nic.transport=roce"], "staged", False),
    ],
)
def test_an_override_with_sockets_takes_the_path_along_unless_that_is_given_too(topology, overrides, path, warned):
    warns = pytest.warns(S2SimWarning, match="nic.transport=tcp carries what is in host memory, so nic.path=staged")
    with warns if warned else nullcontext():
        shape = load_shape(topology, overrides)
    assert [node.path for node in shape.nodes] == [path]
    assert [each.value for each in shape.quantities if each.field == "nic.path"] == [path]


def test_a_gpu_is_like_another_and_what_stands_alone_has_its_tables_origin(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        OWN
        + """
[gpu.other]
like = "mine"
kind = "measured"
source = "my bench"
kernel_launch = "6us"
"""
    )
    other = read_hardware(path)["other"]
    of = {item.field: item for item in other.quantities}
    assert (other.kernel_launch_ps, other.stream_Bps) == (6_000_000, 1.8e12)
    assert (of["gpu.other.kernel_launch"].kind, of["gpu.other.kernel_launch"].source) == ("measured", "my bench")
    assert of["gpu.other.memory_bandwidth"].source == "its data sheet"
    assert of["gpu.other.host_sync"].kind == "user"
    for like in ("other", "nothing"):
        path.write_text(f'{OWN}like = "{like}"\n'.replace("mine", "other"))
        with pytest.raises(TopologyError, match=rf"gpu.other is like '{like}', which is no other table"):
            read_hardware(path)
    path.write_text(OWN + "like = 3\n")
    with pytest.raises(TopologyError, match=r"gpu.mine.like = 3 is not a text"):
        read_hardware(path)


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
    assert [(item.kind, item.source) for item in gpu.quantities[:2]] == [("datasheet", "its data sheet"), ("user", "")]
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
    assert load_gpu(load_shape(path).gpu).name == "mine"
    # What stands on the command line is taken from the working directory.
    monkeypatch.chdir(tmp_path)
    assert load_shape(path, ["gpu=./mine.toml"]).gpu == "./mine.toml"


def test_refused(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown GPU 'a1000'.*'a100'"):
        load_gpu("a1000")
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
