"""What a testbed cannot be is refused before anything is made; tests/testbed makes some."""

import pytest


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "say how many workers"),
        (["--workers", "0"], "at least 1 worker"),
        (["--workers", "255"], "addresses for 1 to 254"),
        (["--workers", "4", "--rate", "100"], "no unit"),
        (["--workers", "4", "--uplink", "1Gbps"], "nothing without --nodes"),
        (["--workers", "9", "--nodes", "2x4"], "makes 8 workers, and --workers says 9"),
        (["--nodes", "2x"], "--nodes '2x'"),
        (["--nodes", "8x1"], "write --workers 8"),
        (["--nodes", "1x8", "--uplink", "1Gbps"], "write --workers 8"),
        (["--nodes", "2x4", "--uplink", "1"], "no unit"),
        (["--nodes", "20x20"], "addresses for 1 to 254"),
        (["--workers", "4", "--name", "My testbed"], "lower-case letters"),
    ],
)
def test_what_makes_no_testbed(fails, options, reason):
    assert reason in fails("dev", "testbed", "up", *options)
