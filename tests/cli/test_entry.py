import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")

# Interrupts the process when it looks for a module, in one of the ways in which that may end.
PROGRAM = """
import os, signal, sys, weakref

class Thing: pass

def interrupt(*_):
    os.kill(os.getpid(), signal.{number})

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != {module!r}:
            return
        if {way!r} == "raised":
            interrupt()
        elif {way!r} == "turned into another error":
            try:
                interrupt()
            except KeyboardInterrupt:
                raise RuntimeError("of a class") from None
        elif {way!r} == "where nothing can be raised":
            thing = Thing()
            seen = weakref.ref(thing, interrupt)
            del thing

sys.meta_path.insert(0, Finder())
sys.argv = ["s2sim", "list", "hardware"]
from s2sim.cli.entry import main
sys.exit(main())
"""


def started(module, way="raised", handler=signal.SIG_DFL, number="SIGINT"):
    """Return what a process does in which SIGINT is handled like this, however those who run the tests have it."""
    program = PROGRAM.format(module=module, way=way, number=number)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("module", "way"),
    [
        ("s2sim.cli.main", "raised"),
        ("typer", "raised"),
        ("s2sim.cli.listing", "turned into another error"),
        ("s2sim.cli.output", "where nothing can be raised"),
    ],
)
def test_an_interruption_of_an_import_is_told_in_one_line(module, way):
    assert started(module, way) == (130, "", "s2sim: interrupted\n")


def test_what_ends_a_job_does_as_an_interruption():
    assert started("s2sim.cli.listing", number="SIGTERM") == (130, "", "s2sim: interrupted\n")


@pytest.mark.slow
def test_whoever_starts_it_may_have_it_not_interrupted():
    code, out, err = started("typer", handler=signal.SIG_IGN)
    assert (code, err) == (0, "")
    assert "a100" in out


def test_an_error_without_an_interruption_stays_one():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['typer'] = None; from s2sim.cli.entry import main; main()"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
