"""A table of measured times, as a log has it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One message size.

    Attributes
    ----------
    line : int
        Where it stands in the log, from 1 on.
    size_bytes : int
        As nccl-tests counts it.
    dtype : str
        Type of the elements, by the name in the log.
    algbw_Bps, busbw_Bps : float or None
        As printed, so rounded; None where the log has none.
    wrong : float or None
        Elements that came out wrong; None where nobody looked.
    algorithm, protocol : str or None
        What the library says that it took for this size, as ``ring`` and ``LL128``; None where the log lacks it.
    channels : int or None
        Over how many channels, likewise.
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
class Device:
    """Where a rank ran."""

    rank: int
    host: str
    gpu: str


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """One table of a log, and what the lines around it say of it.

    Attributes
    ----------
    line : int
        Where its header stands in the log, from 1 on.
    collective : str or None
        By the name that s2sim has for it, else by that of the log; None where the log names none.
    ranks : int or None
        None where the log does not say.
    devices : tuple of Device
        As far as they are listed, by rank.
    gpus_per_thread : int or None
        GPUs that one thread launches on, one after the other.
    library : str or None
        Which one ran, with its version.
    channels : int or None
        Channels that the library has for collectives; None where the log does not say.
    rows : tuple of MeasuredRow
        In the order of the log, in which sizes may come again.
    average_busbw_Bps : float or None
        As printed below the table.
    unfinished : tuple of int
        Lines of rows that were begun and have no figures.
    rings : tuple of tuple of int
        The ranks of each channel's ring in their order, as far as the library tells it.
    trees : tuple of tuple of int
        The parent of each rank in each channel's tree, -1 of its root, likewise.
    transports : tuple of str
        What ranks are connected by, in the library's words.
    """

    line: int
    collective: str | None
    ranks: int | None
    devices: tuple[Device, ...]
    gpus_per_thread: int | None
    library: str | None
    channels: int | None
    rows: tuple[MeasuredRow, ...]
    average_busbw_Bps: float | None
    unfinished: tuple[int, ...]
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
