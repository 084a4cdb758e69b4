"""Quantities at the edge: what is read, what is refused, and what is written for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import UnitError
from s2sim.units import format_bytes, format_rate, format_seconds, parse_rate_Bps, parse_size_bytes, parse_time_ps


@pytest.mark.parametrize(
    ("text", "rate_Bps"),
    [
        ("8bps", 1),
        ("1kbps", 125),
        ("100Gbps", 12.5e9),
        ("100 Gb/s", 12.5e9),
        ("100Gbit/s", 12.5e9),
        ("1GB/s", 1e9),
        ("50GiB/s", 50 * 2**30),
        ("53687091200B/s", 53687091200),
        ("1.25e9B/s", 1.25e9),
        ("0.5Tbps", 62.5e9),
    ],
)
def test_rates_tell_bits_from_bytes(text, rate_Bps):
    assert parse_rate_Bps(text) == rate_Bps


def test_sizes_and_times():
    assert parse_size_bytes("25MiB") == 25 * 2**20
    assert parse_size_bytes("25MB") == 25 * 10**6
    assert parse_size_bytes("0B") == 0
    assert parse_time_ps("250ns") == 250_000
    assert parse_time_ps("1.5ps") == 2
    assert parse_time_ps("0s") == 0
    assert parse_time_ps("3µs") == parse_time_ps("3us")


@pytest.mark.parametrize("parse", [parse_rate_Bps, parse_size_bytes, parse_time_ps])
@pytest.mark.parametrize(
    "text",
    [
        *("", "12", "x", "12 parsecs", "-1s", "-1B", "-1bps", "nan s", "infGbps"),
        *("1e400Gbps", "1e30s", "1e30B", "1" * 400, None, 12, 1.5, ["1s"]),
        *("1e999999999s", "1e-999999999B", "0e999999999Gbps", "1" * 400 + "s", "1" + "s" * 400),
        *("0." + "1" * 400 + "B", 10**400, -(10**400), ["1s"] * 400),
    ],
)
def test_what_is_refused_is_told_in_one_short_line(parse, text):
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 160


def test_a_number_too_long_to_print_is_refused():
    with pytest.raises(UnitError, match="a number of more than 40 digits is not a time"):
        parse_time_ps(10**5000)


@pytest.mark.parametrize(
    ("parse", "most", "too_much"),
    [
        (parse_time_ps, "1e6s", "1000001s"),
        (parse_time_ps, "1e18ps", "1e19ps"),
        (parse_size_bytes, "1048576TiB", "1048577TiB"),
        (parse_rate_Bps, "1e18B/s", "2e18B/s"),
        (parse_rate_Bps, "8e6Tbps", "9e6Tbps"),
    ],
)
def test_the_range_ends_where_it_says(parse, most, too_much):
    assert parse(most) in (10**18, 2**60)
    with pytest.raises(UnitError, match=r"out of range: at most (1e6 s|2\^60 bytes|1e18 B/s)"):
        parse(too_much)


def test_a_rate_below_a_byte_a_second_is_refused():
    assert parse_rate_Bps("8bps") == 1
    for text in ("7bps", "1e-300Gbps"):
        with pytest.raises(UnitError, match="at least 1 B/s"):
            parse_rate_Bps(text)


def test_a_rate_of_nothing_and_a_part_of_a_byte_are_refused():
    with pytest.raises(UnitError, match="nothing would ever arrive"):
        parse_rate_Bps("0Gbps")
    with pytest.raises(UnitError, match="whole number of bytes"):
        parse_size_bytes("0.3B")


BYTE_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BYTE_PREFIXES |= {f"{prefix}i": 2 ** (10 * power) for power, prefix in enumerate("KMGT", 1)}


@given(st.integers(8, 10**5), st.sampled_from(sorted(BYTE_PREFIXES)))
def test_a_prefix_multiplies_and_a_bit_is_an_eighth_of_a_byte(number, prefix):
    bytes_ = number * BYTE_PREFIXES[prefix]
    assert parse_size_bytes(f"{number}{prefix}B") == bytes_
    assert parse_rate_Bps(f"{number}{prefix}B/s") == parse_rate_Bps(f"{number}{prefix}Bps") == bytes_
    for bit in ("bps", "b/s", "bit/s"):
        assert parse_rate_Bps(f"{number}{prefix}{bit}") == bytes_ / 8


@given(st.integers(0, 2**50))
def test_bytes_read_back(size):
    assert parse_size_bytes(f"{size}B") == size


@given(st.floats(1e-11, 1e4), st.floats(1, 1e15))
def test_what_is_written_reads_back_to_its_digits(seconds, rate_Bps):
    assert parse_time_ps(format_seconds(seconds)) / 1e12 == pytest.approx(seconds, rel=1e-3, abs=1e-12)
    assert parse_rate_Bps(format_rate(rate_Bps)) == pytest.approx(rate_Bps, rel=1e-3)


@given(st.integers(1, 10**15))
def test_sizes_are_written_in_powers_of_1000(size):
    number, unit = format_bytes(size).split()
    assert float(number) * BYTE_PREFIXES[unit.removesuffix("B")] == pytest.approx(size, rel=1e-3)
