"""Specification of a calibration: what Python, the command line and files of JSON share."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from s2sim.errors import OptionError
from s2sim.experiment.cluster_spec import ClusterSpec, check_tuples, document_options, parse_workers, parsed


@document_options
@dataclass(frozen=True, slots=True)
class CalibrateSpec(ClusterSpec):
    """What `s2sim.validation.calibrate.run_calibration` computes, for the machine of a `ClusterSpec`."""

    what: ClassVar[str] = "calibration"

    topology: str
    _: KW_ONLY
    logs: tuple[str, ...] = ()
    workers: int | None = parsed(parse_workers, None)
    collective: str | None = None
    library: str | None = None
    suggest: bool = False

    def __post_init__(self) -> None:
        ClusterSpec.__post_init__(self)
        check_tuples(self, "logs")
        if not self.logs and not (self.suggest and self.workers):
            raise OptionError("no log was given: name one or more, or ask for --suggest with --workers")
        if self.faults:
            raise OptionError("a calibration is of a machine without faults: leave them out")
