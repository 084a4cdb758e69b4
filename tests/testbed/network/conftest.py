"""Testbeds apart from those of the machine: in a mount namespace whose end is theirs too."""

import json
import os
import shutil
import subprocess
import sys

import pytest

TOOLS = ("ip", "tc", "unshare", "nsenter", "mount", "setpriv")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
MAIN = "from s2sim.cli.entry import main; raise SystemExit(main())"
# Runs command lines one after another, and prints exit code, output and errors of each.
SEVERAL = """
import contextlib, io, json, shlex, sys
from s2sim.cli.main import main
done = []
for line in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        code = main(shlex.split(line))
    done.append((code, out.getvalue(), error.getvalue()))
print(json.dumps(done))
"""
# Those who may mount may as a rule make namespaces too.
APART = "mkdir -p /run/netns && mount -t tmpfs none /run/netns && mkdir -p /run/netns && echo ready && exec sleep 600"


class Apart:
    """Runs commands where no testbed of the machine is known, and none of theirs outlives it."""

    def __init__(self, holder):
        self.holder = holder

    def command(self, *command):
        """Return a command in there."""
        # Whatever PATH these are to have.
        return [shutil.which("nsenter"), f"--mount=/proc/{self.holder.pid}/ns/mnt", "--wd=.", *map(str, command)]

    def run(self, *command, **more):
        return subprocess.run(self.command(*command), capture_output=True, text=True, check=False, **more)

    def s2sim(self, *lines, **more):
        """Run command lines in one process; returns (exit code, output, errors) of each."""
        done = self.run(sys.executable, "-c", SEVERAL, *lines, **more)
        assert done.returncode == 0, done.stderr
        return [tuple(each) for each in json.loads(done.stdout)]

    def python(self, text):
        """Run a program in there, which must succeed, and return what it prints."""
        done = self.run(sys.executable, "-c", text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def namespaces(self):
        return self.run("ls", "/run/netns").stdout.split()


@pytest.fixture
def apart():
    if MISSING:
        pytest.skip(f"{', '.join(MISSING)} is not there")
    if os.geteuid() != 0:
        pytest.skip("testbeds need root")
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", APART],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"this machine lets nobody make namespaces: {holder.communicate()[1].strip()}")
        yield Apart(holder)
    finally:
        holder.kill()
        holder.communicate()
