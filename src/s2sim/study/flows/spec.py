"""Any traffic as people write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2sim.study.cluster_spec import check_whole
from s2sim.study.network_spec import NetworkSpec


@dataclass(frozen=True, slots=True)
class FlowsSpec(NetworkSpec):
    """What `s2sim flows` computes, on the cluster and in the network of a `NetworkSpec`.

    Attributes
    ----------
    file : str or None
        Path of the transfers; None for those that a caller has at hand.
    workers : int or None
        Ranks; None for as many as the transfers name.
    """

    what: ClassVar[str] = "flows"

    file: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        NetworkSpec.__post_init__(self)
        if self.workers is not None:
            check_whole(self.workers)
