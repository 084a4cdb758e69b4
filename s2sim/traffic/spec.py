"""Specifications of a collective and of other traffic: what Python, the command line and files of JSON share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from s2sim.collectives import Kind
from s2sim.errors import OptionError, UnknownNameError, check_known
from s2sim.experiment.cluster_spec import NetworkSpec, check_integer, document_options, parse_workers, parsed

Execution: TypeAlias = Literal["auto", "clocked", "by-message"]


@document_options
@dataclass(frozen=True, slots=True)
class CollectiveSpec(NetworkSpec):
    """What `s2sim.run_collective` computes, on the cluster and in the network of a `NetworkSpec`.

    ``size_bytes`` are counted as nccl-tests does, or what each rank contributes.
    """

    what: ClassVar[str] = "collective"

    kind: Kind = parsed(lambda text: text.replace("-", "_"))  # noqa: RUF009 (a field)
    workers: int = parsed(parse_workers)
    size_bytes: int | tuple[int, ...] = 0
    algorithm: str = "auto"
    root: int = 0
    library: str | None = None
    groups: str | None = None
    execution: Execution = "auto"

    def __post_init__(self) -> None:
        NetworkSpec.__post_init__(self)
        check_integer(self.workers, self.root)
        if self.workers < 1:
            raise OptionError(f"{self.workers} workers were asked for; at least 1 is needed")
        check_known(self.execution, get_args(Execution), f"unknown execution {self.execution!r}", UnknownNameError)
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

    file: str | None = None
    workers: int | None = parsed(parse_workers, None)

    def __post_init__(self) -> None:
        NetworkSpec.__post_init__(self)
        if self.workers is not None:
            check_integer(self.workers)
