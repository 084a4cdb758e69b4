"""One collective on one cluster: time, bandwidths as nccl-tests counts them, bound and busiest links."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.collectives.bounds import lower_bound
from s2sim.collectives.closed_form import closed_form_s
from s2sim.collectives.registry import make_algorithm
from s2sim.collectives.schedule import KINDS, Demand, Kind
from s2sim.collectives.timing import AUTO, Timer, link_bytes
from s2sim.errors import ContendedError, OptionError, S2SimWarning, unknown_name
from s2sim.study.idle import warn_of_idle_overrides
from s2sim.study.link_loads import LinkLoad, busiest_links
from s2sim.topology.catalogue import load_shape
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import first_line
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """What `s2sim.run_collective` returns.

    Attributes
    ----------
    kind, algorithm, why, headline : str
        What ran, why that algorithm, and where.
    workers, size_bytes : int
        Ranks, and the size as nccl-tests counts it.
    time_s : float
        Of the last rank.
    lower_bound_s, lower_bound_why : float, str
        No schedule is faster, and the cut or partition that forces it.
    closed_form_s : float or None
        What the algorithm's closed form gives; None where messages share links, so that none holds.
    algbw_Bps, busbw_Bps : float or None
        Size over time, and that times the factor by which links see it; None where no time passes.
    bytes_per_rank : int
        Most bytes sent by a rank.
    bottlenecks : tuple of LinkLoad
        The busiest links.
    """

    kind: str
    algorithm: str
    why: str
    headline: str
    workers: int
    size_bytes: int
    time_s: float
    lower_bound_s: float
    lower_bound_why: str
    closed_form_s: float | None
    algbw_Bps: float | None
    busbw_Bps: float | None
    bytes_per_rank: int
    bottlenecks: tuple[LinkLoad, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result with the keys that other programs rely on."""
        return {
            "kind": self.kind,
            "workers": self.workers,
            "size_bytes": self.size_bytes,
            "time_s": self.time_s,
            "algbw_Bps": self.algbw_Bps,
            "busbw_Bps": self.busbw_Bps,
            "lower_bound_s": self.lower_bound_s,
            "lower_bound_why": self.lower_bound_why,
            "closed_form_s": self.closed_form_s,
            "algorithm": self.algorithm,
            "why": self.why,
            "bytes_per_rank": self.bytes_per_rank,
            "bottlenecks": [item.to_json() for item in self.bottlenecks],
            "cluster": self.headline,
        }


def make_demand(kind: Kind, size_bytes: int, workers: int) -> Demand:
    """Return the demand of a size as nccl-tests counts it: a rank's buffer, or for an all-gather the gathered one.

    Elements are float32 where the size allows, else bytes; an all-gather whose size does not divide by the ranks
    gathers contributions that differ by one element.
    """
    if kind not in KINDS:
        raise unknown_name("collective", kind, KINDS)
    itemsize = _FLOAT32_BYTES if size_bytes % _FLOAT32_BYTES == 0 else 1
    elements = size_bytes // itemsize
    if kind == "all_reduce":
        return Demand(kind, (elements,) * workers, itemsize)
    return Demand(kind, tuple(np.diff(np.arange(workers + 1) * elements // workers).tolist()), itemsize)


def run_collective(
    kind: Kind,
    topology: str,
    *,
    workers: int,
    size_bytes: int,
    algorithm: str = AUTO,
    placement: str = "linear",
    overrides: Sequence[str] = (),
    seed: int = 0,
) -> CollectiveResult:
    """Simulate one collective from a common start, with nothing else on the cluster.

    Parameters
    ----------
    kind : {"all_reduce", "all_gather"}
        What it does.
    topology : str
        Name of a shipped topology or path of a TOML file.
    workers : int
        Ranks.
    size_bytes : int
        As nccl-tests counts it.
    algorithm : str
        Option string, or ``auto`` for the fastest.
    placement : str
        ``linear`` or ``round-robin``.
    overrides : sequence of str
        ``field=value`` on the topology's fields.
    seed : int
        Of ECMP's hash.
    """
    if workers < 1:
        raise OptionError(f"{workers} workers were asked for; at least 1 is needed")
    demand = make_demand(kind, size_bytes, workers)
    shape = load_shape(topology, overrides)
    if seed and shape.routing != "ecmp":
        warnings.warn(f"--seed {seed} changes nothing here: only ecmp routing draws", S2SimWarning, stacklevel=2)
    cluster = build_cluster(shape, workers, placement=placement, seed=seed)
    warn_of_idle_overrides(overrides, cluster)
    if algorithm != AUTO:
        make_algorithm(algorithm, kind)
    timed = Timer(cluster, algorithm).time(demand)
    time_s = timed.duration_ps / PS_PER_S
    try:
        closed = closed_form_s(timed.schedule, cluster, timed.routes)
    except ContendedError:
        closed = None
    bound = lower_bound([demand], cluster.cuts())
    algbw = size_bytes / time_s if time_s else None
    factor = (2 if kind == "all_reduce" else 1) * (workers - 1) / workers
    return CollectiveResult(
        kind=kind,
        algorithm=timed.schedule.algorithm,
        why=timed.why,
        headline=first_line(cluster),
        workers=workers,
        size_bytes=size_bytes,
        time_s=time_s,
        lower_bound_s=bound.seconds,
        lower_bound_why=bound.derivation,
        closed_form_s=closed,
        algbw_Bps=algbw,
        busbw_Bps=None if algbw is None else algbw * factor,
        bytes_per_rank=int(timed.schedule.traffic()[0].max()),
        bottlenecks=busiest_links(cluster.fabric, link_bytes(timed.schedule, cluster, timed.routes), time_s),
    )
