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
    """One testbed as it stood while something was measured."""

    name: _Word  # By which the other tables name it
    # workers, nodes: Processes, and nodes that they are dealt to evenly; with ``nodes == workers`` each has an
    # interface of its own.
    workers: _Count
    nodes: _Count
    # rate_Bps, uplink_Bps: Of each node's interface, each way, and of each node's uplink to the switch that joins them;
    # infinite where nothing shapes it.
    rate_Bps: _Rate
    uplink_Bps: _Rate
    processors: _Count  # CPUs that all processes share
    # machine, kernel, torch: Model of the CPU, release of the kernel, and version of PyTorch.
    machine: _Word
    kernel: _Word
    torch: _Word
    # date, command: When, as ISO 8601, and what was called.
    date: _Word
    command: str


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one thing repeated on a testbed, each that of the slowest rank."""

    setting: _Word  # Name of the testbed
    # A collective, as ``all_reduce``, or an option string of a reducer, which does its first step, or with
    # ``warm=true`` a later one.
    what: _Word
    trace: str  # Trace whose gradients of its first step are reduced, rank by rank; empty for collectives
    compute_s: _Seconds  # Seconds that every rank spins before it exchanges; 0 where the exchange stands alone
    payload_bytes: _Bytes  # Buffer of a collective as nccl-tests count it, or of the dense gradient, in bytes
    repeats: _Count  # Times measured, after those that warm up
    # median_s, low_s, high_s: Median of the times in seconds, and their 10th and 90th percentile.
    median_s: _Seconds
    low_s: _Seconds
    high_s: _Seconds
    # Of the median, seconds that the slowest rank spends outside of collectives and of spinning; 0 of collectives.
    codec_s: _Seconds
    # Bytes that TCP of the rank with most has sent in one repetition, payload and framing of the library.
    sent_bytes: _Bytes
    # CPU seconds of all processes together in one repetition, the kernel's work for them included, spinning not.
    cpu_s: _Seconds
