"""Rows of a made-up testbed, whose times known constants make."""

import math
from dataclasses import replace

from s2sim.testbed.measured import MeasuredSetting, MeasuredTiming
from s2sim.validation.testbed_fit import collective_s

OWN = (
    ("call.latency", "100us"),
    ("network.any.latency", "60us"),
    ("network.any.share", 0.95),
    ("processor.message", "60us"),
    ("processor.overlap", 2.5),
    ("processor.packet", "20us"),
    ("processor.rate", "3GB/s"),
)
SIZES = (4096, 1 << 18, 1 << 22)


def setting(workers, rate_Mbps, nodes=None, uplink_Bps=math.inf):
    return MeasuredSetting(
        name=f"w{workers}-{rate_Mbps}",
        workers=workers,
        nodes=nodes or workers,
        rate_Bps=rate_Mbps * 125e3,
        uplink_Bps=uplink_Bps,
        processors=2,
        machine="a machine",
        kernel="Linux",
        torch="2",
        date="2026-01-01",
        command="s2sim testbed run",
    )


def timed(where, what, size_bytes, seconds, **more):
    row = MeasuredTiming(
        where.name, what, "", 0.0, size_bytes, 9, seconds, seconds * 0.9, seconds * 1.1, 0.0, size_bytes, 0.0
    )
    return replace(row, **more)


def simulated(where):
    return [
        timed(where, what, size, collective_s(where, what, size, OWN))
        for what in ("all_reduce", "all_to_all")
        for size in SIZES
    ]
