"""The transfers of a traffic file."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from s2sim.arrays import Floats
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.cluster_spec import accept_fields_of
from s2sim.experiment.json_form import json_value, left_out
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.experiment.scenario import cluster as clusters
from s2sim.files import read_text
from s2sim.network.network import deliver_ps, uncontended_ps
from s2sim.network.packet_queues import count_packet_hops, pipeline_fill_ps
from s2sim.simulation.faults.fault import Effect, permanent_effects
from s2sim.topology.describe import summary_line
from s2sim.traffic import networks
from s2sim.traffic.spec import FlowsSpec
from s2sim.units import PS_PER_S

COLUMNS = ("start_s", "src", "dst", "bytes")
# A picosecond count of this many seconds still fits in 64 bits with room for what is simulated after it.
_LATEST_START_S = 1e6
_MAX_RANKS = 10**9
# About two million transfers.
_MAX_BYTES = 2**26


def read_transfers(path: Path) -> networks.Transfers:
    """Return transfers of a CSV file (``start_s``, ``src``, ``dst``, ``bytes``); `S2SimError` names a wrong line."""
    reader = csv.DictReader(io.StringIO(read_text(path, most_bytes=_MAX_BYTES)), skipinitialspace=True)
    try:
        if reader.fieldnames is None or set(COLUMNS) - set(reader.fieldnames):
            raise S2SimError(f"{path}: the first line must name the columns {','.join(COLUMNS)}")
        rows = [_read_row(row, f"{path}, line {reader.line_num}") for row in reader]
    except csv.Error as error:
        raise S2SimError(f"{path}, line {reader.line_num}: {error}") from None
    start_s, src, dst, sizes = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.zeros(0),) * 4
    return networks.Transfers(
        start_ps=np.rint(start_s * PS_PER_S).astype(np.int64),
        src=src.astype(np.int64),
        dst=dst.astype(np.int64),
        sizes_bytes=sizes.astype(np.float64),
    )


def _read_row(row: dict[str, str], where: str) -> tuple[float, int, int, float]:
    try:
        start_s, size_bytes = float(row["start_s"]), float(row["bytes"])
        src, dst = int(row["src"]), int(row["dst"])
    except (TypeError, ValueError):
        raise S2SimError(f"{where}: {','.join(COLUMNS)} must be numbers, ranks whole ones") from None
    if not 0 <= start_s <= _LATEST_START_S:
        raise S2SimError(f"{where}: start_s {start_s} must lie between 0 and {_LATEST_START_S:g} seconds")
    for name, rank in (("src", src), ("dst", dst)):
        if not 0 <= rank < _MAX_RANKS:
            raise S2SimError(f"{where}: {name} {str(rank)[:40]} is no rank: they count from 0")
    if src == dst:
        raise S2SimError(f"{where}: rank {src} sends to itself, which needs no network: leave the line out")
    if not 0 <= size_bytes < float("inf"):
        raise S2SimError(f"{where}: {size_bytes} bytes cannot be sent")
    return start_s, src, dst, size_bytes


class Flow(NamedTuple):
    """A transfer, when it was delivered, and its time over what it takes with nothing else in flight."""

    start_s: float
    src: int
    dst: int
    bytes: float
    finish_s: float
    slowdown: float


def _column(result: Mapping[str, Any], name: str) -> Floats:
    return np.array([flow[name] for flow in result["flows"]], np.float64)


def _load_transfers(result: Mapping[str, Any]) -> networks.Transfers:
    start_ps = np.rint(_column(result, "start_s") * PS_PER_S).astype(np.int64)
    src, dst = (_column(result, name).astype(np.int64) for name in ("src", "dst"))
    return networks.Transfers(start_ps, src, dst, _column(result, "bytes"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FlowsResult(clusters.FaultedForm):
    """What became of the transfers, in the order of the file."""

    more_json: ClassVar[tuple[str, ...]] = ("flows", "faults?", "fault_effects?", "cross_check?", "provenance?")

    spec: FlowsSpec
    spec_sha256: str  # The hash of the spec's content, transfers included
    transfers: networks.Transfers = field(metadata=left_out(_load_transfers))
    cluster: str  # The cluster in one line
    # finish_s, slowdown: when each was delivered, in seconds from time 0, and its time over what it would take
    # with nothing else in flight
    finish_s: Floats = field(metadata=left_out(lambda result: _column(result, "finish_s")))
    slowdown: Floats = field(metadata=left_out(lambda result: _column(result, "slowdown")))
    # The busiest links, over the time from the first start to the last delivery
    bottlenecks: tuple[networks.LinkLoad, ...]
    network: str
    cross_check: networks.CrossCheck | None = None  # What the other network says, where it was asked
    effects: tuple[Effect, ...] = field(default=(), metadata=left_out(clusters.load_effects))  # What each fault did
    provenance: dict[str, Any] = field(default_factory=dict)  # The run record

    @property
    def flows(self) -> list[Flow]:
        """The transfers one by one."""
        sent = self.transfers
        columns = (sent.start_ps / PS_PER_S, sent.src, sent.dst, sent.sizes_bytes, self.finish_s, self.slowdown)
        return list(map(Flow, *(column.tolist() for column in columns)))

    def to_csv(self) -> str:
        """Return the transfers as read, with two more columns."""
        return "\n".join([",".join(Flow._fields), *(",".join(map(repr, flow)) for flow in self.flows)]) + "\n"


@accept_fields_of(FlowsSpec)
def run_flows(file: str | Path, topology: str, *, workers: int | None = None, **options: Any) -> FlowsResult:
    """Send the transfers of a file over a cluster and return when each arrives.

    The file has one a line under the header ``start_s,src,dst,bytes``: seconds, ranks, and bytes. ``topology`` is the
    name of a shipped one or the path of a TOML file; ranks are those that the file names unless ``workers`` says more.
    """
    return simulate_transfers(FlowsSpec.of(topology, file=file, workers=workers, **options))


def simulate_transfers(
    spec: FlowsSpec, transfers: networks.Transfers | None = None, progress: ProgressWatcher = SILENT
) -> FlowsResult:
    """Send transfers over a cluster; slowdowns are against no faults. ``transfers``: needed if the spec has no file."""
    if transfers is None:
        if spec.file is None:
            raise OptionError("there is nothing to send: the spec names no file of transfers")
        transfers = read_transfers(Path(spec.file))
    scenario = clusters.resolve_traffic(spec)
    workers = spec.workers or transfers.ranks
    scenario.warn_of_idle_overrides(workers)
    healthy, cluster, faults = scenario.healthy(workers), scenario.cluster(workers), scenario.faults
    start_ps, src, dst, sizes_bytes = transfers.start_ps, transfers.src, transfers.dst, transfers.sizes_bytes
    routes, alone = cluster.routes(src, dst), healthy.routes(src, dst)
    # By network; a transfer's store-and-forward time is 0 without packets.
    finished_ps, fills_ps = {}, np.zeros(len(src), np.int64)
    if spec.as_packets:
        hops = count_packet_hops(routes, sizes_bytes, spec.packet_size_bytes)
        network = networks.packet_network(hops, spec, progress)
        finished_ps["packet"] = deliver_ps(cluster.fabric, routes, start_ps, sizes_bytes, network=network)
        progress.stop()
        fills_ps = pipeline_fill_ps(cluster.fabric, routes, sizes_bytes, spec.packet_size_bytes)
    sent = networks.RoutedBytes(routes, src, dst, sizes_bytes)
    effects = permanent_effects(faults, healthy, [(alone, routes, 1)])
    if scenario.disturbed:
        disturbed = networks.simulate_flows_with_faults(cluster, faults, transfers, progress)
        finished_ps["fluid"], sent = disturbed.ends_ps, disturbed.sent
        effects += disturbed.effects
    elif spec.cross_check or spec.network == "fluid":
        progress.start(len(src), "delivering")
        finished_ps["fluid"] = deliver_ps(cluster.fabric, routes, start_ps, sizes_bytes, progress.advance)
        progress.stop()
    alone_ps = uncontended_ps(healthy.fabric, alone, sizes_bytes) + (fills_ps if spec.network == "packet" else 0)
    finish_ps = finished_ps[spec.network]
    span_s = float(finish_ps.max(initial=0) - start_ps.min(initial=0)) / PS_PER_S
    check = None
    if spec.cross_check:
        fluid_ps, packets_ps = finished_ps["fluid"] - start_ps, finished_ps["packet"] - fills_ps - start_ps
        check = networks.CrossCheck(
            other=spec.other_network,
            packet_bytes=spec.packet_size_bytes,
            finish_s=finished_ps[spec.other_network] / PS_PER_S,
            fill_s=fills_ps / PS_PER_S,
            difference=(packets_ps - fluid_ps) / np.maximum(fluid_ps, 1),
        )
    record = clusters.traffic_record(spec, scenario, workers, json_value(transfers))
    return FlowsResult(
        spec=spec,
        spec_sha256=record["spec_sha256"],
        transfers=transfers,
        cluster=summary_line(cluster),
        finish_s=finish_ps / PS_PER_S,
        slowdown=np.where(alone_ps > 0, (finish_ps - start_ps) / np.maximum(alone_ps, 1), 1.0),
        bottlenecks=networks.busiest_links(cluster.fabric, lambda _: (sent,), span_s),
        network=spec.network,
        cross_check=check,
        effects=clusters.effects_in_order(effects, faults),
        provenance=record,
    )
