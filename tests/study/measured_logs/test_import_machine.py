"""Cluster files of what machines say of themselves."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import s2sim
from s2sim.cli.main import main
from s2sim.errors import S2SimError
from s2sim.topology.hardware import find_network_links, gpu_links
from s2sim.topology.read_file import load_shape
from s2sim.validation.import_machine import FORMATS, import_machine
from s2sim.validation.node_files import names

from .nodes import node_matrix, node_xml


@pytest.fixture
def imported(tmp_path):
    """Import a text; return what was said of it, and the shape of the file that was written."""

    def imported(text, **options):
        path = tmp_path / "our-node.any"
        path.write_text(text, "utf-8")
        found = import_machine(path, **options)
        (tmp_path / "our-node.toml").write_text(found.text, "utf-8")
        return found, load_shape(tmp_path / "our-node.toml")

    return imported


def value_of(shape, field):
    return next(item.value for item in shape.quantities if item.field == field)


@pytest.mark.slow
def test_a_node_with_switches_is_the_shipped_one(imported, tmp_path):
    """By the times of collectives inside a node, and over two of them."""
    found, shape = imported(node_xml())
    assert found.understood.startswith("8 GPUs (h100), 18 NVLinks each to switches; mlx5_0 (400 Gbps), mlx5_1")
    shipped = load_shape("dgx-h100")
    assert (shape.gpus_per_node, shape.nvlink.rate_Bps, shape.pcie.rate_Bps, shape.nic.rate_Bps) == (
        *(shipped.gpus_per_node, shipped.nvlink.rate_Bps, shipped.pcie.rate_Bps, shipped.nic.rate_Bps),
    )
    assert (shape.gpu, shape.library) == ("h100", "nccl")

    def times_s(topology, workers):
        sizes = (4096, 2**20, 2**28)
        own = {"workers": workers, "library": "nccl"}
        return [s2sim.run_collective("all_reduce", topology, size_bytes=size, **own).time_s for size in sizes]

    own = str(tmp_path / "our-node.toml")
    assert times_s(own, 8) == times_s("dgx-h100", 8)
    assert times_s(own, 16) == pytest.approx(times_s("dgx-h100", 16), rel=0.01)


def test_a_mesh_has_the_links_that_are_stated(imported):
    found, shape = imported(
        node_xml(4, device="0x20b0", sm="80", switch_links=0, mesh=4, nics=1, speed="16.0 GT/s PCIe")
    )
    assert "4 GPUs (a100), 24 links between them" in found.understood
    pairs = next(item.value for item in shape.quantities if item.field == "nvlink.pairs")
    assert sorted(map(tuple, pairs)) == sorted([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] * 4)
    assert shape.pcie.rate_Bps == 24e9


@pytest.mark.parametrize(("lanes", "speed", "rate"), [(16, "8.0 GT/s PCIe", 12e9), (8, "32.0 GT/s PCIe", 24e9)])
def test_links_to_the_host_are_as_wide_as_stated(imported, lanes, speed, rate):
    _, shape = imported(node_xml(2, switch_links=0, nics=0, lanes=lanes, speed=speed))
    assert shape.pcie.rate_Bps == rate


def test_without_a_network_several_nodes_are_refused(imported, tmp_path, capsys):
    found, _ = imported(node_xml(4, nics=0))
    assert any("no interface" in each for each in found.assumed)
    own = str(tmp_path / "our-node.toml")
    assert s2sim.run_collective("all_reduce", own, workers=4, size_bytes=2**20).time_s > 0
    assert main(["collective", "all_reduce", "--topology", own, "--workers", "8", "--size", "1MiB"]) == 2
    assert "ask for at most 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": "", "sm": "89"}, "architecture 89 is taken for l40s"),
        ({"names": "eth{}"}, "transport tcp, by the name eth0"),
        ({"names": "rdmap{}s0"}, "transport efa, by the name rdmap0s0"),
        ({"nics": 9, "gpus": 4, "beside": False}, "9 interfaces of 400 Gbps are taken for 4 of one rate together"),
        ({"names": 'ib{}" port="0" gdr="0'}, "transport tcp, as interfaces have no port"),
    ],
)
def test_what_is_assumed_is_said_and_stands_in_the_file(imported, options, text):
    found, _ = imported(node_xml(**({"gpus": 2, "switch_links": 0, "nics": 2} | options)))
    assert any(text in each for each in found.assumed)
    assert text in found.text


def test_options_replace_what_is_assumed(imported):
    found, shape = imported(
        node_xml(2, switch_links=0, nics=2, device="", sm="90"), gpu="h200", transport="roce", nic_rate="200Gbps"
    )
    assert (shape.gpu, shape.nic.rate_Bps) == ("h200", 25e9)
    assert not any("architecture" in each or "transport" in each for each in found.assumed)


@pytest.mark.parametrize("rate", [-1, 0])
def test_a_rate_that_is_not_stated_is_asked_for(imported, rate):
    with pytest.raises(S2SimError, match="does not say how fast its interfaces are: add --nic-rate"):
        imported(node_xml(2, rate=rate))
    _, shape = imported(node_xml(2, rate=rate), nic_rate="200Gbps")
    assert shape.nic.rate_Bps == 25e9


def test_an_interface_beside_a_gpu_is_on_its_switch(imported):
    def path(beside):
        _, shape = imported(node_xml(beside=beside))
        return next(item.value for item in shape.quantities if item.field == "nic.path")

    assert (path(True), path(False)) == ("switch", "host-bridge")


def test_a_rate_that_no_interface_has_is_asked_for(imported):
    with pytest.raises(S2SimError, match="does not say how fast its interfaces are: add --nic-rate"):
        imported(node_xml(rate=200_000_000))
    _, shape = imported(node_xml(rate=200_000_000), nic_rate="200Gbps")
    assert shape.nic.rate_Bps == 25e9


def test_links_of_amd_join_their_gpus(imported):
    text = node_xml(4, device="0x0", sm="gfx942", attribute="gcn", switch_links=0, mesh=1).replace("nvlink", "xgmi")
    found, shape = imported(text)
    assert "4 GPUs (mi300x), 6 links between them" in found.understood
    assert (shape.library, shape.nvlink.rate_Bps) == ("rccl", 48e9)


@pytest.mark.parametrize(("links", "joined"), [(18, 2), (0, 1)])
def test_of_several_hosts_the_first_is_read_and_switches_join_them(imported, links, joined):
    second = node_xml(2, switch_links=links).partition("<cpu")[2].replace('host_hash="0x1"', 'host_hash="0x2"')
    found, shape = imported(node_xml(2, switch_links=links, nics=2).replace("</system>", f"<cpu{second}"))
    assert (shape.gpus_per_node, found.ignored[0]) == (2, "1 processors of other hosts")
    assert shape.nodes[0].domain_nodes == joined


def test_a_rack_of_nvswitches_is_asked_for(imported):
    found, _ = imported(node_xml(4, device="0x2941"))
    assert any("nvlink.domain_nodes" in each for each in found.assumed)


@pytest.mark.parametrize(
    ("speed", "ports", "gbps"),
    [("8.0 GT/s PCIe", 1, 48), ("16.0 GT/s PCIe", 1, 100), ("16.0 GT/s PCIe", 2, 48), ("", 2, 100)],
)
def test_ports_carry_what_their_slot_does(imported, speed, ports, gbps):
    """One of 100 Gbps in eight lanes of PCIe 3, and two that share those of PCIe 4."""
    text = node_xml(1, switch_links=0, nics=1, rate=100_000).replace(
        'class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"',
        f'class="0x020700" link_speed="{speed}" link_width="8"',
    )
    net = re.search("<net .*?/>", text)[0]
    found, shape = imported(text.replace(net, "".join(net.replace("mlx5_0", f"mlx5_{at}") for at in range(ports))))
    assert shape.nic.rate_Bps * 8 == pytest.approx(gbps * 1e9)
    assert any("its share of its slot" in each for each in found.assumed) == (gbps < 100)


@pytest.mark.parametrize(
    ("gpus", "links", "near", "rate", "path"),
    [(8, 18, "PIX", 370.8e9, "switch"), (4, 6, "SYS", 20.6e9, "host-bridge"), (2, 0, "PXB", None, "switch")],
)
def test_the_matrix_of_nvidia_smi(imported, gpus, links, near, rate, path):
    found, shape = imported(node_matrix(gpus, links, near=near), gpu="h100", nic_rate="400Gbps")
    assert found.format == "nvidia-smi-topo"
    assert shape.gpus_per_node == gpus
    assert (None if shape.nvlink is None else shape.nvlink.rate_Bps) == rate
    assert value_of(shape, "nic.path") == path
    assert "transport ib-verbs, by the name mlx5_0" in " ".join(found.assumed)


def test_interfaces_that_are_the_nearest_of_no_gpu_carry_nothing_for_them(imported):
    """NCCL takes the nearest of each GPU: those for storage, or on the other socket, add no bandwidth."""
    cells = {"GPU0": "X NV18 PIX SYS NODE", "GPU1": "NV18 X SYS PIX NODE", "mlx5_0": "PIX SYS X SYS NODE"}
    cells |= {"bnxt_re0": "SYS PIX SYS X NODE", "mlx5_2": "NODE NODE NODE NODE X"}
    matrix = "\n".join(["\t" + "\t".join(cells), *(f"{name}\t{row}\t0-47" for name, row in cells.items())])
    found, shape = imported(matrix.replace(" ", "\t"), gpu="h100", nic_rate="200Gbps")
    assert (value_of(shape, "nic.count"), shape.nic.rate_Bps) == (2, 25e9)
    assert found.ignored == ("affinities", "interfaces that are the nearest of no GPU: mlx5_2")
    found, shape = imported(node_xml(2, nics=4))
    assert (value_of(shape, "nic.count"), shape.nic.rate_Bps) == (2, 50e9)
    assert found.ignored == ("interfaces that are the nearest of no GPU: mlx5_2, mlx5_3",)


def matrix_of_last(joined):
    """Return a matrix of eight H100, of which the last is joined to the others otherwise."""
    lines = [line.replace("NV18", joined) if line.startswith("GPU7") else line for line in node_matrix().split("\n")]
    column = re.compile(r"^(GPU\d(?:\t[^\t]+){7}\t)NV18")
    return "\n".join(column.sub(rf"\g<1>{joined}", line) for line in lines)


def test_links_to_switches_that_differ_are_the_least(imported):
    found, _ = imported(matrix_of_last("NV16"), gpu="h100", nic_rate="400Gbps")
    assert "16 NVLinks each to switches" in found.understood
    assert "NVLinks of GPUs differ: 16 of the least are taken for all" in found.assumed


def test_a_gpu_without_the_links_that_others_have_is_refused(imported):
    with pytest.raises(S2SimError, match="describe those that they join alone"):
        imported(matrix_of_last("SYS"), gpu="h100", nic_rate="400Gbps")


def test_pairs_that_share_no_more_links_than_a_gpu_has_are_a_mesh(imported):
    found, _ = imported(node_matrix(3, 4), gpu="h800", nic_rate="400Gbps")
    assert "12 links between them" in found.understood
    found, _ = imported(node_matrix(3, 8), gpu="h800", nic_rate="400Gbps")
    assert "8 NVLinks each to switches" in found.understood


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"switch_links": 12}, "NVLinks of GPUs differ: 12 of the least are taken for all"),
        ({"speed": "16.0 GT/s PCIe"}, "PCIe lanes of GPUs differ: gen4 x16 of the least are taken for all"),
        ({"lanes": 4}, "PCIe lanes of GPUs differ: gen5 x4 of the least are taken for all"),
    ],
)
def test_links_that_differ_are_said_and_are_the_least(imported, changed, said):
    """Whichever GPU has them."""
    whole, other = node_xml().split("<gpu "), node_xml(**changed).split("<gpu ")
    for mixed in ([*whole[:5], *other[5:]], [*other[:5], *whole[5:]]):
        found, shape = imported("<gpu ".join(mixed))
        assert said in found.assumed
        _, least = imported(node_xml(**changed))
        assert (shape.nvlink, shape.pcie.rate_Bps) == (least.nvlink, least.pcie.rate_Bps)
    assert not any("differ" in each for each in imported(node_xml())[0].assumed)


def test_what_options_say_has_them_as_its_source(imported):
    found, shape = imported(node_matrix(), gpu="h100", nic_rate="400Gbps", transport="roce")
    assert found.understood.startswith("8 GPUs (h100), 18 NVLinks")
    sources = {item.field: item.source for item in shape.quantities}
    assert (sources["gpu"], sources["nic.rate"], sources["nic.transport"]) == (
        *("option --gpu", "option --nic-rate", "option --transport"),
    )
    assert sources["nic.count"] == "nvidia-smi topo -m, our-node.any"


def test_of_a_network_too(tmp_path):
    cluster = '<cluster id="c" prefix="n" suffix="" radical="0-3" speed="1Gf" bw="1GBps" lat="1us"/>'
    (tmp_path / "net.xml").write_text(f'<platform version="4.1">{cluster}</platform>')
    text = import_machine(tmp_path / "net.xml", gpu="h100", nic_rate="400Gbps", folder=tmp_path).text
    assert 'gpu = { value = "h100", kind = "user", source = "option --gpu" }' in text
    assert 'file = { value = "net.xml", kind = "user", source = "simgrid-platform" }' in text


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", {}, "is of no kind that is known (nccl-topology, nvidia-smi-topo, simgrid-platform,"),
        ("", {"form": "nccl"}, "unknown format 'nccl'"),
        ('{"traceEvents": []}', {}, "looks like a trace of PyTorch's profiler: s2sim profile import"),
        ("# Collective test starting: all_reduce_perf", {}, "looks like measured times of collectives"),
        ("<system", {}, "is no XML of NCCL: ParseError"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><system>&b;</system>', {"form": "nccl-topology"}, "DTDForbidden"),
        ("<system></system>", {}, "has no <gpu>: dump it with NCCL_TOPO_DUMP_FILE in a run"),
        (f"<system><cpu>{'<pci>' * 100}<gpu/>{'</pci>' * 100}</cpu></system>", {}, "nested more than 64 deep"),
        (node_xml(2).replace('count="14"', 'count="many"'), {}, "count='many', which is no number"),
        (node_xml(2, device="", sm="12"), {}, "does not say which GPUs these are: add --gpu NAME"),
        (node_xml(2), {"gpu": "h1000"}, "did you mean 'h100'"),
        (node_xml(2), {"gpu": "l40s"}, "has NVLinks, and l40s has none in the catalogue"),
        (node_xml(129, nics=1), {}, "describes 129 GPUs and 1 interfaces: a node has up to 128"),
        (node_xml(2, nics=129), {}, "describes 2 GPUs and 129 interfaces"),
        (node_xml(2).replace('count="14"', 'count="61"'), {}, "GPU 0 states more than 64 links"),
        (node_matrix().replace("\nGPU7", "\nGPUx"), {"gpu": "h100"}, "has no row of GPU7"),
        (node_matrix(), {"gpu": "h100"}, "does not say how fast its interfaces are"),
    ],
)
def test_what_cannot_be_read_is_one_line(imported, text, options, said):
    with pytest.raises(S2SimError, match=re.escape(said)) as caught:
        imported(text, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("whole", [node_xml(3, mesh=2, switch_links=0), node_xml(2), node_matrix(4)])
@given(data=st.data())
def test_damage_is_a_file_that_loads_or_one_line(tmp_path_factory, whole, data):
    at = data.draw(st.integers(0, len(whole) - 1))
    put = data.draw(st.sampled_from(["", "9" * 30, '"', "<", ">", "<gpu/>", "<net/>", "NV9", "\t", "GPU1", "]]>"]))
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "node").write_text(whole[:at] + put + whole[at + data.draw(st.integers(0, 30)) :], "utf-8")
    try:
        found = import_machine(folder / "node", gpu="h100", nic_rate="1Gbps")
    except S2SimError as error:
        said = str(error)
    else:
        said = ""
        (folder / "node.toml").write_text(found.text, "utf-8")
        assert load_shape(folder / "node.toml").gpus_per_node >= 1
    assert "\n" not in said


@pytest.mark.parametrize("name", ["a&#10;evil = 1", "b&#127;c", "&#8232;", 'd"e\\'])
def test_a_name_of_a_file_adds_no_line_to_another(imported, name):
    found, shape = imported(node_xml(1, switch_links=0, nics=1, names=name.replace('"', "&quot;")))
    assert "evil" not in {item.field for item in shape.quantities}
    assert not any(line.startswith("evil") for line in found.text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 500_000,
        " " * 500_000,
        f"<system><cpu>{'<nic/>' * 60_000}<gpu/></cpu></system>",
        f"<system><cpu>{'<gpu/>' * 60_000}</cpu></system>",
        " ".join(["GPU0", *["GPU1"] * 60_000]) + "\n",
        f"GPU0 GPU1\nGPU0 X NV1\nGPU1 NV1 X\n{chr(10) * 250_000}",
    ],
)
def test_size_alone_takes_no_time(imported, text):
    """Seconds at most, where squares of these sizes would take many minutes."""
    with suppress(S2SimError):
        imported(text, gpu="a100", nic_rate="1Gbps")


def test_every_device_is_in_the_catalogue():
    known = set(gpu_links())
    assert set(names()["pci"].values()) | set(names()["architecture"].values()) <= known
    assert all(find_network_links(name) is not None for name in names()["transport"].values())
    assert FORMATS.names()[:2] == ["nccl-topology", "nvidia-smi-topo"]


def test_the_command_says_what_it_took(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topo.xml").write_text(node_xml(), "utf-8")
    assert main(["import", "topo.xml", "--out", "ours.toml"]) == 0
    out = capsys.readouterr().out
    assert "Understood: 8 GPUs (h100)" in out
    assert "Assumed: one switch joins all nodes" in out
    assert main(["topology", "show", "./ours.toml"]) == 0
    assert main(["import", "topo.xml"]) == 0
    assert capsys.readouterr().out.endswith((tmp_path / "ours.toml").read_text("utf-8"))
    assert main(["topology", "show", "topo.xml"]) == 2
    assert "s2sim import topo.xml --out FILE.toml" in capsys.readouterr().err
