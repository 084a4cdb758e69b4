"""How rates are kept: what a token bucket holds, what TCP hands over at once, and how much it may have under way."""

from __future__ import annotations

import math
from dataclasses import dataclass

# An Ethernet frame as the kernel's shapers count it: 14 bytes of its header, 20 of IPv4's, 32 of TCP's with time
# stamps, and what it carries. Preamble, check sequence and gap between frames are not counted.
MTU_BYTES = 1500
FRAME_BYTES = 14 + MTU_BYTES
SEGMENT_BYTES = MTU_BYTES - 20 - 32

# What TCP hands over at once passes a shaper as one, for which others wait so long; shorter, and every frame would cost
# an interruption.
_AT_ONCE_S = 250e-6
_MOST_SEGMENTS = 44
# A timer is late by less than that nearly always; a bucket keeps what would be lost meanwhile.
_LATE_S = 100e-6
# Acknowledgements are back by then, where nothing queues, also if processes keep processors busy.
_RETURN_S = 4e-3
# A window without scaling, which scales by powers of two; these are limits that no kernel goes beyond.
_WINDOW_BYTES = 65535
_MOST_SCALE = 5
# What a receiver that waits for a processor leaves unread; the kernel counts the memory that packets take.
_ROOM_BYTES = 4 * 2**20
# Connections from one worker to another that queues have room for.
_CONNECTIONS = 8
_MOST_QUEUE_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Shaping:
    """How a testbed keeps its rates."""

    segments: int  # Most that TCP hands over at once, in segments of 1448 bytes
    window_bytes: int  # Most that a connection has under way, in bytes
    # Room of a connection at either end, in memory: for a window, and what a late receiver leaves unread.
    room_bytes: int
    # Room of every queue: for all that connections may have under way together, so that nothing is ever lost.
    queue_bytes: int

    @property
    def window_segments(self) -> int:
        """Segments that make a window."""
        return math.ceil(self.window_bytes / SEGMENT_BYTES)

    def burst_bytes(self, rate_Bps: float) -> int:
        """Return what a token bucket of a rate holds: all that TCP hands over at once, and what a late timer costs."""
        return math.ceil(self.segments * FRAME_BYTES + rate_Bps * _LATE_S)


def shaping_of(workers: int, rate_Bps: float) -> Shaping:
    """Return how a testbed keeps its rates, of which this is the least, in bytes per second.

    >>> shaping_of(8, 125e6)
    Shaping(segments=20, window_bytes=524280, room_bytes=4194304, queue_bytes=67107840)
    """
    segments = min(max(rate_Bps * _AT_ONCE_S / FRAME_BYTES, 1), _MOST_SEGMENTS)
    windows = min(max(rate_Bps * _RETURN_S / _WINDOW_BYTES, 1), 2**_MOST_SCALE)
    window_bytes = _WINDOW_BYTES << math.ceil(math.log2(windows))
    return Shaping(
        segments=int(segments),
        window_bytes=window_bytes,
        room_bytes=max(_ROOM_BYTES, 2 * window_bytes),
        queue_bytes=min(2 * _CONNECTIONS * workers * window_bytes, _MOST_QUEUE_BYTES),
    )
