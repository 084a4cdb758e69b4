"""What machines say of themselves: NCCL's topology dump, and ``nvidia-smi topo -m``."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from s2sim.errors import S2SimError
from s2sim.files import own_tables, parse_xml
from s2sim.topology.graph_file import FORMATS
from s2sim.topology.hardware import catalogue_values
from s2sim.units import format_number_of, parse_rate_Bps

MAX_GPUS = 128
# More of anything is in no machine; links are those of one GPU, rates those of one interface.
_MAX_DEPTH, _MAX_LINKS, _FASTEST_GBPS = 64, 64, 3200.0
_GENERATIONS = {"8.0": "gen3", "16.0": "gen4", "32.0": "gen5", "64.0": "gen6"}
_NVSWITCH, _KINDS_SHOWN = "0x068000", 5
_WAYS = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SYS": 4}  # Between a GPU and an interface, the shortest first


def names() -> dict[str, dict[str, Any]]:
    """Return what others call things, as ``names.toml`` has it: ``pci``, ``architecture``, ``transport`` and so on."""
    return own_tables(__file__, "names.toml")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a file says of a node."""

    gpus: int
    origin: str  # For sources of values
    gpu: str | None = None  # Name in the catalogue
    gpu_why: str = ""  # Why that one, where it is not stated
    links: int | None = None  # NVLinks of a GPU to switches; None where there are none
    hosts: int = 1  # Hosts that these switches join
    pairs: tuple[tuple[int, int], ...] = ()  # Two GPUs, as often as links join them
    pcie: tuple[str, float] | None = None  # Generation, and lanes over 16
    nics: Mapping[str, float] | None = None  # Rates in Gbps by name, 0 where not stated, of those nearest to some GPU
    sockets: bool = False  # Whether they are those of sockets
    beside_gpu: bool = False  # Whether an interface shares a PCIe switch with a GPU
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    through: bool = False  # Whether links of pairs may lead through switches, so that several pairs count the same one

    def of_links(self, most: int) -> "NodeFacts":
        """Return the facts where a GPU has up to ``most`` NVLinks: pairs that count more share those to switches."""
        of_gpu = Counter(gpu for pair in self.pairs for gpu in pair)
        if not self.through or max(of_gpu.values(), default=0) <= most:
            return self
        joined = Counter(self.pairs)
        counts = sorted(joined[pair] for pair in combinations(range(self.gpus), 2))
        if not counts[0]:
            raise S2SimError(
                f"{self.origin}: NVLinks join some pairs of GPUs to switches and others not: describe those that they "
                "join alone"
            )
        return replace(self, links=counts[0] or None, pairs=(), assumed=(*self.assumed, *_least("NVLinks", counts)))

    @property
    def understood(self) -> str:
        """The facts in a line."""
        inside = f"{self.links} NVLinks each to switches" if self.links else f"{len(self.pairs)} links between them"
        nics = ", ".join(f"{name} ({rate:g} Gbps)" if rate else name for name, rate in (self.nics or {}).items())
        return f"{format_number_of(self.gpus, 'GPU')} ({self.gpu}), {inside}; {nics or 'no network'}"


class Format(NamedTuple):
    """A kind of file of one node, or of a network."""

    name: str
    recognises: Callable[[str], Any]  # Whether the first 4,096 characters are of it
    # What a text says; the second is its path in messages. None for a network, which a cluster file names
    read: Callable[[str, str], NodeFacts] | None


class _Placed(NamedTuple):
    element: Any
    device: Any  # The PCI device around it, None if there is none
    bridges: tuple[int, ...]  # Identities of the processor and of the PCI devices from there down


