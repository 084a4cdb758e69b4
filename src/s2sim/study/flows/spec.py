"""Any traffic as people write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2sim.study.cluster_spec import check_whole
from s2sim.study.network_spec import NetworkSpec
from s2sim.study.spec_options import option, parse_workers


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
            check_whole(self.workers)
