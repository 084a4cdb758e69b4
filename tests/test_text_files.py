import os
import subprocess
import sys

import pytest

from s2sim.errors import S2SimError, TopologyError
from s2sim.files import partial_of, read_bytes, read_text, remove_leftovers, replace_file


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "sizes.txt"
    path.write_bytes("\ufeff1 MiB\n".encode())
    assert read_text(path) == "1 MiB\n"


def test_what_cannot_be_read_says_why(tmp_path):
    (tmp_path / "latin").write_bytes(b"\xe9")
    with pytest.raises(S2SimError, match=r"cannot read the spec .*latin: it is not text"):
        read_text(tmp_path / "latin", noun="the spec")
    with pytest.raises(TopologyError, match=r"cannot read .*none: No such file or directory"):
        read_text(tmp_path / "none", error=TopologyError)


def test_line_ends_of_every_system_are_one(tmp_path):
    path = tmp_path / "sizes.txt"
    path.write_bytes(b"1MiB\r\n2MiB\r3MiB\n")
    assert read_text(path) == "1MiB\n2MiB\n3MiB\n"


def test_a_file_may_be_as_large_as_is_said_and_no_larger(tmp_path):
    path = tmp_path / "four"
    path.write_bytes(b"1234")
    assert read_bytes(path, most_bytes=4) == b"1234"
    with pytest.raises(OSError, match="it holds more than 3 bytes"):
        read_bytes(path, most_bytes=3)


def test_a_large_file_is_refused_unread(tmp_path):
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(OSError, match="it holds more than"):
        read_bytes(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_might_never_end_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a regular file"):
        read_bytes(tmp_path / "pipe")


@pytest.mark.parametrize("content", [b"1MiB\0", b"\xff\xfe1", b"\0" * 64])
def test_what_holds_no_text_is_said_to(content, tmp_path):
    (tmp_path / "bytes").write_bytes(content)
    with pytest.raises(S2SimError, match="it is not text"):
        read_text(tmp_path / "bytes")


def test_what_killed_processes_left_is_removed_by_the_next_that_writes(tmp_path):
    path = tmp_path / "result.json"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    own, others = partial_of(path), partial_of(tmp_path / "other.json")
    dead, elsewhere, alive = (
        own.with_name(own.name.replace(f"-{os.getpid()}", f"-{process}")) for process in (ended.pid, "x", os.getppid())
    )
    folder = dead.with_name(dead.name.replace("result.json", "trace"))
    folder.mkdir()
    for left in (dead, elsewhere, alive, others, folder / "manifest.json"):
        left.write_text("half")
    replace_file(path, b"{}")
    assert path.read_bytes() == b"{}"
    assert [left.exists() for left in (dead, elsewhere, alive, others)] == [False, True, True, True]
    remove_leftovers(tmp_path / "trace")
    assert not folder.exists()
