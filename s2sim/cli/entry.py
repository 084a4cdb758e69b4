"""The process ``s2sim``: Ctrl-C, or SIGTERM, is one line and exit code 130, also while modules are being imported."""

import os
import sys
from types import FrameType
from typing import NoReturn

from s2sim.cli import INTERRUPTED


def main() -> int:
    """Run the command line as a process of its own and return its exit code, see `s2sim.cli.main.main`."""
    asked = False

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    try:
        import signal

        # Whoever starts s2sim in the background may have said that it is not to be interrupted.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
        # Batch systems and Kubernetes end a job like this.
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, interrupt)
        sys.unraisablehook = _exit_on_interrupt

        from s2sim.cli.main import main as run

        code = run()
    except BaseException as error:
        # Python turns what interrupts the making of a class into another error.
        if not asked and not isinstance(error, KeyboardInterrupt):
            raise
        _exit_at_once()
    if code == INTERRUPTED:
        _exit_at_once(told=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    return code


def _exit_on_interrupt(what: "sys.UnraisableHookArgs") -> None:
    """Leave where the interruption meets a place from which nothing can be raised, such as a callback of an import."""
    if issubclass(what.exc_type, KeyboardInterrupt):
        _exit_at_once()
    sys.__unraisablehook__(what)


def _exit_at_once(*, told: bool = False) -> NoReturn:
    """End the process at once: Python taking itself down could be interrupted again, and would tell so at length."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is sys.stderr and not told:
                stream.write("s2sim: interrupted\n")
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # Closed, or nobody reads it.
            continue
    os._exit(INTERRUPTED)
