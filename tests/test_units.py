"""Quantities at the edge: what is read, what is refused, and what is written for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import UnitError
from s2sim.units import (
    format_bytes,
    format_rate,
    format_seconds,
    parse_rate_Bps,
    parse_size_bytes,
    parse_time_ps,
)


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
    ],
)
def test_what_is_refused_is_told_in_one_short_line(parse, text):
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_rate_of_nothing_and_a_part_of_a_byte_are_refused():
    with pytest.raises(UnitError, match="nothing would ever arrive"):
        parse_rate_Bps("0Gbps")
    with pytest.raises(UnitError, match="whole number of bytes"):
        parse_size_bytes("0.3B")


@given(st.integers(0, 2**50))
def test_bytes_read_back(size):
    assert parse_size_bytes(f"{size}B") == size


@given(st.floats(1e-11, 1e4), st.floats(1, 1e15))
def test_what_is_written_reads_back_to_its_digits(seconds, rate_Bps):
    assert parse_time_ps(format_seconds(seconds)) / 1e12 == pytest.approx(seconds, rel=1e-3, abs=1e-12)
    assert parse_rate_Bps(format_rate(rate_Bps)) == pytest.approx(rate_Bps, rel=1e-3)
    assert format_bytes(rate_Bps).endswith("B")
