"""A calibration as people write it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from s2sim.errors import OptionError
from s2sim.study.cluster_spec import ClusterSpec, check_tuples


@dataclass(frozen=True, slots=True)
class CalibrateSpec(ClusterSpec):
    """What `s2sim.study.calibrate.run.run_calibration` computes, for the machine of a `ClusterSpec`.

    ``logs`` are paths of logs of nccl-tests or rccl-tests; None for ``workers``, ``collective`` and ``library`` takes
    what these say. With ``suggest`` the result says what to measure next.
    """

    what: ClassVar[str] = "calibration"

    _: KW_ONLY
    logs: tuple[str, ...] = ()
    workers: int | None = None
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
