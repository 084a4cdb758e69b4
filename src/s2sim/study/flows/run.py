"""Any traffic: transfers from a file, through one cluster's network."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import S2SimError
from s2sim.network.models import check_network
from s2sim.network.packet.messages import PACKET_BYTES, fill_ps
from s2sim.network.transfers import idle_ps
from s2sim.replay.faults.lasting import lasting_effects
from s2sim.replay.faults.registry import make_faults
from s2sim.study.collective.disturbed import check_fluid, disturb_flows, effects_json, in_order, warn_of_idle_faults
from s2sim.study.collective.link_loads import LinkLoad, Sent, busiest_links
from s2sim.study.flows.cross_check import compare_networks
from s2sim.study.flows.deliver import deliver_fluid, deliver_packets
from s2sim.study.json_form import LEFT_OUT, JsonForm, key
from s2sim.study.scenario.cluster import Scenario
from s2sim.study.scenario.idle_overrides import warn_of_idle_overrides
from s2sim.text_files import read_text
from s2sim.topology.describe import first_line
from s2sim.topology.files.catalogue import load_shape
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from s2sim.replay.faults.fault import Effect
    from s2sim.study.flows.cross_check import CrossCheck
    from s2sim.study.progress import Progress

COLUMNS = ("start_s", "src", "dst", "bytes")
_RESULT_COLUMNS = (*COLUMNS, "finish_s", "slowdown")
# A picosecond count of this many seconds still fits in 64 bits with room for what is simulated after it.
_LATEST_START_S = 1e6
_MOST_RANKS = 10**9


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """What a traffic file asks for, one entry a line.

    Attributes
    ----------
    start_ps : int64 array, shape (n,)
        When each starts.
    src, dst : int64 arrays, shape (n,)
        Ranks.
    sizes_bytes : float64 array, shape (n,)
        Bytes of each.
    """

    start_ps: NDArray[np.int64]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    sizes_bytes: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class FlowsResult(JsonForm):
    """What became of the transfers, in the order of the file.

    Attributes
    ----------
    transfers : Transfers
        What was asked for.
    headline : str
        The cluster in one line.
    finish_s : float64 array, shape (n,)
        When each was delivered, in seconds from time 0.
    slowdown : float64 array, shape (n,)
        Its time over what it would take with nothing else in flight.
    bottlenecks : tuple of LinkLoad
        The busiest links, over the time from the first start to the last delivery.
    network : str
        What carried them.
    cross_check : CrossCheck, optional
        What the other network says, where it was asked.
    effects : tuple of Effect
        What each fault did.
    """

    transfers: Transfers = field(metadata=LEFT_OUT)
    headline: str = field(metadata=key("cluster"))
    finish_s: NDArray[np.float64] = field(metadata=LEFT_OUT)
    slowdown: NDArray[np.float64] = field(metadata=LEFT_OUT)
    bottlenecks: tuple[LinkLoad, ...]
    network: str
    cross_check: CrossCheck | None = field(metadata=LEFT_OUT)
    effects: tuple[Effect, ...] = field(default=(), metadata=LEFT_OUT)

    def _rows(self) -> Iterator[tuple[float | int, ...]]:
        asked = self.transfers
        columns = (asked.start_ps / PS_PER_S, asked.src, asked.dst, asked.sizes_bytes, self.finish_s, self.slowdown)
        return zip(*(column.tolist() for column in columns), strict=True)

    def to_csv(self) -> str:
        """Return the transfers as they were read, with two columns more."""
        lines = [",".join(_RESULT_COLUMNS), *(",".join(map(repr, row)) for row in self._rows())]
        return "\n".join(lines) + "\n"

    def more_json(self) -> dict[str, Any]:
        """Return the transfers one by one, and what was not always asked for."""
        check = {} if self.cross_check is None else {"cross_check": self.cross_check}
        flows = [dict(zip(_RESULT_COLUMNS, row, strict=True)) for row in self._rows()]
        return {"flows": flows, **check, **effects_json(self.effects)}


def read_transfers(path: Path) -> Transfers:
    """Return the transfers of a CSV file with the columns ``start_s``, ``src``, ``dst`` and ``bytes``.

    Raises
    ------
    S2SimError
        Naming the line that is wrong.
    """
    text = read_text(path)
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    if reader.fieldnames is None or set(COLUMNS) - set(reader.fieldnames):
        raise S2SimError(f"{path}: the first line must name the columns {','.join(COLUMNS)}")
    rows = [_read_row(row, f"{path}, line {reader.line_num}") for row in reader]
    start_s, src, dst, sizes = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.zeros(0),) * 4
    return Transfers(
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
        if not 0 <= rank < _MOST_RANKS:
            raise S2SimError(f"{where}: {name} {str(rank)[:40]} is no rank: they count from 0")
    if src == dst:
        raise S2SimError(f"{where}: rank {src} sends to itself, which needs no network: leave the line out")
    if not 0 <= size_bytes < float("inf"):
        raise S2SimError(f"{where}: {size_bytes} bytes cannot be sent")
    return start_s, src, dst, size_bytes


def run_flows(
    transfers: Transfers,
    topology: str,
    *,
    workers: int | None = None,
    placement: str = "linear",
    overrides: Sequence[str] = (),
    seed: int = 0,
    network: str = "fluid",
    packet_bytes: int | None = None,
    buffer_bytes: int | None = None,
    cross_check: bool = False,
    faults: Sequence[str] = (),
    progress: Progress | None = None,
) -> FlowsResult:
    """Send transfers over a cluster and say when each arrives.

    Parameters
    ----------
    transfers : Transfers
        From `read_transfers`.
    topology : str
        Name of a shipped topology or path of a TOML file.
    workers : int, optional
        Ranks; without it as many as the transfers name.
    placement, overrides, seed
        As in `s2sim.run_collective`.
    network : str
        ``"fluid"`` or ``"packet"``.
    packet_bytes, buffer_bytes : int, optional
        Of the packet network, as in `s2sim.network.models.make_network`.
    cross_check : bool
        Run the other network too and compare.
    faults : sequence of str
        Option strings of what goes wrong; a slowdown is against the network without them.
    progress : Progress, optional
        Told of deliveries, or of packets.
    """
    options = {"packet_bytes": packet_bytes, "buffer_bytes": buffer_bytes}
    check_network(network)
    check_network("packet" if cross_check else network, **options)
    named = int(max(transfers.src.max(initial=0), transfers.dst.max(initial=0))) + 1
    asked_faults = make_faults(faults)
    check_fluid(asked_faults, network, cross_check=cross_check)
    scenario = Scenario(load_shape(topology, overrides), tuple(overrides), placement, seed, asked_faults)
    warn_of_idle_overrides(scenario, workers or named)
    healthy, cluster = scenario.healthy(workers or named), scenario.cluster(workers or named)
    routes = cluster.routes(transfers.src, transfers.dst)
    alone = healthy.routes(transfers.src, transfers.dst)
    asked = cluster.fabric, routes, transfers.start_ps, transfers.sizes_bytes
    size_bytes = PACKET_BYTES if packet_bytes is None else packet_bytes
    finish_ps, fills_ps = {}, np.zeros(len(transfers.src), np.int64)
    if cross_check or network == "packet":
        finish_ps["packet"] = deliver_packets(
            *asked, packet_bytes=size_bytes, buffer_bytes=buffer_bytes, progress=progress
        )
        fills_ps = fill_ps(cluster.fabric, routes, transfers.sizes_bytes, size_bytes)
    sent = Sent(routes, transfers.src, transfers.dst, transfers.sizes_bytes)
    effects = lasting_effects(asked_faults, healthy, [(alone, routes, 1)])
    if not all(fault.lasting for fault in asked_faults):
        pairs = transfers.src, transfers.dst
        disturbed = disturb_flows(cluster, asked_faults, transfers.start_ps, pairs, transfers.sizes_bytes, progress)
        finish_ps["fluid"], sent = disturbed.ends_ps, disturbed.sent
        effects += disturbed.effects
    elif cross_check or network == "fluid":
        finish_ps["fluid"] = deliver_fluid(*asked, progress)
    warn_of_idle_faults(effects)
    own_ps = finish_ps[network] - transfers.start_ps
    alone_ps = idle_ps(healthy.fabric, alone, transfers.sizes_bytes)
    if network == "packet":
        alone_ps = alone_ps + fills_ps
    span_s = float(finish_ps[network].max(initial=0) - transfers.start_ps.min(initial=0)) / PS_PER_S
    check = None
    if cross_check:
        other = "fluid" if network == "packet" else "packet"
        check = compare_networks(other, size_bytes, transfers.start_ps, finish_ps, fills_ps)
    return FlowsResult(
        transfers=transfers,
        headline=first_line(cluster),
        finish_s=finish_ps[network] / PS_PER_S,
        slowdown=np.where(alone_ps > 0, own_ps / np.maximum(alone_ps, 1), 1.0),
        bottlenecks=busiest_links(cluster.fabric, lambda: (sent,), span_s),
        network=network,
        cross_check=check,
        effects=in_order(effects, asked_faults),
    )
