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
    """One kind of node.

    Attributes
    ----------
    nvlink : LinkSpec or None
        Each GPU's port to the node's NVSwitch, or with ``mesh`` one link between two GPUs.
    domain_nodes : int
        Nodes whose GPUs one fabric of NVSwitches joins, the first so many, the next, ...; 1 where each has its own.
    mesh : tuple of (int, int, int), or None
        Two GPUs, the lower number first, and how many links join them; None where there is an NVSwitch, or no NVLink.
    pcie : LinkSpec or None
        Each GPU's link to its PCIe switch, or to the host bridge where there is no such switch.
    gpus_per_switch : int or None
        GPUs below one PCIe switch; None without PCIe switches.
    bridge : LinkSpec or None
        What the host bridge forwards in all; None where it forwards whatever arrives.
    sockets : int
        Sockets of the host, of which GPUs below one another's PCIe switches share one: GPU g is at ``g * sockets //
        gpus``.
    socket : LinkSpec or None
        What leads from each socket to the others; None where that holds nothing up.
    memory : LinkSpec or None
        What GPUs write to and read from the host memory of one socket, both together; None where that holds nothing up.
    nics, nics_at_host : int, bool
        Network interfaces, of which GPU g uses number ``g * nics // gpus``, or where there are several a GPU that one
        and the next; and whether they join the host bridge; if not, each joins the PCIe switch of the first GPU that
        uses it.
    transport : str or None
        What carries messages between nodes, of `TRANSPORTS`. Where it is given latencies are those of the hardware
        alone, so that a library may add its own; None where that is not told.
    path : str
        How GPU memory is reached from an interface, of `PATHS`.
    peer_to_peer : bool
        Whether GPUs reach each other's memory over PCIe; if not, what they send each other passes host memory.
    """

    gpus: int
    nvlink: LinkSpec | None
    mesh: tuple[tuple[int, int, int], ...] | None
    pcie: LinkSpec | None
    gpus_per_switch: int | None
    uplink: LinkSpec | None
    bridge: LinkSpec | None
    nics: int
    nic: LinkSpec
    nics_at_host: bool
    transport: str | None = None
    path: str = "switch"
    peer_to_peer: bool = True
    sockets: int = 1
    socket: LinkSpec | None = None
    memory: LinkSpec | None = None
    domain_nodes: int = 1

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