def read_nccl_topology(text: str, origin: str) -> NodeFacts:
    """Read what ``NCCL_TOPO_DUMP_FILE`` names (NCCL's src/graph/xml.cc), its first host; ``xgmi`` is ``nvlink``."""
    root = parse_xml(text, origin, "system", "NCCL", S2SimError)
    ignored: Counter[str] = Counter()
    found = list(_walk(root, origin, ignored))
    gpus = [each for each in found if each.element.tag == "gpu"]
    if not gpus:
        raise S2SimError(f"{origin} has no <gpu>: dump it with NCCL_TOPO_DUMP_FILE in a run, which adds them")
    nets = [each for each in found if each.element.tag == "net" and each.element.get("name") != "lo"]
    _check_counts(origin, len(gpus), len(nets))
    to_switches, pairs = _links(gpus, origin)
    links = min(to_switches) or None
    if pairs and links:
        raise S2SimError(f"{origin}: GPUs have links to switches and to each other, as in no machine that is known")
    pcie = sorted(filter(None, (_pcie(each.device) for each in gpus)))
    first, device, _ = gpus[0]
    model = None if device is None else names()["pci"].get(device.get("device", "").removeprefix("0x").lower())
    # RCCL puts a number of another meaning in sm.
    architecture = (first.get("gcn") or first.get("sm") or "").removeprefix("gfx")[:40]
    assumed = names()["architecture"].get(architecture)
    shared = [[len({*gpu.bridges[:-1]}.intersection(net.bridges)) for net in nets] for gpu in gpus]
    names_of = [net.get("name", f"net{at}")[:40] for at, (net, *_) in enumerate(nets)]
    nearest, far = _nearest(names_of, shared)
    # Some drivers state -1, and libfabric a rate that no interface has.
    stated = [max(0.0, _number(net, "speed", "-?")) / 1e3 for net, *_ in nets]
    stated = [speed if speed <= _FASTEST_GBPS else 0.0 for speed in stated]
    carried = list(_carried_Gbps(nets, stated))
    return NodeFacts(
        gpus=len(gpus),
        origin=f"NCCL topology {Path(origin).name}",
        gpu=model or assumed,
        gpu_why="" if model or assumed is None else f"architecture {architecture} is taken for {assumed}",
        links=links,
        # NCCL merges the dumps of hosts whose GPUs are on the same NVSwitches (MNNVL), and of no others.
        hosts=len({each.get("host_hash") for each in root if each.tag == "cpu"}) if links else 1,
        pairs=pairs,
        pcie=pcie[0][1:] if pcie else None,
        nics={names_of[at]: carried[at] for at in nearest},
        # NCCL's net_socket.cc has no port, and no GPU reads or writes there.
        sockets=bool(nets) and all((net.get("port"), net.get("gdr", "0")) == ("0", "0") for net, *_ in nets),
        beside_gpu=max(map(max, shared)) > 1 if nets else False,
        ignored=(*(f"{count} {what}" for what, count in ignored.most_common(_KINDS_SHOWN)), *far),
        assumed=_least("NVLinks", sorted(to_switches))
        + _least("PCIe lanes", [f"{generation} x{16 * lanes:g}" for _, generation, lanes in pcie])
        + tuple(
            f"{names_of[at]}, of {stated[at]:g} Gbps, carries its share of its slot of PCIe, {carried[at]:g} Gbps"
            for at in nearest
            if carried[at] < stated[at]
        ),
    )


def _least(what: str, ascending: Sequence[object]) -> tuple[str, ...]:
    """Return that the first of several values is taken for all GPUs; nothing where they are the same."""
    return (f"{what} of GPUs differ: {ascending[0]} of the least are taken for all",) if len(set(ascending)) > 1 else ()


def _nearest(nics: Sequence[str], nearness: Sequence[Sequence[int]]) -> tuple[list[int], tuple[str, ...]]:
    """Return which interfaces are the nearest of a GPU, of one row each, as NCCL's ncclTopoGetLocal, and the others."""
    nearest = sorted({at for row in nearness for at, near in enumerate(row) if near == max(row)})
    far = [name for at, name in enumerate(nics) if at not in nearest]
    return nearest, (f"interfaces that are the nearest of no GPU: {', '.join(far)}",) if far else ()


def _walk(root: Any, origin: str, ignored: Counter[str]) -> Iterator[_Placed]:
    """Yield the GPUs and interfaces of the first host, and count what is ``ignored``."""
    pending = deque(_Placed(each, None, (id(each),)) for each in root)
    host = next((each.get("host_hash") for each in root if each.tag == "cpu"), None)
    while pending:
        here = pending.popleft()
        element, device, bridges = here
        if len(bridges) > _MAX_DEPTH:
            raise S2SimError(f"{origin}: bridges are nested more than {_MAX_DEPTH} deep, as in no machine")
        if element.tag in ("gpu", "net"):
            yield here
        elif element.tag == "cpu" and element.get("host_hash") != host:
            ignored["processors of other hosts"] += 1
        elif element.tag in ("cpu", "pci", "nic"):
            if element.tag == "pci":
                device, bridges = element, (*bridges, id(element))
            pending += [_Placed(child, device, bridges) for child in element]
        else:
            ignored[f"<{element.tag[:40]}>"] += 1


def _links(gpus: Sequence[_Placed], origin: str) -> tuple[list[int], tuple[tuple[int, int], ...]]:
    """Return the number of links of each GPU to switches, and the links between GPUs."""
    place = {each.device.get("busid"): number for number, each in enumerate(gpus) if each.device is not None}
    pairs: list[tuple[int, int]] = []
    to_switches = []
    for number, each in enumerate(gpus):
        links = [(link, int(_number(link, "count"))) for link in each.element if link.tag in ("nvlink", "xgmi")]
        if sum(count for _, count in links) > _MAX_LINKS:
            raise S2SimError(f"{origin}: GPU {number} states more than {_MAX_LINKS} links, as none has")
        to_switches.append(sum(count for link, count in links if link.get("tclass") == _NVSWITCH))
        for link, count in links:
            other = place.get(link.get("target"))
            # Both ends state a link.
            if other is not None and number < other:
                pairs += [(number, other)] * count
    return to_switches, tuple(pairs)


