"""What the kernel has counted of this process's connections, and of the interface that they go over."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Places in the kernel's struct tcp_info (include/uapi/linux/tcp.h, Linux 4.19 and later).
_BYTES_SENT, _INFO_BYTES = 200, 220
_INTERFACES = Path("/proc/self/net/dev")


@dataclass(frozen=True, slots=True)
class Counted:
    """What the kernel counts, all from when it began to."""

    sent_bytes: int  # What this process's TCP connections have sent, headers and what was sent again left out
    again_bytes: int  # What they have sent again, because an acknowledgement was late
    repeats: int  # Acknowledgements that told them so
    connections: int  # How many there are
    # interface_bytes, packets: What every process has sent over the loopback interface of this network namespace,
    # headers of IP and TCP included.
    interface_bytes: int
    packets: int


def count() -> Counted:
    """Return what the kernel has counted so far; `S2SimError` where it does not."""
    connections = list(_connections())
    sent, again, repeats = (sum(each[at] for each in connections) for at in range(3))
    return Counted(sent - again, again, repeats, len(connections), *_loopback())


def _connections() -> Iterator[tuple[int, int, int]]:
    """Yield of each connection the bytes that it has sent, those of them sent again, and how often it was told so."""
    for path in Path("/proc/self/fd").iterdir():
        try:
            if not str(path.readlink()).startswith("socket:"):
                continue
            # It is the library's; what is closed here is another descriptor of it.
            with socket.socket(fileno=os.dup(int(path.name))) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                connection.getpeername()
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            continue  # It listens, is no TCP, or has just been closed.
        if len(info) < _INFO_BYTES:
            raise S2SimError("this kernel does not count what a connection sends: Linux 4.19 or later does")
        yield struct.unpack_from("<QQI", info, _BYTES_SENT)


def _loopback() -> tuple[int, int]:
    with _INTERFACES.open(encoding="ascii") as lines:
        for line in lines:
            name, _, numbers = line.partition(":")
            if name.strip() == "lo":
                sent = numbers.split()[8:10]
                return int(sent[0]), int(sent[1])
    raise S2SimError(f"{_INTERFACES} has no interface lo: start the processes where there is one")
