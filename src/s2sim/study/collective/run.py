"""One collective on one cluster, by the names and values of its spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s2sim.study.by_name import takes_fields_of
from s2sim.study.collective.outcome import result_of
from s2sim.study.collective.plan import plan_collective
from s2sim.study.collective.spec import CollectiveSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.collective.result import CollectiveResult


@takes_fields_of(CollectiveSpec)
def run_collective(
    kind: str, topology: str, *, workers: int, size_bytes: int | Sequence[int], **options: Any
) -> CollectiveResult:
    """Simulate one collective from a common start, with nothing else on the cluster.

    Parameters
    ----------
    kind : str
        What it does, one of `KINDS`.
    topology : str
        Name of a shipped topology or path of a TOML file.
    size_bytes : int or sequence of int
        As nccl-tests counts it, or what each rank contributes.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked.
    """
    spec = CollectiveSpec.of(topology, kind=kind, workers=workers, size_bytes=size_bytes, **options)
    return result_of(plan_collective(spec))
