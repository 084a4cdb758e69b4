"""Specifications of a collective and of other traffic: what Python, the command line and files of JSON share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias, get_args

from s2sim.collectives.kinds import KINDS, Kind
from s2sim.errors import OptionError, unknown_name
from s2sim.experiment.cluster_spec import NetworkSpec, check_integer, described, document_options, option, parse_workers

Execution: TypeAlias = Literal["auto", "clocked", "by-message"]


@document_options
@dataclass(frozen=True, slots=True)
class CollectiveSpec(NetworkSpec):
    """What `s2sim.run_collective` computes, on the cluster and in the network of a `NetworkSpec`.

    ``size_bytes`` are counted as nccl-tests does, or what each rank contributes.
    """

    what: ClassVar[str] = "collective"

    kind: Kind = field(
        metadata=described("KIND", f"{', '.join(KINDS)}.", argument=True, parse=lambda text: text.replace("-", "_"))
    )
    workers: int = field(metadata=described("N", "Number of workers (ranks, GPUs).", parse=parse_workers))
    size_bytes: int | tuple[int, ...] = 0
    algorithm: str = option(
        "auto",
        None,
        "Option string such as ring or double-binary-tree:chunks=8 (see s2sim list collectives), or auto for the "
        "fastest of those that libraries choose among; another one that is faster is named.",
    )
    root: int = option(0, None, "Rank that a broadcast comes from or a reduce goes to, from 0 on.", at_least=0)
    library: str | None = option(
        None,
        "LIBRARY",
        "Add what a library's launches, hops and protocols take: nccl, or nccl:launch=node where one process drives "
        "all GPUs of a node. Needs a topology that says nic.transport.",
        none="the wire alone",
    )
    groups: str | None = option(
        None,
        "tp=N,pp=N,dp=rest",
        "Let every data-parallel group do it at once: tp ranks share a layer, dp replicas hold the same, pp stages "
        "follow each other, and ranks are numbered in that order (or order=tp-pp-dp).",
        none="one group of all workers",
    )
    execution: Execution = field(
        default="auto",
        metadata=described(
            "HOW",
            "clocked: all ranks wait for whole rounds; by-message: each for its own messages alone, with the time of "
            "clocked rounds beside it; auto: by message where faults make ranks or messages unequal.",
        ),
    )

    def __post_init__(self) -> None:
        NetworkSpec.__post_init__(self)
        check_integer(self.workers, self.root)
        if self.workers < 1:
            raise OptionError(f"{self.workers} workers were asked for; at least 1 is needed")
        if self.execution not in get_args(Execution):
            raise unknown_name("execution", self.execution, get_args(Execution))
        if self.execution == "by-message" and (self.as_packets or self.groups is not None):
            raise OptionError(
                "execution by-message is of one group of ranks on the fluid network: leave it out, or --groups, "
                "--network packet and --cross-check"
            )


@document_options
@dataclass(frozen=True, slots=True)
class FlowsSpec(NetworkSpec):
    """What `s2sim flows` computes, on the cluster and in the network of a `NetworkSpec`.

    ``file`` is None for transfers that a caller has at hand.
    """

    what: ClassVar[str] = "flows"

    file: str | None = option(
        None,
        "FILE.csv",
        "Transfers, one a line under the header start_s,src,dst,bytes: seconds, ranks, and bytes.",
        argument=True,
    )
    workers: int | None = option(
        None, "N", "Number of workers (ranks, GPUs).", none="as many as the file names", parse=parse_workers
    )

    def __post_init__(self) -> None:
        NetworkSpec.__post_init__(self)
        if self.workers is not None:
            check_integer(self.workers)
