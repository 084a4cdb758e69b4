"""From a row of an index to a cluster: boards, bridges, islands, spread ranks."""

import pytest

from s2sim.topology.cluster import build_cluster
from s2sim.validation.curve import MeasuredMachine
from s2sim.validation.curve_machine import machine_shape
from s2sim.validation.harness import parse_row

from .validation_folder import row


def node_of(**cells):
    machine = parse_row(MeasuredMachine, row(algorithm="", **cells))
    shape = machine_shape(machine)
    cluster = build_cluster(shape, machine.ranks)
    return shape.nodes[0], cluster


@pytest.mark.parametrize(
    ("cells", "links"),
    [
        ({"gpu_model": "V100-SXM2-16GB", "gpus_per_node": "8", "nvlink_domain_gpus": "8"}, 24),
        ({"gpu_model": "V100", "gpus_per_node": "8", "nvlink_domain_gpus": "", "intra_interconnect": "cube mesh"}, 24),
        ({"gpu_model": "H100 SXM5", "gpus_per_node": "4", "nvlink_domain_gpus": "4"}, 36),
        ({"gpu_model": "MI300X", "gpus_per_node": "8", "nvlink_domain_gpus": "8"}, 28),
        ({"gpu_model": "V100", "gpus_per_node": "6", "nvlink_domain_gpus": "3"}, 12),
        ({"gpu_model": "V100", "gpus_per_node": "6", "nvlink_domain_gpus": "6"}, 12),
        ({"gpu_model": "V100", "gpus_per_node": "4", "nvlink_domain_gpus": "2"}, 6),
        ({"gpu_model": "RTX 3090", "gpus_per_node": "4", "nvlink_domain_gpus": "2"}, 8),
        ({"gpu_model": "RTX 3090", "gpus_per_node": "2", "nvlink_domain_gpus": "", "intra_interconnect": "NVLink"}, 4),
        ({"gpu_model": "A100-PCIE-40GB", "gpus_per_node": "8", "nvlink_domain_gpus": "2"}, 48),
        ({"gpu_model": "A100", "gpus_per_node": "16", "nvlink_domain_gpus": "8"}, 56),
        ({"gpu_model": "V100", "gpus_per_node": "6", "nvlink_domain_gpus": "8"}, 14),
    ],
)
def test_meshes_and_islands_have_the_links_of_their_boards(cells, links):
    node, _ = node_of(ranks=str(2 * int(cells["gpus_per_node"])), **cells)
    assert sum(lines for _, _, lines in node.mesh) == links


@pytest.mark.parametrize(
    "cells",
    [
        {"gpus_per_node": "8", "nvlink_domain_gpus": "8"},
        {"gpus_per_node": "8", "nvlink_domain_gpus": "", "intra_interconnect": "NVSwitch"},
        {"gpus_per_node": "3", "nvlink_domain_gpus": "8"},
        {"gpus_per_node": "6", "nvlink_domain_gpus": "", "intra_interconnect": ""},
    ],
)
def test_boards_with_an_nvswitch_have_one(cells):
    node, _ = node_of(gpu_model="H100", ranks=str(2 * int(cells["gpus_per_node"])), **cells)
    assert node.has_nvswitch


@pytest.mark.parametrize("text", ["PCIe 4.0", "PCIe, no NVLink", "PCIe 4.0, no P2P"])
def test_cards_without_bridges_have_pcie_alone(text):
    node, _ = node_of(
        gpu_model="A100-PCIE-40GB", gpus_per_node="4", ranks="8", nvlink_domain_gpus="", intra_interconnect=text
    )
    assert node.nvlink is None
    assert node.peer_to_peer == ("no P2P" not in text)


@pytest.mark.parametrize(("ranks", "nodes", "a_node"), [(2, 2, 1), (12, 2, 6), (16, 2, 8), (9, 2, 5)])
def test_ranks_are_spread_over_all_nodes_of_a_row(ranks, nodes, a_node):
    node, cluster = node_of(
        gpu_model="H100",
        gpus_per_node="8",
        nics_per_node="8",
        nvlink_domain_gpus="8",
        ranks=str(ranks),
        nodes=str(nodes),
    )
    assert (node.gpus, node.nics, cluster.layout.nodes) == (a_node, a_node, nodes)


@pytest.mark.parametrize(
    ("gpus", "interfaces", "count", "rate_gbps"), [(8, 32, 32, 100), (8, 4, 4, 100), (4, 6, 4, 150), (1, 4, 4, 100)]
)
def test_interfaces_are_those_of_the_row(gpus, interfaces, count, rate_gbps):
    node, _ = node_of(
        gpu_model="H100",
        gpus_per_node=str(gpus),
        ranks=str(2 * gpus),
        nics_per_node=str(interfaces),
        nvlink_domain_gpus="8",
    )
    assert (node.nics, node.nic.rate_Bps) == (count, pytest.approx(rate_gbps * 1e9 / 8))


@pytest.mark.parametrize(
    ("domain", "a_node", "nodes", "domain_nodes"), [(72, 4, 18, 18), (72, 4, 2, 18), (36, 4, 9, 9), (72, 1, 8, 72)]
)
def test_a_rack_is_one_domain_of_its_nodes(domain, a_node, nodes, domain_nodes):
    node, cluster = node_of(
        gpu_model="GB200",
        gpus_per_node=str(a_node),
        nodes=str(nodes),
        ranks=str(a_node * nodes),
        nvlink_domain_gpus=str(domain),
        transport="none",
    )
    assert (node.gpus, node.domain_nodes) == (a_node, domain_nodes)
    assert cluster.over_nvlink([0], [a_node * nodes - 1]).all()


@pytest.mark.parametrize(
    ("cells", "path"),
    [
        ({}, "switch"),
        ({"path": "host-bridge"}, "host-bridge"),
        ({"gdr": "no"}, "staged"),
        ({"gdr": "No", "path": "unknown"}, "staged"),
        ({"gdr": "yes"}, "switch"),
        ({"transport": "tcp"}, "staged"),
        ({"transport": "Ethernet"}, "staged"),
        ({"transport": "tcp", "path": "switch"}, "switch"),
        ({"gpu_model": "none (CPU buffers)", "transport": "tcp"}, "switch"),
    ],
)
def test_without_gpudirect_messages_pass_host_memory_unless_the_row_says_otherwise(cells, path):
    node, _ = node_of(**{"gpu_model": "A10"} | cells)
    assert node.path == path


def test_processors_that_nvlink_joins_need_no_pcie():
    node, _ = node_of(gpu_model="V100", gpus_per_node="6", ranks="12", nvlink_domain_gpus="3")
    assert node.pcie.rate_Bps == 40e9
