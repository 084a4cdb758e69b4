"""What a rank computes beside tensor- and pipeline-parallel ones on a cluster, what these send each other included."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.profile import PLAIN
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.groups import GroupsTimer
from s2sim.profiles.share import share_of_rank
from s2sim.units import PS_PER_S, format_seconds

if TYPE_CHECKING:
    from s2sim.collectives.libraries.profile import Profile as LibraryProfile
    from s2sim.collectives.timing.timer import Timer
    from s2sim.profiles.profile import Profile
    from s2sim.profiles.share import Share
    from s2sim.study.scenario.groups import Groups
    from s2sim.topology.cluster import Cluster


def share_on(
    profile: Profile,
    groups: Groups,
    cluster: Cluster,
    *,
    mini_batches: int,
    value_bytes: int,
    library: LibraryProfile = PLAIN,
) -> Share:
    """Return what a rank of the first stage computes: all groups of a kind send what they do at once.

    Parameters
    ----------
    profile : Profile
        Of the whole model on one GPU, for what passes the stages as one mini-batch.
    groups : Groups
        Of all workers of the cluster.
    mini_batches : int
        In an iteration.
    value_bytes : int
        Of a value that layers pass on.
    library : LibraryProfile
        How a library runs what they send.
    """

    def all_reduce_ps(size_bytes: int) -> int:
        demand = Demand("all_reduce", (size_bytes,) * groups.tp, 1)
        return _timer(cluster, groups, "tp", library).time(demand).duration_ps

    def send_ps(size_bytes: int) -> int:
        # The last stage sends nothing on.
        demand = Demand("send_recv", (*(size_bytes,) * (groups.pp - 1), 0), 1)
        return _timer(cluster, groups, "pp", library).time(demand).duration_ps

    return share_of_rank(
        profile,
        tp=groups.tp,
        pp=groups.pp,
        mini_batches=mini_batches,
        value_bytes=value_bytes,
        all_reduce_ps=all_reduce_ps,
        send_ps=send_ps,
    )


# Mini-batches are tried one after the other on one cluster.
@lru_cache(maxsize=4)
def _timer(cluster: Cluster, groups: Groups, kind: str, library: LibraryProfile) -> Timer:
    return GroupsTimer(cluster, groups.of(kind), profile=library)


def share_notes(share: Share, groups: Groups) -> tuple[str, ...]:
    """Return in sentences what is in the times of a rank that shares a model with others."""
    if groups.count == 1:
        return ()
    shown = f"one rank of {groups.tp} that share the first of {groups.pp} stages is shown, which ends backward last"
    notes = [f"{shown}; all {groups.count} groups exchange gradients as it does"]
    parts = (
        (share.tensor_parallel_ps, "all-reduces between tensor-parallel ranks"),
        (share.pipeline_ps, "activations sent to the next stage"),
    )
    told = [f"{format_seconds(ps / PS_PER_S)} of {what}" for ps, what in parts if ps]
    if told:
        notes.append(f"forward and backward of a mini-batch have {' and '.join(told)} in them")
    if share.idle_ps:
        notes.append(
            f"the rank waits {format_seconds(share.idle_ps / PS_PER_S)} of an iteration for other stages, with one "
            "forward and one backward in turns; more mini-batches (--accumulate) make that a smaller share"
        )
    return (*notes, *((share.untold,) if share.untold else ()))
