"""What was measured on a testbed: its settings, and times of collectives, reducers and iterations, as tables."""

from __future__ import annotations

from dataclasses import dataclass


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

    name: str
    workers: int
    nodes: int
    rate_Bps: float
    uplink_Bps: float
    processors: int
    machine: str
    kernel: str
    torch: str
    date: str
    command: str


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one thing repeated on a testbed, each that of the slowest rank.

    Attributes
    ----------
    setting : str
        Name of the testbed.
    what : str
        ``all_reduce``, ``all_gather``, ``all_to_all``, or an option string of a reducer.
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
    """

    setting: str
    what: str
    compute_s: float
    payload_bytes: int
    repeats: int
    median_s: float
    low_s: float
    high_s: float
    codec_s: float
    sent_bytes: int
