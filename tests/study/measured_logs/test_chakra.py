"""Traces of Chakra, of messages encoded by hand as protobuf has them."""

import json
import random

import pytest

from s2sim.cli.main import main
from s2sim.errors import S2SimError
from s2sim.traffic.measured_files import read_measured

VARINT, BYTES = 0, 2


def varint(value):
    more, last = value >> 7, value & 0x7F
    return bytes([last | 0x80]) + varint(more) if more else bytes([last])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    data = value if isinstance(value, bytes) else value.encode()
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def attribute(name, value):
    return field(10, field(1, name) + field(29 if isinstance(value, str) else 9, value))


def node(kind, *, comm=None, size=None, group="", micros=0, inputs=""):
    parts = [field(1, 5), field(2, "a node"), field(3, kind), field(4, 3), field(6, 12), field(7, micros)]
    parts += [field(8, field(1, inputs)), b"\x49" + bytes(8), attribute("is_cpu_op", 0)]
    if comm is not None:
        parts += [attribute("comm_type", comm), attribute("comm_size", size), attribute("pg_name", group)]
    return b"".join(parts)


def trace(*nodes, metadata=None):
    first = field(1, "1.1.1-chakra.0.0.4") if metadata is None else metadata
    return b"".join(varint(len(each)) + each for each in (first, *nodes))


GROUPS = json.dumps([{"pg_name": "7", "pg_desc": "dp", "pg_size": 4}, {"pg_name": "8", "ranks": [0, 2], "pg_size": 2}])
WHOLE = trace(
    node(1, inputs=json.dumps([GROUPS])),
    node(4, micros=100),
    node(7, comm=0, size=1 << 20, group="7", micros=500),
    node(7, comm=0, size=1 << 20, group="7", micros=900),
    node(7, comm=0, size=1 << 20, group="7", micros=600),
    node(7, comm=2, size=1 << 10, group="8", micros=20),
    node(7, comm=2, size=1 << 10, group="unknown", micros=20),
    node(7, comm=6, size=1 << 16, group="7", micros=70),
    node(7, comm=7, size=1 << 16, group="7"),
    node(7, comm=3, size=1 << 16, group="7", micros=10),
    node(5, comm=0, size=1 << 16, group="7", micros=10),
)


@pytest.fixture
def read(tmp_path):
    def read(data):
        (tmp_path / "trace.0.et").write_bytes(data)
        return read_measured(tmp_path / "trace.0.et")

    return read


def test_collectives_have_their_sizes_groups_and_medians(read):
    found = [(each.collective, each.ranks, [(row.size_bytes, row.time_s) for row in each.rows]) for each in read(WHOLE)]
    assert found == [
        ("all_reduce", 4, [(1 << 20, 600e-6)]),
        # A rank gives 1 KiB, of two ranks.
        ("all_gather", 2, [(1 << 11, 20e-6)]),
        ("all_to_all", 4, [(1 << 16, 70e-6)]),
    ]
    assert [each.rows[0].line for each in read(WHOLE)] == [1, 4, 6]


def test_metadata_may_begin_with_an_attribute(read):
    schema = field(2, field(1, "schema") + field(29, "1.0.1")) + field(2, field(1, "pid") + field(13, 7))
    found = read(trace(node(7, comm=5, size=4096, micros=50), metadata=schema))
    assert [(each.collective, each.ranks) for each in found] == [("broadcast", None)]


def test_the_command_compares_them(tmp_path, capsys):
    path = tmp_path / "rank0.et"
    path.write_bytes(WHOLE)
    asked = ["collective", "log", str(path), "all_reduce", "--topology", "dgx-h100", "--library", "nccl"]
    assert main(asked) == 0
    assert "all_reduce over 4 workers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (trace(node(7, comm=0, size=4)), "has no collective with a duration (1 without): link it with a device trace"),
        (trace(node(4)), "has no collective with a duration (0 without)"),
        (WHOLE[:-1], "is no trace of Chakra: the message at byte"),
        (trace(b"\x0f\x01"), "is no trace of Chakra: field 1 of type 7 is in no trace, or longer"),
        (trace(b"\x0a\x05a"), "is no trace of Chakra: field 1 of type 2 is in no trace, or longer than its message"),
        (trace(b"\xff" * 11), "is no trace of Chakra: a number at byte 0 does not end"),
    ],
)
def test_what_is_damaged_is_one_line(data, said, read):
    with pytest.raises(S2SimError) as caught:
        read(data)
    assert said in str(caught.value)
    assert "trace.0.et" in str(caught.value)


@pytest.mark.parametrize("cases", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damage_is_tables_or_one_line(cases, read):
    rng = random.Random(cases)
    for case in range(cases):
        at = rng.randrange(len(WHOLE))
        put = rng.choice([b"", b"\xff", b"\x00", b"\x80" * 12, b"\x0a", rng.randbytes(3)])
        said = ""
        try:
            assert read(WHOLE[:at] + put + WHOLE[at + rng.randrange(4) :]), case
        except S2SimError as error:
            said = str(error)
        assert "\n" not in said, case
