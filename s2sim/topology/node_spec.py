"""The content of a node, as a description file states it: GPUs, what joins them, and network interfaces."""

from __future__ import annotations

from dataclasses import dataclass

TRANSPORTS = ("ib-verbs", "roce", "slingshot", "efa", "tcpx", "tcpxo", "tcp")
PATHS = ("switch", "host-bridge", "other-socket", "staged")

MAX_MESHED = 512
"""GPUs that NVLinks without a switch may join; real ones join 8."""


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One direction of a link: bytes per second, and picoseconds from the first bit sent to the first bit received."""

    rate_Bps: float
    latency_ps: int


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One kind of node."""

    gpus: int
    nvlink: LinkSpec | None  # Each GPU's port to the node's NVSwitch, or with ``mesh`` one link between two GPUs
    # Two GPUs, the lower number first, and the number of links between them; None with an NVSwitch or without NVLink
    mesh: tuple[tuple[int, int, int], ...] | None
    pcie: LinkSpec | None  # Each GPU's link to its PCIe switch, or to the host bridge without PCIe switches
    gpus_per_switch: int | None  # None without PCIe switches
    uplink: LinkSpec | None
    bridge: LinkSpec | None  # Total rate of the host bridge; None without a limit
    # GPU g uses interface ``g * nics // gpus``, or several in order. They join the host bridge (``nics_at_host``) or
    # the PCIe switch of the first GPU that uses them.
    nics: int
    nic: LinkSpec
    nics_at_host: bool
    # Between nodes, one of `TRANSPORTS`: latencies are then those of the hardware alone; None if not stated
    transport: str | None = None
    path: str = "switch"  # From GPU memory to an interface, one of `PATHS`
    peer_to_peer: bool = True  # Whether GPUs reach each other's memory over PCIe; if not, through host memory
    sockets: int = 1  # GPU g is at socket ``g * sockets // gpus``; GPUs below one PCIe switch share a socket
    socket: LinkSpec | None = None  # From each socket to the others; None without a limit
    memory: LinkSpec | None = None  # What GPUs read from and write to one socket's memory; None without a limit
    domain_nodes: int = 1  # Consecutive nodes with GPUs on one fabric of NVSwitches

    @property
    def nics_per_gpu(self) -> int:
        """Network interfaces over which a GPU spreads each message."""
        return max(1, self.nics // self.gpus)

    @property
    def has_nvswitch(self) -> bool:
        """Whether an NVSwitch joins the GPUs."""
        return self.nvlink is not None and self.mesh is None and self.gpus * self.domain_nodes > 1

    @property
    def all_joined(self) -> bool:
        """Whether NVLink joins every GPU to every other, over an NVSwitch or by links of their own."""
        return self.has_nvswitch or len(self.mesh or ()) == self.gpus * (self.gpus - 1) // 2

    @property
    def pcie_switches(self) -> int:
        """PCIe switches of a node."""
        return -(-self.gpus // self.gpus_per_switch) if self.gpus_per_switch else 0


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one kind that follow each other: so many, or as many as are needed (None)."""

    node: NodeSpec
    count: int | None
