"""What TCP of a process has sent, by the kernel's own count."""

from __future__ import annotations

import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

# struct tcp_info of Linux 4.19 and later: tcpi_notsent_bytes; tcpi_bytes_sent and tcpi_bytes_retrans.
_TCP_INFO_BYTES = 216
_NOT_SENT = struct.Struct("=I"), 144
_SENT = struct.Struct("=QQ"), 200


def sent_bytes() -> int:
    """Return the bytes that this process has given to its TCP connections since these exist, each counted once.

    What waits in the kernel to be sent counts, what was sent again does not, and headers of TCP and below neither.
    """
    return sum(_sent_on(int(path.name)) for path in Path("/proc/self/fd").iterdir())


def _sent_on(descriptor: int) -> int:
    # The descriptor that listed the folder is gone by now; what is no TCP connection has no such count.
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            if len(info) == _TCP_INFO_BYTES:
                (waiting,) = _NOT_SENT[0].unpack_from(info, _NOT_SENT[1])
                sent, again = _SENT[0].unpack_from(info, _SENT[1])
                return int(waiting + sent - again)
    return 0
