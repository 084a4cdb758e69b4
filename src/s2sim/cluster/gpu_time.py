"""What encoding and decoding cost a GPU: bytes over memory bandwidth, and kernel launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.reducers.script import Work
    from s2sim.topology.hardware import Gpu


def work_ps(work: Work, gpu: Gpu) -> int:
    """Return the time of one piece of work in integer picoseconds.

    Bytes that codecs stream and scatter cross the memory at the share of its bandwidth that kernels reach; a table
    that is converted between dense and coordinate form costs as many passes at full bandwidth as were measured.
    """
    streamed = work.bytes_moved / gpu.stream_Bps
    converted = (
        work.dense_encode_bytes * gpu.dense_encode_passes + work.dense_decode_bytes * gpu.dense_decode_passes
    ) / gpu.memory_bandwidth_Bps
    return round((streamed + converted) * PS_PER_S) + work.launches * gpu.kernel_launch_ps
