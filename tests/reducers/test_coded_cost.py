"""Costs of codes of the host's CPU, counted by hand."""

from s2sim.reducers import gpu_cost as coded_cost
from s2sim.reducers.script import Work


def test_positions_are_selected_on_the_gpu_and_coded_on_the_host():
    # Five passes over 1,000 values, and 10 pairs written and copied; two steps a position.
    once = Work("encode", 20_000 + 80, launches=6, host_steps=20, copied_bytes=80)
    assert coded_cost.encode_positions_cost(1000, 10) == once
    twice = Work("encode", 2 * (20_000 + 80), launches=12, host_steps=20, copied_bytes=80)
    assert coded_cost.encode_positions_cost(1000, 10, selections=2) == twice
    # The result is cleared; each pair is read, and its sector read and written.
    decode = Work("decode", 4000 + 30 * (8 + 64), launches=2, host_steps=60, copied_bytes=240)
    assert coded_cost.decode_positions_cost(1000, 30) == decode


def test_levels_are_copied_whole_and_coded_bit_by_bit():
    encode = Work("encode", 8000 + 1000, launches=2, host_steps=1000 + 400, copied_bytes=1000)
    assert coded_cost.encode_levels_cost(1000, 50) == encode
    decode = Work("decode", 3 * 1000 + 3 * 8000, launches=3, host_steps=1200, copied_bytes=3000)
    assert coded_cost.decode_levels_cost(1000, 3, 150) == decode
