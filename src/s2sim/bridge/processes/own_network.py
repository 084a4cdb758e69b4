"""A network namespace with a loopback interface of its own, where nothing else is counted."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from s2sim.bridge.processes.launch import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAITS = "ip link set lo up && echo up && exec cat"


@contextmanager
def own_loopback() -> Iterator[Place | None]:
    """Yield a place in a new network namespace; None where this user may not make one.

    It is gone with the last process in it, of which the first ends when this one does.
    """
    tools = [shutil.which(tool) for tool in ("unshare", "nsenter", "ip")]
    if not all(tools):
        yield None
        return
    unshare, nsenter, _ = tools
    with subprocess.Popen(  # noqa: S603  (tools of the system, found on the user's own path)
        [str(unshare), "--net", "sh", "-c", _WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as first:
        assert first.stdout is not None
        try:
            if first.stdout.readline() != b"up\n":
                yield None
                return
            yield Place((str(nsenter), f"--net=/proc/{first.pid}/ns/net"))
        finally:
            first.kill()
