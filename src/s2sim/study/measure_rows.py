"""From a replay to a result row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.cluster.replay import demand_of
from s2sim.collectives.bounds import LowerBound, lower_bound
from s2sim.collectives.timing import link_bytes
from s2sim.reducers.script import Post, Wait
from s2sim.reducers.traffic import recording_bytes
from s2sim.study.result import CollectiveRow, Row
from s2sim.units import PS_PER_S, format_rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.cluster.replay import Replay
    from s2sim.reducers.script import Call, Recording
    from s2sim.study.record import Recorded
    from s2sim.topology.cluster import Cluster


def stages(recording: Recording) -> list[list[Call]]:
    """Return the collectives in groups: all of a group are done on every rank before the next group is posted."""
    groups: list[list[Call]] = [[]]
    open_calls: set[int] = set()
    for step in recording.scripts[0]:
        if isinstance(step, Post):
            if not open_calls and groups[-1]:
                groups.append([])
            groups[-1].append(recording.calls[step.call])
            open_calls.add(step.call)
        elif isinstance(step, Wait):
            open_calls -= set(step.calls)
    return groups


def communication_bound(recording: Recording, cluster: Cluster) -> LowerBound:
    """Return the bandwidth lower bound of a recording: its stages' bounds, one after another."""
    cuts = cluster.cuts()
    bounds = [lower_bound([demand_of([call]) for call in group], cuts) for group in stages(recording)]
    longest = max(bounds, key=lambda bound: bound.seconds)
    return LowerBound(sum(bound.seconds for bound in bounds), longest.derivation)


def traffic(recording: Recording, replay: Replay, *, ring: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank over all collectives, of ring algorithms or of what ran."""
    if ring:
        return recording_bytes(recording)
    total = np.zeros((2, recording.workers), np.int64)
    for launch in replay.launches:
        total += launch.timed.schedule.traffic()
    return total[0], total[1]


def bottleneck_text(replay: Replay, cluster: Cluster) -> str:
    """Return which phase takes most of the time, and which link was busiest in it."""
    phases = {
        "encoding": replay.encode_ps,
        "transfers and waiting": replay.communication_ps,
        "decoding": replay.decode_ps,
    }
    if replay.total_ps == 0:
        return "nothing takes time"
    phase, longest = max(phases.items(), key=lambda item: item[1])
    text = f"{longest / replay.total_ps:.0%} of the communication phase goes to {phase}"
    carried = np.zeros(len(cluster.fabric.rate_Bps))
    for launch in replay.launches:
        carried += link_bytes(launch.timed.schedule, cluster, launch.timed.routes)
    busy_s = carried / cluster.fabric.rate_Bps
    if replay.communication_ps == 0 or not busy_s.any():
        return text
    link = int(busy_s.argmax())
    share = busy_s[link] * PS_PER_S / replay.communication_ps
    rate = format_rate(float(cluster.fabric.rate_Bps[link]))
    return f"{text}; the busiest link is {cluster.fabric.link_names[link]} ({rate}), busy {share:.0%} of communication"


def make_row(
    recorded: Recorded,
    replay: Replay,
    cluster: Cluster,
    *,
    dense: tuple[Replay, int],
    ring: bool,
    compute_ps: int | None,
) -> Row:
    """Return the row of one reducer.

    Parameters
    ----------
    recorded : Recorded
        The reducer, its scripts and its errors.
    replay : Replay
        In time, on ``cluster``.
    dense : (Replay, int)
        Of the dense reducer on the same cluster, and its bytes sent a rank.
    ring : bool
        Whether bytes are those of ring algorithms (the convention) or of the algorithm that was asked for.
    compute_ps : int or None
        Compute time of an iteration, without overlap.
    """
    sent, received = traffic(recorded.recording, replay, ring=ring)
    bound = communication_bound(recorded.recording, cluster)
    dense_replay, dense_sent = dense
    most_sent = int(sent.max())
    base = compute_ps or 0
    return Row(
        reducer=recorded.reducer.name,
        option_string=recorded.option_string,
        options=recorded.reducer.options(),
        workers=cluster.workers,
        lossless=recorded.reducer.lossless,
        encode_s=replay.encode_ps / PS_PER_S,
        communication_s=replay.communication_ps / PS_PER_S,
        decode_s=replay.decode_ps / PS_PER_S,
        total_s=replay.total_ps / PS_PER_S,
        iteration_s=None if compute_ps is None else (compute_ps + replay.total_ps) / PS_PER_S,
        bytes_sent_per_rank=most_sent,
        bytes_received_per_rank=int(received.max()),
        ratio=dense_sent / most_sent if most_sent else None,
        error=recorded.errors.whole,
        error_compressed=recorded.errors.compressed,
        error_per_layer=recorded.errors.layers,
        lower_bound_s=bound.seconds,
        lower_bound_why=bound.derivation,
        speedup_vs_dense=_ratio(base + dense_replay.total_ps, base + replay.total_ps),
        collectives=tuple(
            CollectiveRow(
                kind=call.kind,
                algorithm=launch.timed.schedule.algorithm,
                label=call.label,
                bytes=max(call.bytes_by_rank),
                time_s=(launch.end_ps - launch.start_ps) / PS_PER_S,
                size_from_data=call.size_from_data,
                why=launch.timed.why,
            )
            for launch in replay.launches
            for call in (recorded.recording.calls[number] for number in launch.calls)
        ),
        bottleneck=bottleneck_text(replay, cluster),
    )


def _ratio(dense_ps: int, own_ps: int) -> float:
    """Return the speed-up; 1 where neither takes time, as on one rank without compute."""
    if own_ps == 0:
        return 1.0 if dense_ps == 0 else float("inf")
    return dense_ps / own_ps
