"""A testbed that cannot be is refused in one line, with the reason, and nothing is left of it."""

import os
import sys

import pytest

from .conftest import MAIN

pytestmark = pytest.mark.slow

UP = (sys.executable, "-c", MAIN, "dev", "testbed", "up", "--workers", "2", "--rate", "1Gbps")


def refused(done):
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("s2sim: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_name_that_is_taken_or_unknown(apart):
    done = apart.s2sim(
        "dev testbed down",
        "dev testbed up --workers 2 --name mine",
        "dev testbed up --workers 2 --name mine",
        "dev testbed down mina",
        "dev testbed down mine --all",
        "dev testbed up --workers 2",
        "dev testbed show",
    )
    assert [code for code, _, _ in done] == [2, 0, 2, 2, 2, 0, 2]
    reasons = [error for code, _, error in done if code]
    assert [reason.count("\n") for reason in reasons] == [1] * 5
    assert "there is no testbed: make one" in reasons[0]
    assert "remove it with s2sim dev testbed down mine" in reasons[1]
    assert "(did you mean 'mine'?" in reasons[2]
    assert "give one of them" in reasons[3]
    assert "name one of mine, testbed" in reasons[4]


@pytest.mark.parametrize(
    ("right", "lacking"),
    [
        (
            ["--bounding-set", "-net_admin,-sys_admin", "--inh-caps", "-net_admin,-sys_admin"],
            "CAP_NET_ADMIN and CAP_SYS_ADMIN",
        ),
        (["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"], "CAP_NET_ADMIN"),
    ],
)
def test_who_is_not_root(apart, right, lacking):
    done = apart.run("setpriv", *right, *UP)
    assert f"needs root: this process lacks {lacking}; call it with sudo" in refused(done)


def test_tools_that_are_not_there(apart, tmp_path):
    done = apart.run(*UP, env={**os.environ, "PATH": str(tmp_path)})
    assert "needs ip and tc: install iproute2" in refused(done)


@pytest.mark.parametrize(
    ("tool", "says", "reason"),
    [
        ("tc", "Error: Specified qdisc kind is unknown.", "token bucket filter (CONFIG_NET_SCH_TBF)"),
        ("ip", "Error: Unknown device type.", "veth pairs or bridges (CONFIG_VETH, CONFIG_BRIDGE)"),
    ],
)
def test_a_kernel_that_lacks_something(apart, tmp_path, tool, says, reason):
    # Only adding queues or links fails, so that namespaces are made, and have to go again.
    real = apart.run("sh", "-c", f"command -v {tool}").stdout.strip()
    fake = tmp_path / tool
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *-batch*) cat > {tmp_path}/lines;; *) exec {real} "$@";; esac\n'
        f'grep -q "^netns" {tmp_path}/lines && exec {real} "$@" < {tmp_path}/lines\n'
        f"echo '{says}' >&2; exit 1\n"
    )
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = apart.run(*UP, env={**os.environ, "PATH": path})
    assert reason in refused(done)
    assert apart.namespaces() == []
