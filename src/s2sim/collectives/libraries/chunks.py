"""In how many pieces NCCL sends what goes along a pipeline, by its rule for chunks.

A channel's part of a buffer goes along its tree in chunks that fit in a step of its buffers. Smaller buffers go in
smaller chunks, as long as these are not too small (`calcCollChunking` in src/enqueue.cc, v2.27, and the sizes of
buffers in src/include/device.h).
"""

from __future__ import annotations

from math import ceil

MOST_PIECES = 256
"""Beyond so many pieces a pipeline's fill is small, and rounds cost time here."""

# Data in a step of a channel's buffers.
_LL, _LL128, _SIMPLE = 32 << 10, 576_000, 512 << 10
# In a row of rules each halves chunks down to a least size while so many do not fill the tree's hops so often.
_SIMPLE_RULES = ((8, 128 << 10), (4, 64 << 10), (1, 32 << 10))
_LL128_RULES = ((64, 128 << 10), (16, 32 << 10))


def tree_pieces(protocol: str, size_bytes: float, channels: int, nodes: int, ranks_a_node: int) -> int:
    """Return in how many pieces each tree's part of an all-reduce goes up and down it.

    Parameters
    ----------
    protocol : str
        ``LL``, ``LL128``, or another, which is plain data.
    size_bytes : float
        Of the buffer.
    channels : int
        Trees that run side by side.
    nodes, ranks_a_node : int
        What trees lie over.

    Examples
    --------
    >>> [tree_pieces(protocol, 16 << 20, 16, 2, 8) for protocol in ("LL", "LL128", "Simple")]
    [32, 15, 16]
    """
    hops = (nodes - 1).bit_length()
    rules: tuple[tuple[int, int], ...] = ()
    chunk, filled = _LL, 0.0
    if protocol == "LL128":
        chunk, rules, filled = _LL128, _LL128_RULES, (1 + hops + 0.1 * ranks_a_node) / ranks_a_node
    elif protocol != "LL":
        chunk, rules, filled = _SIMPLE, _SIMPLE_RULES, ranks_a_node - 1 + hops
    for times, least in rules:
        while size_bytes / (channels * chunk) < filled * times and chunk > least:
            chunk //= 2
    return max(1, min(MOST_PIECES, ceil(size_bytes / (channels * chunk))))
