"""The process of one rank: joins the process group, runs a function, and tells what it returns."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from s2sim.errors import S2SimError

_TIMEOUT = timedelta(minutes=2)
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Read a task from standard input, run it, and tell what comes of it."""
    _end_with_parent()
    # What libraries print must not stand between lines of JSON.
    tells = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    task = json.load(sys.stdin)

    def say(what: str, value: Any) -> None:
        tells.write(json.dumps({what: value}) + "\n")

    import torch.distributed as dist

    # By way of a file no port is needed, and processes in unlike network namespaces find each other.
    dist.init_process_group(
        "gloo",
        init_method=f"file://{task['store']}",
        rank=task["rank"],
        world_size=task["ranks"],
        timeout=_TIMEOUT,
    )
    module, _, name = task["job"].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        say("result", function(task["rank"], task["ranks"], task["arguments"], lambda value: say("told", value)))
        # Nobody leaves while others still need what it has sent.
        dist.barrier()
    except S2SimError as error:
        say("error", str(error))
    finally:
        dist.destroy_process_group()


def _end_with_parent() -> None:
    """Let the kernel end this process when the one that started it ends, however that comes about."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
