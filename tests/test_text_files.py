import pytest

from s2sim.errors import S2SimError, TopologyError
from s2sim.text_files import read_text


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
