"""Quantities at the edge ("400Gbps", "25MiB", "2us") and inside: integer picoseconds, bytes, bytes per second.

A bare number is refused: the reader of a file cannot know whether ``400`` means bits or bytes. ``b`` is a bit and
``B`` a byte; ``k``, ``M``, ``G``, ``T`` are powers of 1000 and ``Ki``, ``Mi``, ``Gi``, ``Ti`` powers of 1024.
"""

from __future__ import annotations

import re
from fractions import Fraction

from s2sim.errors import UnitError

PS_PER_S = 10**12

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ/]*)\s*")
_LONGEST_TEXT = 60
_PREFIX = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_PREFIX = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_ALL_PREFIXES = {**_PREFIX, **_BINARY_PREFIX}
_TIME_PS = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**9, "s": 10**12}
_SIZE_BYTES = {prefix + "B": Fraction(factor) for prefix, factor in _ALL_PREFIXES.items()}
_RATE_BPS = {
    **{f"{prefix}B/s": Fraction(factor) for prefix, factor in _ALL_PREFIXES.items()},
    **{f"{prefix}Bps": Fraction(factor) for prefix, factor in _ALL_PREFIXES.items()},
    **{f"{prefix}bps": Fraction(factor, 8) for prefix, factor in _ALL_PREFIXES.items()},
    **{f"{prefix}b/s": Fraction(factor, 8) for prefix, factor in _ALL_PREFIXES.items()},
    **{f"{prefix}bit/s": Fraction(factor, 8) for prefix, factor in _ALL_PREFIXES.items()},
}


# What no cluster has: above it a mistake is likelier than a machine, and integer picoseconds would overflow.
_MOST_SECONDS = 10**6
_MOST_BYTES = 2**60
_MOST_BPS = 10**18


def _parse(
    text: object, units: dict[str, Fraction] | dict[str, int], quantity: str, example: str, most: int
) -> Fraction:
    """Return a quantity in the smallest unit of ``units``; ``most`` is the largest that makes sense."""
    if isinstance(text, str) and len(text) > _LONGEST_TEXT:
        raise UnitError(f"{text[:20]!r}... is not a {quantity}: it has {len(text)} characters; write {example!r}")
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UnitError(f"{text!r} is not a {quantity}: write a number with its unit, for example {example!r}")
    number, unit = match.groups()
    if not unit:
        raise UnitError(f"{quantity} {text!r} has no unit: write for example {example!r}")
    if unit not in units:
        raise UnitError(f"{quantity} {text!r} has the unit {unit!r}; write for example {example!r}")
    if abs(float(number)) > most:
        raise UnitError(f"{quantity} {text!r} is out of all range")
    value = Fraction(number) * Fraction(units[unit])
    if value < 0:
        raise UnitError(f"{quantity} {text!r} is negative")
    if value > most:
        raise UnitError(f"{quantity} {text!r} is out of all range")
    return value


def parse_time_ps(text: object) -> int:
    """Return a time in integer picoseconds.

    >>> parse_time_ps("2.5us")
    2500000
    """
    return round(_parse(text, _TIME_PS, "time", "2us", _MOST_SECONDS * PS_PER_S))


def parse_size_bytes(text: object) -> int:
    """Return a size in bytes; a fraction of a byte is refused.

    >>> parse_size_bytes("25MiB")
    26214400
    """
    size = _parse(text, _SIZE_BYTES, "size", "25MiB", _MOST_BYTES)
    if size.denominator != 1:
        raise UnitError(f"size {text!r} is not a whole number of bytes")
    return int(size)


def parse_rate_Bps(text: object) -> float:
    """Return a rate in bytes per second; zero is refused, because nothing ever crosses such a link.

    >>> parse_rate_Bps("400Gbps"), parse_rate_Bps("50GiB/s")
    (50000000000.0, 53687091200.0)
    """
    rate = _parse(text, _RATE_BPS, "rate", "100Gbps", _MOST_BPS)
    if rate == 0:
        raise UnitError(f"rate {text!r} is zero: nothing would ever arrive")
    return float(rate)


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    for factor, unit in steps:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    factor, unit = steps[-1]
    return f"{value / factor:.4g} {unit}"


def format_seconds(seconds: float) -> str:
    """Return a time for reading.

    >>> format_seconds(0.0036771)
    '3.677 ms'
    """
    if seconds == 0:
        return "0 s"
    return _scaled(seconds, [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps")])


def format_bytes(size: float) -> str:
    """Return a size for reading, in powers of 1000.

    >>> format_bytes(104857600)
    '104.9 MB'
    """
    return _scaled(size, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])


def format_rate(rate_Bps: float) -> str:
    """Return a rate for reading, in bits per second as networks are sold.

    >>> format_rate(12.5e9)
    '100 Gbps'
    """
    return _scaled(rate_Bps * 8, [(1e12, "Tbps"), (1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps"), (1.0, "bps")])
