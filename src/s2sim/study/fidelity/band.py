"""A band, as text, and what stands in JSON where a time has one."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.units import format_seconds


@dataclass(frozen=True, slots=True)
class Band:
    """Where nine of ten measured times lie that were predicted as one.

    ``of`` says which errors it is made of.
    """

    low_s: float
    high_s: float
    of: str


def band_text(low_s: float, high_s: float) -> str:
    """Return the ends of a band for reading.

    >>> band_text(0.0036123, 0.0049), band_text(0.00065, 0.0011)
    ('3.6 to 4.9 ms', '650 us to 1.1 ms')
    """
    low, high = (format_seconds(float(f"{end:.2g}")) for end in (low_s, high_s))
    number, _, unit = low.rpartition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"
