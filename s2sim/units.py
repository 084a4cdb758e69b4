"""Quantities at the edge ("400Gbps", "25MiB", "2us") and inside: integer picoseconds, bytes, bytes per second.

A bare number is refused: the reader of a file cannot know whether ``400`` means bits or bytes. ``b`` is a bit and
``B`` a byte; ``k``, ``M``, ``G``, ``T`` are powers of 1000 and ``Ki``, ``Mi``, ``Gi``, ``Ti`` powers of 1024.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from s2sim.errors import UnitError

T = TypeVar("T")

PS_PER_S = 10**12

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?(\d+))?)\s*([A-Za-zµμ/]*)\s*")
_MAX_TEXT = 40
# Larger powers of ten are out of every range.
_MAX_EXPONENT = 3
_PREFIX = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_PREFIX = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_ALL_PREFIXES = {**_PREFIX, **_BINARY_PREFIX}
_TIME_PS = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**9, "s": 10**12}
_SIZE_BYTES = {prefix + "B": Fraction(factor) for prefix, factor in _ALL_PREFIXES.items()}
_PER_BYTE = {"B/s": 1, "Bps": 1, "bps": 8, "b/s": 8, "bit/s": 8}
_RATE_BPS = {
    f"{prefix}{unit}": Fraction(factor, units)
    for prefix, factor in _ALL_PREFIXES.items()
    for unit, units in _PER_BYTE.items()
}
_WORK_PER_S = {f"{prefix}{unit}": Fraction(factor) for prefix, factor in _PREFIX.items() for unit in ("FLOP/s", "OP/s")}


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of quantity, with its units; values above ``most`` are refused."""

    name: str
    units: dict[str, Fraction] | dict[str, int]
    example: str
    most: int
    limit: str


_TIME = _Kind("time", _TIME_PS, "2us", 10**6 * PS_PER_S, "1e6 s")
_SIZE = _Kind("size", _SIZE_BYTES, "25MiB", 2**60, "2^60 bytes")
_RATE = _Kind("rate", _RATE_BPS, "100Gbps", 10**18, "1e18 B/s")
_WORK_RATE = _Kind("rate of work", _WORK_PER_S, "20TFLOP/s", 10**18, "1e18 FLOP/s")


def _cut(value: object) -> str:
    """Return a value as a message quotes it, shortened."""
    if isinstance(value, int) and abs(value) >= 10**_MAX_TEXT:
        return f"a number of more than {_MAX_TEXT} digits"
    text = repr(value)
    return text if len(text) <= _MAX_TEXT + 2 else f"{text[:_MAX_TEXT]}..."


def _parse(text: object, kind: _Kind) -> Fraction:
    """Return a quantity in the smallest of its units."""
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UnitError(
            f"{_cut(text)} is not a {kind.name}: write a number with its unit, for example {kind.example!r}"
        )
    number, exponent, unit = match.groups()
    if not unit:
        raise UnitError(f"{kind.name} {_cut(text)} has no unit: write for example {kind.example!r}")
    if unit not in kind.units:
        raise UnitError(f"{kind.name} {_cut(text)} has the unit {_cut(unit)}; write for example {kind.example!r}")
    if len(number) > _MAX_TEXT or len(exponent or "") > _MAX_EXPONENT:
        raise UnitError(f"{kind.name} {_cut(text)} has too many digits: write for example {kind.example!r}")
    value = Fraction(number) * Fraction(kind.units[unit])
    if value < 0:
        raise UnitError(f"{kind.name} {_cut(text)} is negative")
    if value > kind.most:
        raise UnitError(f"{kind.name} {_cut(text)} is out of range: at most {kind.limit}, for example {kind.example!r}")
    return value


def parse_time_ps(text: object) -> int:
    """Return a time in integer picoseconds.

    >>> parse_time_ps("2.5us")
    2500000
    """
    return round(_parse(text, _TIME))


def parse_size_bytes(text: object) -> int:
    """Return a size in bytes; a fraction of a byte is refused.

    >>> parse_size_bytes("25MiB")
    26214400
    """
    size = _parse(text, _SIZE)
    if size.denominator != 1:
        raise UnitError(f"size {text!r} is not a whole number of bytes")
    return int(size)


