"""The kernel's facilities: `ip` and `tc` called, settings of namespaces, and why one may not."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMESPACES = Path("/run/netns")
_TOOLS = ("ip", "tc")
# Bits of the capabilities of a process (linux/capability.h).
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
# What the tools say of a kernel without something, and what that is.
_LACKING = {
    "Unknown device type": "veth pairs or bridges (CONFIG_VETH, CONFIG_BRIDGE)",
    "Specified qdisc kind is unknown": "the token bucket filter (CONFIG_NET_SCH_TBF)",
    "Failed to create a new network namespace": "network namespaces that it may make (CONFIG_NET_NS)",
}


def check_allowed() -> None:
    """Refuse where this process may not make testbeds, or the tools are missing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise S2SimError(f"a testbed needs {' and '.join(missing)}: install iproute2")
    if not Path("/proc/self/ns/net").exists():
        raise S2SimError("a testbed needs Linux with network namespaces: this kernel has none")
    held = _capabilities()
    lacking = [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]
    if lacking:
        raise S2SimError(f"a testbed needs root: this process lacks {' and '.join(lacking)}; call it with sudo")


def _capabilities() -> int:
    lines = Path("/proc/self/status").read_text("ascii", errors="replace").splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)


def call(tool: str, *arguments: str, namespace: str | None = None) -> str:
    """Return what ``ip`` or ``tc`` prints, called in a namespace.

    Raises
    ------
    S2SimError
        With what the tool says, if it fails.
    """
    return _called([tool, *_within(namespace), *arguments], "")


def call_batch(tool: str, lines: Sequence[str], *, namespace: str | None = None) -> None:
    """Let ``ip`` or ``tc`` do what lines say, all in one process; see `call`."""
    if lines:
        _called([tool, *_within(namespace), "-batch", "-"], "\n".join(lines) + "\n")


def _within(namespace: str | None) -> list[str]:
    return [] if namespace is None else ["-netns", namespace]


def _called(command: list[str], lines: str) -> str:
    done = subprocess.run(  # noqa: S603  (one thread; tools of the system, lines of our own making)
        command,
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        # Ctrl-C comes to us alone, who undo what was begun; if we are killed, nothing more is made behind us.
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    if done.returncode:
        said = " ".join(done.stderr.split())
        lacking = next((what for text, what in _LACKING.items() if text in said), None)
        if lacking is not None:
            raise S2SimError(f"a testbed needs {lacking}, which this kernel lacks: {said}")
        raise S2SimError(f"{command[0]} failed while a testbed was made, looked at or removed: {said}")
    return done.stdout


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def write_settings(settings: Mapping[str, Mapping[str, str]]) -> None:
    """Write settings of namespaces: for each namespace values by their path below /proc/sys/net.

    Those that this kernel does not know are left out.
    """
    failures: list[OSError] = []
    # What /proc/sys/net shows is that of the thread's namespace, and this thread ends with its task.
    thread = threading.Thread(target=_write_all, args=(settings, failures))
    thread.start()
    thread.join()
    for failure in failures:
        raise S2SimError(f"cannot set {failure.filename or 'a namespace'} for a testbed: {failure.strerror}")


def _write_all(settings: Mapping[str, Mapping[str, str]], failures: list[OSError]) -> None:
    try:
        for namespace, values in settings.items():
            with (NAMESPACES / namespace).open("rb") as opened:
                if _LIBC.setns(opened.fileno(), _CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), str(NAMESPACES / namespace))  # noqa: TRY301  (one way out)
            for path, value in values.items():
                setting = Path("/proc/sys/net") / path
                if setting.exists():
                    setting.write_text(value, "ascii")
    except OSError as error:
        failures.append(error)
