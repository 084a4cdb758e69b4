"""How much of a buffer is in flight through an NVSwitch at once, by NCCL's rule for chunks.

A reduction in switches is a pipeline: nothing comes out of it before its first chunks have gone through every stage.
NCCL lets each channel work on a chunk for each GPU that reads sums ("head"), and takes smaller chunks of smaller
buffers (`calcCollChunking` in src/enqueue.cc, v2.27).
"""

from __future__ import annotations

# In a row of rules each makes chunks smaller where a buffer is not so many times what is in flight.
_INSIDE_NODE = (131072, ((64, 65536), (8, 32768), (2, 16384)))
_OVER_NODES = (131072, ((4, 65536), (1, 32768)))


def in_flight_bytes(size_bytes: float, lanes: int, *, over_nodes: bool) -> float:
    """Return the bytes of a buffer that are in flight at once on ``lanes`` = channels times heads.

    With ``over_nodes`` for NVLS trees, whose chunks are larger for the same buffer.

    >>> in_flight_bytes(64 << 20, 128, over_nodes=True) / 2**20
    16.0
    """
    chunk, rules = _OVER_NODES if over_nodes else _INSIDE_NODE
    for times, smaller in rules:
        if size_bytes < times * lanes * chunk:
            chunk = smaller
    return min(size_bytes, float(lanes * chunk))
