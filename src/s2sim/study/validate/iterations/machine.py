"""The machine that a measured iteration ran on, as rows of curves describe theirs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.study.validate.curve import Machine

if TYPE_CHECKING:
    from s2sim.study.validate.iterations.row import IterationRow

_NONE = "none"
# Running reducers on more takes longer than people wait for a row.
_MOST_WORKERS = 2**9
# Transports as others call them.
_CALLED = {
    "ib": "ib-verbs",
    "infiniband": "ib-verbs",
    "rdma": "ib-verbs",
    "verbs": "ib-verbs",
    "ethernet": "tcp",
    "socket": "tcp",
    "sockets": "tcp",
    "ipoib": "tcp",
}
# Cards of which the driver does not let one reach another's memory over PCIe, nor an interface reach it.
_NO_PEERS = re.compile(r"\b(rtx )?[2345]0[5-9]0\b", re.IGNORECASE)
# Cards that came before Skylake: on processors up to Broadwell NCCL lets cards reach each other below a PCIe switch
# alone, and on later ones below one processor (ncclTopoCheckP2p in src/graph/paths.cc, NCCL v2.7 to v2.30).
_BEFORE_SKYLAKE = re.compile(r"\b([km]\d0m?|p100|p40|p4|gtx|1080)\b", re.IGNORECASE)
# Most of these that NVLink joins are on boards of eight, as in a DGX-1 and in clouds, whichever part of it is used.
_CUBE_MESH, _ON_CUBE_MESH = 8, re.compile(r"\b(v100|p100)\b", re.IGNORECASE)
# Servers of so many cards have two processors, which share them; of more, rings pass from one to the other.
_TWO_SOCKETS = 4
# Slower interfaces than this are Ethernet's, and their transport is the kernel's where nobody says.
_ETHERNET_GBPS = 25
_REMARK = re.compile(r"\([^)]*\)")


def machine_of(row: IterationRow) -> Machine:
    """Return the machine of a row; `S2SimError` where it does not say enough."""
    gpus = min(row.gpus_per_node, row.workers)
    if row.workers > row.nodes * row.gpus_per_node:
        raise S2SimError(f"{row.workers} workers do not fit on {row.nodes} nodes of {row.gpus_per_node} GPUs")
    if row.workers > _MOST_WORKERS:
        raise S2SimError(f"{row.workers} workers are more than {_MOST_WORKERS}, which takes too long")
    several = row.workers > gpus
    able = _NO_PEERS.search(row.gpu) is None
    transport = _transport(row) if several else _NONE
    return Machine(
        id=row.id,
        gpu_model=_REMARK.sub("", row.gpu).strip(),
        gpus_per_node=gpus,
        nodes=-(-row.workers // gpus),
        ranks=row.workers,
        intra_interconnect=_inside(row, gpus),
        nics_per_node=1 if several else 0,
        nic_rate_gbps=(row.nic_rate_gbps or 0.0) if several else 0.0,
        collective="all_reduce",
        outlier_sizes_bytes=(),
        quality="good",
        system=row.system or row.source,
        launch="gpu",
        algorithm="",
        nvlink_domain_gpus=_domain(row, gpus),
        transport=transport,
        doubt="",
        # The kernel's sockets read and write host memory.
        path="staged" if several and (transport == "tcp" or not able) else "",
        p2p="" if able and _reach_each_other(row, gpus) else "no",
    )


def _transport(row: IterationRow) -> str:
    given = row.transport.lower()
    if given not in ("", _NONE):
        return _CALLED.get(given, given)
    if row.nic_rate_gbps is None:
        raise S2SimError("several nodes, and neither transport nor nic_rate_gbps is given")
    return "tcp" if row.nic_rate_gbps <= _ETHERNET_GBPS else "ib-verbs"


def _inside(row: IterationRow, gpus: int) -> str:
    """Return what joins the GPUs of a node, with the processors that share them."""
    text = row.intra_interconnect
    if gpus >= _TWO_SOCKETS and "pcie" in text.lower() and "socket" not in text.lower():
        return f"{text}, two sockets"
    return text


def _reach_each_other(row: IterationRow, gpus: int) -> bool:
    """Return whether NCCL lets a node's cards reach each other's memory over PCIe."""
    text = row.intra_interconnect.lower()
    if "p2p" in text or "switch" in text or "pcie" not in text:
        return True
    return _BEFORE_SKYLAKE.search(row.gpu) is None and gpus <= _TWO_SOCKETS


def _domain(row: IterationRow, gpus: int) -> int | None:
    """Return on how many GPUs' board those of a node are; None for what the catalogue says, or without NVLink."""
    linked = "nvlink" in row.intra_interconnect.lower() and "no nvlink" not in row.intra_interconnect.lower()
    return _CUBE_MESH if linked and 1 < gpus <= _CUBE_MESH and _ON_CUBE_MESH.search(row.gpu) else None