def parse_rate_Bps(text: object) -> float:
    """Return a rate in bytes per second; below 1 B/s it is refused, zero because nothing ever crosses such a link.

    >>> parse_rate_Bps("400Gbps"), parse_rate_Bps("50GiB/s")
    (50000000000.0, 53687091200.0)
    """
    rate = _parse(text, _RATE)
    if rate == 0:
        raise UnitError(f"rate {text!r} is zero: nothing would ever arrive")
    if rate < 1:
        raise UnitError(f"rate {text!r} is out of range: at least 1 B/s, for example '100Gbps'")
    return float(rate)


def parse_work_rate_per_s(text: object) -> float:
    """Return a rate in operations per second; below 1 FLOP/s it is refused.

    >>> parse_work_rate_per_s("19.5TFLOP/s")
    19500000000000.0
    """
    rate = _parse(text, _WORK_RATE)
    if rate < 1:
        raise UnitError(f"rate of work {text!r} is out of range: at least 1 FLOP/s, for example '20TFLOP/s'")
    return float(rate)


def parse_option(option: str, parse: Callable[[object], T], text: object) -> T:
    """Return the text of an option, or of another place that is named, parsed; the error names it.

    >>> parse_option("--compute", parse_time_ps, "120ms")
    120000000000
    """
    try:
        return parse(text)
    except UnitError as error:
        raise UnitError(f"{option}: {error}") from None


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    factor, unit = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    return f"{value / factor:.4g} {unit}"


def format_seconds(seconds: float) -> str:
    """Return a time for reading.

    >>> format_seconds(0.0036771)
    '3.677 ms'
    """
    if seconds == 0:
        return "0 s"
    return _scaled(seconds, [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps")])


def brief_seconds(seconds: float) -> str:
    """Return a time in three digits.

    >>> brief_seconds(0.0018677)
    '1.87 ms'
    """
    return format_seconds(float(f"{seconds:.3g}"))


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


def format_ratio(ratio: float, digits: int) -> str:
    """Return a ratio with few digits; what is below one never reads as one.

    >>> format_ratio(0.01234, 3), format_ratio(1.236, 3), format_ratio(0.9997, 2)
    ('0.0123', '1.24', '0.99')
    """
    text = f"{ratio:.{digits}g}"
    return f"{1 - 10.0**-digits:g}" if ratio < 1 <= float(text) else text


def enumerate_words(several: Sequence[object]) -> str:
    """Return a list in words.

    >>> enumerate_words([8]), enumerate_words([8, 16, 64])
    ('8', '8, 16 and 64')
    """
    *before, last = map(str, several)
    return f"{', '.join(before)} and {last}" if before else last


def format_count(number: int) -> str:
    """Return a number of things for reading, in powers of 1000.

    >>> format_count(38282), format_count(25557032), format_count(640)
    ('38.28 k', '25.56 M', '640')
    """
    return _scaled(number, [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]).rstrip()


def format_money(amount: float, currency: str) -> str:
    """Return an amount of money in cents, or where it is small in three digits.

    >>> format_money(1234.567, "USD"), format_money(0.012345, "EUR")
    ('1,234.57 USD', '0.0123 EUR')
    """
    return f"{amount:,.2f} {currency}" if amount >= 1 else f"{amount:.3g} {currency}"


def plural(number: int, word: str) -> str:
    """Return a word for one or for several things.

    >>> plural(1, "leaf"), plural(3, "leaf"), plural(2, "switch"), plural(2, "node")
    ('leaf', 'leaves', 'switches', 'nodes')
    """
    if number == 1:
        return word
    if word.endswith("leaf"):
        return f"{word.removesuffix('f')}ves"
    return f"{word}es" if word.endswith("ch") else f"{word}s"


def format_percent(share: float) -> str:
    """Return a share in whole percents, never rounded up to all or down to nothing.

    >>> format_percent(0.999), format_percent(1.0), format_percent(0.0), format_percent(0.001)
    ('99%', '100%', '0%', '1%')
    """
    percent = round(100 * share)
    return f"{percent if share in (0, 1) else min(max(percent, 1), 99)}%"


def format_number_of(number: int, word: str) -> str:
    """Return a number with its noun.

    >>> format_number_of(1, "node"), format_number_of(3, "leaf")
    ('1 node', '3 leaves')
    """
    return f"{number} {plural(number, word)}"
