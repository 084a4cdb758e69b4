"""One collective as people write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from s2sim.collectives.schedules.demand import Kind
from s2sim.collectives.timing.timer import AUTO
from s2sim.errors import OptionError, unknown_name
from s2sim.study.cluster_spec import check_whole
from s2sim.study.network_spec import NetworkSpec

Execution: TypeAlias = Literal["auto", "clocked", "by-message"]


@dataclass(frozen=True, slots=True)
class CollectiveSpec(NetworkSpec):
    """What `s2sim.run_collective` computes, on the cluster and in the network of a `NetworkSpec`.

    Attributes
    ----------
    kind : str
        What it does, one of `KINDS`.
    size_bytes : int or tuple of int
        As nccl-tests counts it, or what each rank contributes.
    algorithm : str
        Option string, or ``auto`` for the fastest of those that libraries choose among.
    root : int
        Rank that a broadcast comes from or a reduce goes to.
    library : str or None
        Option string of the library whose launches, hops and protocols are added, as ``nccl``; None for
        the wire alone.
    groups : str or None
        Groups of ranks beside each other, as ``tp=8,pp=4,dp=rest``: every data-parallel one does it at once; None for
        one group of all.
    execution : {"auto", "clocked", "by-message"}
        Whether rounds are clocked for all ranks, or every rank waits for its own messages alone; by itself by message
        where faults make messages or ranks unequal, and clocked elsewhere.
    """

    what: ClassVar[str] = "collective"

    kind: Kind
    workers: int
    size_bytes: int | tuple[int, ...] = 0
    algorithm: str = AUTO
    root: int = 0
    library: str | None = None
    groups: str | None = None
    execution: Execution = "auto"

    def __post_init__(self) -> None:
        NetworkSpec.__post_init__(self)
        check_whole(self.workers, self.root)
        if self.workers < 1:
            raise OptionError(f"{self.workers} workers were asked for; at least 1 is needed")
        if self.execution not in get_args(Execution):
            raise unknown_name("execution", self.execution, get_args(Execution))
        if self.execution == "by-message" and (self.as_packets or self.groups is not None):
            raise OptionError(
                "execution by-message is of one group of ranks on the fluid network: leave it out, or --groups, "
                "--network packet and --cross-check"
            )
