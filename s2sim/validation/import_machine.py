"""Cluster files of what machines and simulators say; what files leave open is of the hardware catalogue, or assumed."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from s2sim.errors import OptionError, S2SimError, unknown_name
from s2sim.files import read_text, toml_text, toml_value
from s2sim.registry import Registry
from s2sim.topology.cluster import build_cluster
from s2sim.topology.fields import load_fields
from s2sim.topology.graph_file import read_description
from s2sim.topology.hardware import catalogue_values, gpu_links, usual_library
from s2sim.topology.quantity import Quantity
from s2sim.topology.read_file import parse_shape
from s2sim.units import format_number_of, parse_rate_Bps
from s2sim.validation.curve import MeasuredMachine
from s2sim.validation.curve_machine import machine_shape
from s2sim.validation.node_files import Format, NodeFacts, names

FORMATS = Registry(
    "format",
    "s2sim.formats",
    {
        "nccl-topology": "s2sim.validation.node_files:NCCL_TOPOLOGY",
        "nvidia-smi-topo": "s2sim.validation.node_files:NVIDIA_SMI",
        "simgrid-platform": "s2sim.validation.node_files:SIMGRID",
        "astra-network": "s2sim.validation.node_files:ASTRA",
        "ns3-topology": "s2sim.validation.node_files:NS3",
    },
)
"""Files of nodes and of networks, each a `Format`; packages add theirs as ``s2sim.formats``."""

MAX_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class ImportedMachine:
    """The text of a cluster file, and what was understood, ignored and assumed."""

    format: str
    text: str
    understood: str
    ignored: tuple[str, ...]
    assumed: tuple[str, ...]


def import_machine(
    path: Path,
    *,
    form: str | None = None,
    gpu: str | None = None,
    transport: str | None = None,
    nic_rate: str | None = None,
    folder: Path = Path(),
) -> ImportedMachine:
    """Return the cluster file of nodes as a file describes one; `S2SimError` for what is damaged or of no known kind.

    ``form`` is the format, recognised unless given; ``gpu``, ``transport`` and ``nic_rate`` (with its unit) replace
    what the file says or leaves open. A graph stays in its file, which the text names from ``folder``.
    """
    text = read_text(path, noun="the file", most_bytes=MAX_BYTES)
    if gpu is not None and gpu not in gpu_links():
        raise unknown_name("GPU", gpu, gpu_links())
    found: Format = FORMATS.get(_recognise(text, path) if form is None else form)
    given = {"gpu": gpu, "nic.transport": transport, "nic.rate": nic_rate}
    options = {field: value for field, value in given.items() if value}
    if found.read is None:
        return _import_network(found.name, path, options, folder)
    facts = found.read(text, str(path))
    if (name := gpu or facts.gpu) is None:
        raise OptionError(f"{path} does not say which GPUs these are: add --gpu NAME, such as --gpu h100")
    links = gpu_links()[name].links
    facts = replace(facts if links is None else facts.of_links(int(links.value)), gpu=name)
    understood = facts.understood
    if nic_rate is not None:
        facts = replace(facts, nics=dict.fromkeys(facts.nics or {}, parse_rate_Bps(nic_rate) * 8 / 1e9))
    assumed = [f"{facts.gpu_why}: --gpu NAME says otherwise"] if facts.gpu_why and not gpu else []
    if facts.links and facts.hosts == 1 and name.startswith("gb"):
        assumed.append("NVSwitches join the GPUs of this node alone: nvlink.domain_nodes = N, those of N such nodes")
    assumed += [*facts.assumed, *_network_assumptions(facts, transport)]
    fields = {
        item.field: _from(item, item.source.replace("index", facts.origin), options) if item.kind == "user" else item
        for item in machine_shape(_machine(path, facts, name, transport)).quantities
        if not item.field.startswith("nvlink.")
    }
    fields |= {item.field: item for item in _stated(facts, name)}
    fields["library"] = Quantity("library", usual_library(name), "user", "what runs between these GPUs")
    parse_shape(dict(fields), path)
    tree = "switches and sockets of PCIe: write pcie.gpus_per_switch and pcie.sockets"
    ignored = facts.ignored if facts.links or facts.pairs else (*facts.ignored, tree)
    return ImportedMachine(found.name, _toml(path, fields, assumed), understood, ignored, tuple(assumed))


def _import_network(form: str, path: Path, options: Mapping[str, str], folder: Path) -> ImportedMachine:
    fields, _, graph = read_description(path, [f"{name}={value}" for name, value in options.items()])
    shape = parse_shape(dict(fields), path, graph)
    if graph is not None:
        build_cluster(shape, graph.hosts * shape.gpus_per_node).layout.hops()  # Refuses what no path joins
    given = load_fields(path, (), {"fabric.kind": "graph", "fabric.file": os.path.relpath(path, folder), **options})
    assumed = [_ASSUMED[form]]
    text = _toml(path, {name: _from(item, form, options) for name, item in given.items()}, assumed)
    hosts, links = (0, 0) if graph is None else (graph.hosts, len(graph.links))
    understood = f"{format_number_of(hosts, 'host')} of {fields['node.gpus'].value} GPUs, {links} directions of links"
    return ImportedMachine(form, text, understood, (), tuple(assumed))


_OPTIONS = {"gpu": "option --gpu", "nic.transport": "option --transport", "nic.rate": "option --nic-rate"}


def _from(item: Quantity, source: str, options: Mapping[str, str]) -> Quantity:
    """Return a value with its source, which is an option for fields of ``options``."""
    return replace(item, source=_OPTIONS[item.field] if item.field in options else source)


_ASSUMED = {
    "simgrid-platform": "links that each flow has for itself (FATPIPE) have the rate of all hosts together",
    "astra-network": "GB/s are of 2^30 bytes, and the NPUs of the first of several dimensions are a node",
    "ns3-topology": "routes are the shortest ones: --set routing=ecmp draws among them",
}


def _recognise(text: str, path: Path) -> str:
    for name in FORMATS.names():
        if FORMATS.get(name).recognises(text[:4096]):
            return name
    for mark, what in names()["others"].items():
        if mark in text[:4096]:
            raise S2SimError(f"{path} looks like {what.format(path)}")
    raise S2SimError(
        f"{path} is of no kind that is known ({', '.join(FORMATS.names())}): --as KIND takes it for one; graphs and "
        "lists of edges are read by --topology FILE, gradients by s2sim trace import"
    )


def _transport(facts: NodeFacts) -> str:
    first = next(iter(facts.nics or {}), "")
    if facts.sockets:
        return "tcp"
    return next((of for begin, of in names()["transport"].items() if first.startswith(begin)), "ib-verbs")


def _network_assumptions(facts: NodeFacts, transport: str | None) -> Iterator[str]:
    if not facts.nics:
        yield "no interface to a network was found: several nodes cannot be asked for"
        return
    yield "one switch joins all nodes and blocks nothing: change [fabric] for another network"
    if transport is None:
        why = "as interfaces have no port" if facts.sockets else f"by the name {next(iter(facts.nics))}"
        yield f"transport {_transport(facts)}, {why}: --transport says otherwise"
    if len(rates := set(facts.nics.values())) > 1 or _interfaces(facts) != len(facts.nics):
        shown = ", ".join(f"{rate:g}" for rate in sorted(rates))
        yield f"{len(facts.nics)} interfaces of {shown} Gbps are taken for {_interfaces(facts)} of one rate together"


def _machine(path: Path, facts: NodeFacts, gpu: str, transport: str | None) -> MeasuredMachine:
    """Return the node, with another one where a network joins them, as a row of an index."""
    rates_Gbps = [*(facts.nics or {}).values()]
    if not all(rates_Gbps):
        raise OptionError(f"{path} does not say how fast its interfaces are: add --nic-rate, such as 200Gbps")
    count = _interfaces(facts)
    # Links inside a node are those that it states: one GPU stands for all.
    return MeasuredMachine(
        id=path.stem,
        gpu_model=gpu_links()[gpu].names[0],
        gpus_per_node=1 if count else 2,
        nodes=2 if count else 1,
        ranks=2,
        intra_interconnect="PCIe",
        collective="all_reduce",
        nics_per_node=count,
        nic_rate_gbps=sum(rates_Gbps) / count if count else 0.0,
        nvlink_domain_gpus=1,
        transport=(transport or _transport(facts)) if count else "none",
        path="switch" if facts.beside_gpu else "host-bridge",
    )


def _interfaces(facts: NodeFacts) -> int:
    """Return the interfaces of a node: as many for each GPU, or fewer than GPUs."""
    count = len(facts.nics or {})
    return facts.gpus if count > facts.gpus and count % facts.gpus else count


def _stated(facts: NodeFacts, gpu: str) -> Iterator[Quantity]:
    """Yield the values that the file states, in place of those of the catalogue."""
    yield Quantity("node.gpus", facts.gpus, "user", facts.origin)
    if not facts.nics:
        yield Quantity("fabric.nodes", 1, "user", f"{facts.origin} has no interface")
    if facts.links or facts.pairs:
        if (nvlink := gpu_links()[gpu].nvlink) is None:
            raise S2SimError(f"{facts.origin} has NVLinks, and {gpu} has none in the catalogue: give another --gpu")
        one = catalogue_values("nvlink", nvlink)["rate"]
        if facts.links:
            source = f"{facts.origin}: {facts.links} links to switches; {one.source}"
            yield replace(_times(one, facts.links), field="nvlink.rate", source=source)
            yield catalogue_values("latency", "nvlink_port")["value"].of("nvlink.latency")
            if facts.hosts > 1:
                hosts = f"{facts.origin} has so many hosts"
                yield Quantity("nvlink.domain_nodes", facts.hosts, "user", hosts)
        else:
            yield Quantity("nvlink.kind", "mesh", "user", facts.origin)
            yield one.of("nvlink.rate")
            yield catalogue_values("latency", "nvlink_direct")["value"].of("nvlink.latency")
            yield Quantity("nvlink.pairs", [list(pair) for pair in facts.pairs], "user", facts.origin)
    if facts.pcie is not None:
        generation, lanes = facts.pcie
        rate = catalogue_values("pcie", generation)["rate"]
        source = f"{facts.origin}: {generation}, x{16 * lanes:g}; {rate.source}"
        yield replace(_times(rate, lanes), field="pcie.rate", source=source)


def _times(rate: Quantity, factor: float) -> Quantity:
    return replace(rate, value=f"{float(str(rate.value).removesuffix('GB/s')) * factor:g}GB/s")


def _toml(path: Path, fields: Mapping[str, Quantity], assumed: Sequence[str]) -> str:
    said = [f"Of {path.name}, by s2sim import", *(f"Assumed: {each}" for each in assumed)]
    # Names in comments are those of the file, which may hold anything.
    head = "\n".join(f"# {toml_value(text)[1:-1]}." for text in said)
    values: dict[str, Any] = {"name": path.stem}
    for item in fields.values():
        if item.field.rpartition(".")[2] != "name":
            values[item.field] = {"value": item.value, "kind": item.kind, "source": item.source}
    return toml_text(values, head)