def _check_counts(origin: str, gpus: int, nics: int) -> None:
    """Refuse what no node has, before work grows with it."""
    if max(gpus, nics) > MAX_GPUS:
        raise S2SimError(f"{origin} describes {gpus} GPUs and {nics} interfaces: a node has up to {MAX_GPUS}")


def _pcie(device: Any) -> tuple[float, str, float] | None:
    """Return GT/s of all lanes, the generation, and lanes over 16; None where one is not stated."""
    speed = "" if device is None else device.get("link_speed", "").partition(" ")[0]
    generation = _GENERATIONS.get(speed)
    lanes = min(_number(device, "link_width"), 16.0) if generation else 0.0
    return (float(speed) * lanes, generation, lanes / 16) if generation and lanes else None


def _carried_Gbps(nets: Sequence[_Placed], stated_Gbps: Sequence[float]) -> Iterator[float]:
    """Yield what each interface states, or its share of its card's slot where that has lanes for less."""
    of_card: dict[int, float] = defaultdict(float)
    for net, speed in zip(nets, stated_Gbps, strict=True):
        of_card[id(net.device)] += speed
    for net, speed in zip(nets, stated_Gbps, strict=True):
        slot = _pcie(net.device)
        if slot is None or slot[0] >= of_card[id(net.device)]:
            yield speed
            continue
        _, generation, lanes = slot
        whole_Bps = parse_rate_Bps(str(catalogue_values("pcie", generation)["rate"].value))
        yield speed / of_card[id(net.device)] * lanes * whole_Bps * 8 / 1e9


def _number(element: Any, attribute: str, sign: str = "") -> float:
    text = element.get(attribute, "0")[:40]
    if not re.fullmatch(rf"{sign}\d{{1,12}}(\.\d{{1,9}})?", text):
        raise S2SimError(f"<{element.tag}> has {attribute}={text!r}, which is no number")
    return float(text)


def read_nvidia_smi(text: str, origin: str) -> NodeFacts:
    """Read the matrix of ``nvidia-smi topo -m``: NV and a number of links, or PIX, PXB, PHB, NODE, SYS."""
    rows = [re.sub("\x1b\\[\\d*m", "", line).split() for line in text.splitlines()]
    header = next((row for row in rows if row[:1] == ["GPU0"] and "X" not in row), None)
    if header is None:
        raise S2SimError(f"{origin} has no line of column names that begins with GPU0")
    labels = {row[0] for row in rows if row and row is not header}
    names = [name for name in header if name in labels]
    own = [row for row in rows if row and row[0] in names and row is not header]
    cells = {name: dict(zip(names, row, strict=False)) for name, *row in own}
    gpus = [name for name in header if re.fullmatch(r"GPU\d{1,3}", name)]
    _check_counts(origin, len(gpus), len(names) - len(gpus))
    if missing := sorted(set(gpus) - set(cells)):
        raise S2SimError(f"{origin} has no row of {', '.join(missing)}")
    joined = {
        (at, at + 1 + more): int(found[1])
        for at, one in enumerate(gpus)
        for more, other in enumerate(gpus[at + 1 :])
        if (found := re.fullmatch(r"NV(\d{1,3})", cells[one].get(other, "")))
    }
    nics = [name for name in names if name not in gpus]
    # Newer ones list what NIC0 is called.
    called = dict(re.findall(r"^[ \t]*(NIC\d{1,3}): (\S{1,40})[ \t]*$", text, re.MULTILINE))
    nearness = [[-_WAYS.get(cells[gpu].get(nic, ""), len(_WAYS)) for nic in nics] for gpu in gpus]
    shown = [called.get(name, name) for name in nics]
    nearest, ignored = _nearest(shown, nearness)
    far = [gpu for gpu, row in zip(gpus, nearness, strict=True) if max(row, default=-len(_WAYS)) < -_WAYS["PXB"]]
    longer = [f"the longer way of {', '.join(far)} to interfaces"] if 0 < len(far) < len(gpus) else []
    return NodeFacts(
        gpus=len(gpus),
        origin=f"nvidia-smi topo -m, {Path(origin).name}",
        pairs=tuple(pair for pair, count in joined.items() for _ in range(count)),
        through=True,
        nics={shown[at]: 0.0 for at in nearest},
        beside_gpu=len(far) < len(gpus),
        ignored=("affinities", *longer, *ignored),
    )


NCCL_TOPOLOGY = Format(
    "nccl-topology", lambda head: re.match(r"\s*(<[?!][^>]*>\s*)*<system\b", head) is not None, read_nccl_topology
)
NVIDIA_SMI = Format(
    "nvidia-smi-topo",
    lambda head: re.search(r"^[ \t]*(\x1b\[\d*m)?GPU0\s", head, re.MULTILINE) is not None,
    read_nvidia_smi,
)
SIMGRID, ASTRA, NS3 = (Format(name, pattern.search, None) for name, pattern in FORMATS.items())
