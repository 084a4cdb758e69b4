"""A table of measured times in a log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One message size; None if the log does not state it.

    ``line`` counts from 1, ``size_bytes`` is as nccl-tests counts it, bandwidths are rounded as printed.
    ``algorithm``, ``protocol`` (as ``ring``, ``LL128``) and ``channels`` are the stated choice of the library.
    """

    line: int
    size_bytes: int
    dtype: str
    time_s: float
    algbw_Bps: float | None
    busbw_Bps: float | None
    wrong: float | None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None


@dataclass(frozen=True, slots=True)
class RankDevice:
    """Where a rank ran."""

    rank: int
    host: str
    gpu: str


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """One table of a log and the facts of the lines around it; None or empty if not stated."""

    line: int  # Where its header stands in the log, from 1 on
    collective: str | None  # By the name that s2sim has for it, else by that of the log
    ranks: int | None
    devices: tuple[RankDevice, ...]
    gpus_per_thread: int | None  # GPUs that one thread launches on, one after the other
    library: str | None
    channels: int | None  # Channels that the library has for collectives
    rows: tuple[MeasuredRow, ...]  # In the order of the log, in which sizes may come again
    average_busbw_Bps: float | None
    unfinished: tuple[int, ...]  # Lines of rows that were begun and have no figures
    # rings, trees: of each channel: the ranks of its ring in their order, and the parent of each rank in its tree, -1
    # of the root
    rings: tuple[tuple[int, ...], ...] = ()
    trees: tuple[tuple[int, ...], ...] = ()
    transports: tuple[str, ...] = ()

    @property
    def hosts(self) -> int:
        """Hosts that are listed."""
        return len({device.host for device in self.devices})

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs that are listed, each once."""
        return tuple(dict.fromkeys(device.gpu for device in self.devices if device.gpu))
