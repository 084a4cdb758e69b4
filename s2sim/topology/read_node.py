"""Reads the content of nodes, and checks that every field about it has an effect."""

from __future__ import annotations

from collections import Counter
from typing import Any

from s2sim.errors import TopologyError
from s2sim.topology.fields import NODE_FIELDS
from s2sim.topology.nvlink_mesh import mesh_routes
from s2sim.topology.quantity import FieldReader
from s2sim.topology.shape import MAX_MESHED, PATHS, TRANSPORTS, LinkSpec, NodeGroup, NodeSpec


def read_groups(fields: FieldReader) -> tuple[NodeGroup, ...]:
    """Return the kinds of nodes: one, or those of ``[[nodes]]``."""
    numbers = sorted({int(field.split(".")[1]) for field in fields.quantities if field.startswith("nodes.")})
    if not numbers:
        return (NodeGroup(_read_node(fields), None),)
    for field in NODE_FIELDS:
        own = [f"nodes.{number}.{field.removeprefix('node.')}" in fields.quantities for number in numbers]
        # The rate of the links between switches follows the interfaces.
        if field in fields.quantities and all(own) and (field != "nic.rate" or "fabric.link.rate" in fields.quantities):
            raise fields.error(
                f"{field} has no effect: all [[nodes]] give their own; leave it out, or set "
                f"nodes.0.{field.removeprefix('node.')}"
            )
    groups = []
    for number in numbers:
        field = f"nodes.{number}.count"
        if field not in fields.quantities and number < numbers[-1]:
            raise fields.error(f"{field} is missing: only the last of [[nodes]] may go without")
        # Its own fields before those of the whole file.
        names = {name: f"nodes.{number}.{name.removeprefix('node.')}" for name in NODE_FIELDS}
        given = {name: fields.quantities[each] for name, each in names.items() if each in fields.quantities}
        groups.append(NodeGroup(_read_node(FieldReader(fields.quantities | given, fields.origin)), fields.count(field)))
    if len({group.node.nics_per_gpu for group in groups}) > 1:
        raise fields.error("nic.count gives a GPU several interfaces in some of [[nodes]] only: write as many for all")
    if len(groups) > 1 and any(group.node.domain_nodes > 1 for group in groups):
        raise fields.error("nvlink.domain_nodes joins nodes of one kind: leave it out, or [[nodes]]")
    return tuple(groups)


def _optional_link(fields: FieldReader, table: str) -> LinkSpec | None:
    if not any(field.startswith(f"{table}.") for field in fields.quantities):
        return None
    return LinkSpec(fields.required_rate(f"{table}.rate"), fields.latency(f"{table}.latency"))


def _read_node(fields: FieldReader) -> NodeSpec:
    gpus = fields.required_count("node.gpus")
    nics = fields.count("nic.count") or 1
    nvlink, pcie = _optional_link(fields, "nvlink"), _optional_link(fields, "pcie")
    if gpus > 1 and nvlink is None and pcie is None:
        raise fields.error(f"node.gpus = {gpus} needs [nvlink] or [pcie] to join them: add one with a rate")
    if nics > gpus and nics % gpus:
        raise fields.error(
            f"nic.count = {nics} for node.gpus = {gpus}: all GPUs use as many interfaces, so write at most "
            f"{gpus} or a multiple of it"
        )
    mesh = _read_mesh(fields, gpus)
    if "pcie.peer_to_peer" in fields.quantities and nvlink is not None and mesh is None:
        raise fields.error("pcie.peer_to_peer has no effect beside an NVSwitch, which joins all GPUs: leave it out")
    domain_nodes = fields.count("nvlink.domain_nodes") or 1
    if domain_nodes > 1 and (nvlink is None or mesh is not None):
        raise fields.error(f"nvlink.domain_nodes = {domain_nodes} has no effect without NVSwitches: leave it out")
    per_switch, uplink, bridge = _read_pcie_tree(fields, gpus, pcie)
    peer_to_peer = fields.text("pcie.peer_to_peer", "yes", ("yes", "no")) == "yes"
    path = fields.text("nic.path", "switch", PATHS)
    staged = not peer_to_peer or path == "staged"
    sockets, socket, memory = _read_host(fields, gpus, pcie, bridge, staged=staged)
    nic_Bps = fields.rate("nic.rate") or fields.rate("fabric.link.rate")
    if nic_Bps is None:
        raise fields.error("nic.rate is missing: write for example nic.rate = '100Gbps'")
    node = NodeSpec(
        gpus=gpus,
        nvlink=nvlink,
        mesh=mesh,
        pcie=pcie,
        gpus_per_switch=per_switch,
        uplink=uplink,
        bridge=bridge,
        nics=nics,
        nic=LinkSpec(nic_Bps, fields.latency("nic.latency")),
        nics_at_host=fields.text("nic.at", "switch", ("switch", "host")) == "host",
        transport=fields.text("nic.transport", "", (*TRANSPORTS, "")) or None,
        path=path,
        peer_to_peer=peer_to_peer,
        sockets=sockets,
        socket=socket,
        memory=memory,
        domain_nodes=domain_nodes,
    )
    if mesh is not None:
        try:
            mesh_routes(node, gpus)
        except TopologyError as error:
            raise fields.error(f"{error}") from error
    return node


