"""``s2sim dev bridge check``: reducers between real processes, values and bytes."""

import importlib.util
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from s2sim.cli.main import main
from s2sim.cli.options import examples
from s2sim.errors import S2SimError
from s2sim.pytorch.launch import ProcessPlace, private_loopback, run_job
from s2sim.reducers.registry import reducer_names
from s2sim.report.validation_tables import check_grid, check_lines
from s2sim.validation import bridge_check as run
from s2sim.validation.bridge_check import BridgeCheckResult, CheckRow, Interface

# Of each way to send: sums, maxima, ORs, gathers and exchanges of equal and unequal sizes, peers, broadcasts, reduces,
# groups of nodes, steps without an exchange, one that starts warm, one rounded at every hop, one that is refused.
REDUCERS = (
    "dense",
    "fp16",
    "int8",
    "topk:ef=true",
    "union",
    "owner-reduce",
    "gtopk",
    "fetchsgd",
    "stc",
    "hierarchical-union",
    "local-sgd:h=3",
    "s2-exact:warm=true",
    "omnireduce:block=100000",
)


def children():
    return {child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()}


@pytest.fixture(scope="module")
def checked():
    before = children()
    found = run.run_check(REDUCERS, 3, "synthetic:rows=400,width=8,density=0.1,dense=500,steps=2", steps=2, seed=0)
    assert children() == before
    return found


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(REDUCERS)))
def test_values_and_bytes_of_processes_are_those_in_memory(checked, place):
    row = checked.rows[place]
    assert row.ok, row
    assert row.counted_bytes == row.payload_bytes + row.header_bytes + row.told_bytes + row.connection_bytes
    assert row.payload_bytes > 0
    assert bool(row.rounded) == (row.reducer == "fp16")


@pytest.mark.slow
def test_the_interface_counts_what_connections_send_and_headers(checked):
    if checked.interface is None:
        pytest.skip("no network namespace may be made here")
    # Where something was lost, acknowledgements may name more than one stretch of what has come.
    assert checked.interface.equal or checked.interface.again_bytes, checked.interface
    assert checked.interface.bytes > sum(row.counted_bytes for row in checked.rows)


def die(rank, _ranks, _arguments, _tell):
    from s2sim.gradients.gradient import Gradient
    from s2sim.pytorch.rank import reduce_here
    from s2sim.reducers.registry import make_reducer

    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    reduce_here(make_reducer("dense"), Gradient(("x",), (np.ones(9, np.float32),)))


@pytest.mark.slow
def test_one_that_is_killed_is_named_and_none_is_left():
    before = children()
    with pytest.raises(S2SimError, match=r"^the process of rank 1 was ended by SIGKILL$"):
        run_job(f"{__name__}:die", {}, [ProcessPlace()] * 2, timeout_s=60)
    assert children() == before


def test_a_network_of_ones_own_is_gone_afterwards():
    before = children()
    with private_loopback() as place:
        if place is None:
            pytest.skip("no network namespace may be made here")
        namespace = Path(place.prefix[1].partition("=")[2])
        assert namespace.readlink() != Path("/proc/self/ns/net").readlink()
    assert children() == before
    assert not namespace.exists()


def test_without_rights_the_machines_loopback_is_taken(monkeypatch):
    monkeypatch.setattr("s2sim.pytorch.launch.shutil.which", lambda _: "/bin/false")
    with private_loopback() as place:
        assert place is None


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_json(tmp_path, capsys):
    path = tmp_path / "check.json"
    assert (
        main(["dev", "bridge", "check", "--reducer", "topk", "--workers", "1", "--trace", "cnn", "--json", str(path)])
        == 0
    )
    assert "1 of 1 reducers agree: 1 with the same bits" in capsys.readouterr().out
    (row,) = json.loads(path.read_text())["rows"]
    assert (row["counted_bytes"], row["equal"]) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize("line", examples("dev bridge check").splitlines()[3:])
def test_examples_run_and_every_registered_reducer_agrees(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Two processes are enough where some reducers are named; of an option that is given twice the last holds.
    every = "--reducer" not in line
    assert main([*line.split()[1:], *([] if every else ["--workers", "2"])]) == 0
    printed = capsys.readouterr().out
    if every:
        names = len(reducer_names())
        assert f"{names} of {names} reducers agree" in printed
        assert f"{names} with equal bytes" in printed


def test_wrong_input_is_one_line(monkeypatch, capsys):
    for arguments, words in (
        (["--workers", "0"], "at least one"),
        (["--reducer", "topq"], "topk"),
        (["--trace", "nothing"], "nothing"),
    ):
        assert main(["dev", "bridge", "check", *arguments]) == 2
        assert words in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(run, "find_spec", lambda _: None)
    assert main(["dev", "bridge", "check"]) == 2
    assert "pip install 's2sim[torch]'" in capsys.readouterr().err


def test_what_disagrees_is_said():
    rows = (
        CheckRow("a", 1, equal=True, bytes_equal=True),
        CheckRow("b", 1, equal=False, difference=1e-3, bytes_equal=False, counted_bytes=5),
        CheckRow("c", 1, equal=True, bytes_equal=False),
        CheckRow("d", 1, refused="no such layer"),
    )
    shown = BridgeCheckResult("t", 2, 0, "gloo", rows, Interface(100, 1, 40, 52, 0))
    lines = check_lines(shown)
    assert check_grid(shown).strong == {1, 2, 3}
    assert "b: values and bytes disagree" in lines
    assert "c: bytes disagree" in lines
    assert "d: not run: no such layer" in lines
    assert lines[-2].endswith(": 8 apart.")
    assert lines[-1].startswith("1 of 4 reducers agree")
