"""What was measured on a testbed: its settings, and times of collectives, reducers and iterations, as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

_Word = Annotated[str, Field(min_length=1, max_length=200)]
_Count = Annotated[int, Field(ge=1, le=2**20)]
_Bytes = Annotated[int, Field(ge=0, le=2**60)]
_Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
_Rate = Annotated[float, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Setting:
    """One testbed as it stood while something was measured.

    Attributes
    ----------
    name : str
        By which the other tables name it.
    workers, nodes : int
        Processes, and nodes that they are dealt to evenly; with ``nodes == workers`` each has an interface of its own.
    rate_Bps, uplink_Bps : float
        Of each node's interface, each way, and of each node's uplink to the switch that joins them; infinite where
        nothing shapes it.
    processors : int
        CPUs that all processes share.
    machine, kernel, torch : str
        Model of the CPU, release of the kernel, and version of PyTorch.
    date, command : str
        When, as ISO 8601, and what was called.
    """

    name: _Word
    workers: _Count
    nodes: _Count
    rate_Bps: _Rate
    uplink_Bps: _Rate
    processors: _Count
    machine: _Word
    kernel: _Word
    torch: _Word
    date: _Word
    command: str


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one thing repeated on a testbed, each that of the slowest rank.

    Attributes
    ----------
    setting : str
        Name of the testbed.
    what : str
        A collective, as ``all_reduce``, or an option string of a reducer, which does its first step, or
        with ``warm=true`` a later one.
    trace : str
        Trace whose gradients of its first step are reduced, rank by rank; empty for collectives.
    compute_s : float
        Seconds that every rank spins before it exchanges; 0 where the exchange stands alone.
    payload_bytes : int
        Buffer of a collective as nccl-tests count it, or of the dense gradient, in bytes.
    repeats : int
        Times measured, after those that warm up.
    median_s, low_s, high_s : float
        Median of the times in seconds, and their 10th and 90th percentile.
    codec_s : float
        Of the median, seconds that the slowest rank spends outside of collectives and of spinning; 0 of collectives.
    sent_bytes : int
        Bytes that TCP of the rank with most has sent in one repetition, payload and framing of the library.
    cpu_s : float
        CPU seconds of all processes together in one repetition, the kernel's work for them included, spinning not.
    """

    setting: _Word
    what: _Word
    trace: str
    compute_s: _Seconds
    payload_bytes: _Bytes
    repeats: _Count
    median_s: _Seconds
    low_s: _Seconds
    high_s: _Seconds
    codec_s: _Seconds
    sent_bytes: _Bytes
    cpu_s: _Seconds
