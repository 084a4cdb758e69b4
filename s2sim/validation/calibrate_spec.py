"""Specification of a calibration: what Python, the command line and files of JSON share."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from s2sim.errors import OptionError
from s2sim.experiment.cluster_spec import ClusterSpec, check_tuples, described, document_options, option, parse_workers


@document_options
@dataclass(frozen=True, slots=True)
class CalibrateSpec(ClusterSpec):
    """What `s2sim.validation.calibrate.run_calibration` computes, for the machine of a `ClusterSpec`."""

    what: ClassVar[str] = "calibration"

    topology: str = field(
        metadata=described(
            "NAME|FILE",
            "The machine: name of a shipped topology (see s2sim list topologies) or path of a TOML file, which says "
            "nic.transport.",
        )
    )
    _: KW_ONLY
    logs: tuple[str, ...] = option(
        (),
        "LOG...",
        "Logs of nccl-tests or rccl-tests, as people keep them; five sizes from the smallest to the largest suffice. "
        "Required without --suggest.",
        argument=True,
    )
    workers: int | None = option(None, "N", "Ranks that ran.", none="as the logs say", parse=parse_workers)
    collective: str | None = option(None, "KIND", "What to take of the logs, for example all_reduce.", none="all")
    library: str | None = option(
        None, "LIBRARY", "Library whose constants are fitted: nccl or rccl.", none="as the logs say, or nccl"
    )
    suggest: bool = option(False, None, "Say which measurement would make predictions surest.")

    def __post_init__(self) -> None:
        ClusterSpec.__post_init__(self)
        check_tuples(self, "logs")
        if not self.logs and not (self.suggest and self.workers):
            raise OptionError("no log was given: name one or more, or ask for --suggest with --workers")
        if self.faults:
            raise OptionError("a calibration is of a machine without faults: leave them out")