def _read_mesh(fields: FieldReader, gpus: int) -> tuple[tuple[int, int, int], ...] | None:
    """Return the pairs of GPUs with the number of NVLinks between them; None for an NVSwitch."""
    if fields.text("nvlink.kind", "switch", ("switch", "mesh")) == "switch":
        for field in ("nvlink.pairs", "nvlink.links_per_pair"):
            if field in fields.quantities:
                raise fields.error(f"{field} has no effect on an NVSwitch: leave it out or set nvlink.kind = 'mesh'")
        return None
    if gpus > MAX_MESHED:
        raise fields.error(
            f"nvlink.kind = 'mesh' for node.gpus = {gpus}: NVLinks without a switch join at most {MAX_MESHED}"
        )
    if "nvlink.pairs" not in fields.quantities:
        links = fields.count("nvlink.links_per_pair") or 1
        return tuple((one, other, links) for one in range(gpus) for other in range(one + 1, gpus))
    if "nvlink.links_per_pair" in fields.quantities:
        raise fields.error(
            "nvlink.links_per_pair has no effect beside nvlink.pairs, in which a pair stands as "
            "often as it has links: leave one out"
        )
    quantity = fields.required("nvlink.pairs")
    value = quantity.value

    def is_pair(pair: Any) -> bool:
        is_two = isinstance(pair, list) and len(pair) == 2 and pair[0] != pair[1]
        return is_two and all(type(gpu) is int and 0 <= gpu < gpus for gpu in pair)

    if not isinstance(value, list) or not value or not all(map(is_pair, value)):
        raise fields.error(
            f"{quantity.field} = {str(value)[:40]} is not a list of pairs of GPUs from 0 to "
            f"{gpus - 1}: write for example [[0, 1], [1, 2]] in the file"
        )
    return tuple((*pair, number) for pair, number in sorted(Counter((min(pair), max(pair)) for pair in value).items()))


def _read_pcie_tree(
    fields: FieldReader, gpus: int, pcie: LinkSpec | None
) -> tuple[int | None, LinkSpec | None, LinkSpec | None]:
    """Return the GPUs below a PCIe switch, its uplink, and the host bridge."""
    if "pcie.gpus_per_switch" not in fields.quantities:
        for field in ("pcie.uplink.rate", "pcie.uplink.latency", "pcie.host.rate", "pcie.host.latency", "nic.at"):
            if field in fields.quantities:
                raise fields.error(
                    f"{field} has no effect without PCIe switches: set pcie.gpus_per_switch too, or leave it out"
                )
        return None, None, None
    assert pcie is not None  # The field above is one of [pcie].
    quantity = fields.required("pcie.gpus_per_switch")
    if (per_switch := fields.required_count("pcie.gpus_per_switch")) > gpus:
        raise fields.error(f"{quantity.field} = {per_switch} for node.gpus = {gpus}: write at most {gpus}")
    uplink = LinkSpec(fields.rate("pcie.uplink.rate") or pcie.rate_Bps, fields.latency("pcie.uplink.latency"))
    return per_switch, uplink, _optional_link(fields, "pcie.host")


def _read_host(
    fields: FieldReader, gpus: int, pcie: LinkSpec | None, bridge: LinkSpec | None, *, staged: bool
) -> tuple[int, LinkSpec | None, LinkSpec | None]:
    """Return the sockets of the host, the link between them, and the memory of each."""
    sockets = fields.count("pcie.sockets") or 1
    socket, memory = _optional_link(fields, "pcie.socket"), _optional_link(fields, "pcie.memory")
    if memory is not None and not staged:
        raise fields.error(
            "pcie.memory has no effect where nothing passes host memory: set pcie.peer_to_peer = 'no' or "
            "nic.path = 'staged' too, or leave it out"
        )
    if socket is not None and sockets == 1:
        raise fields.error("pcie.socket has no effect on one socket: set pcie.sockets = 2, or leave it out")
    if "pcie.sockets" not in fields.quantities:
        return 1, None, memory
    if pcie is None or (socket is None and memory is None):
        raise fields.error(
            f"pcie.sockets = {sockets} has no effect without pcie.socket.rate or pcie.memory.rate: add one"
        )
    if sockets > gpus:
        raise fields.error(f"pcie.sockets = {sockets} for node.gpus = {gpus}: write at most {gpus}")
    if bridge is not None and sockets > 1:
        raise fields.error(
            f"pcie.host is the bridge of one socket, and pcie.sockets = {sockets}: leave one of them out"
        )
    return sockets, socket, memory
