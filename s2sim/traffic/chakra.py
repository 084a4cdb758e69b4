"""Execution traces of MLCommons Chakra: the collectives of a job, with sizes, order, groups and durations.

A file is one rank's: messages of protobuf, each after its length as a varint, first GlobalMetadata, then a Node each
(schema/protobuf/et_def.proto of mlcommons/chakra). Of a Node are read its type, duration and attributes.
"""

import re
from collections.abc import Iterator
from typing import Any

from s2sim.traffic.nccl_tests import MAX_S, MAX_SIZE_BYTES

# The length of the metadata, then the version or an attribute; no text has such bytes.
BEGINNING = re.compile(rb"(?=.{0,63}[\0-\x08\x80-\xff]).{1,2}(\n[\x01-\x20]\d|\x12.\n[\x01-\x40][a-z])", re.DOTALL)
_METADATA, _COLLECTIVE = 1, 7  # Types of nodes
# By the numbers of CollectiveCommType; 3, 4 and 9 are gathers, scatters and barriers.
_KINDS = {0: "all_reduce", 1: "reduce", 2: "all_gather", 5: "broadcast", 6: "all_to_all", 7: "reduce_scatter"}
_KINDS |= {8: "reduce_scatter"}
_TYPE, _DURATION, _INPUTS, _ATTRIBUTE = 3, 7, 8, 10  # Fields of a Node
_VALUES = (5, 7, 9, 11, 13, 29)  # Fields of an attribute: integers and text; its name is field 1
_FIXED = {1: 8, 5: 4}  # Bytes by type
_VARINT = re.compile(rb"[\x80-\xff]{0,9}[\0-\x7f]")
_GROUP = re.compile(r'"pg_name": "?([^",}]{1,80})"?[^}]*?"(?:pg_size|group_size)": (\d{1,7})')


def read_chakra(data: bytes) -> tuple[list[tuple[str, str, int, float]], dict[str, int]]:
    """Return kind, group, bytes that the rank hands in, and seconds (0 unless known) of each collective in its order.

    And the number of ranks of groups, where the trace says it. `ValueError` for what is damaged.
    """
    found, groups, at, messages = list[tuple[str, str, int, float]](), dict[str, int](), 0, list[bytes]()
    while at < len(data):
        length, begin = _varint(data, at)
        if (at := begin + length) > len(data):
            raise ValueError(f"the message at byte {begin} is longer than the file")
        messages.append(data[begin:at])
    for message in messages[1:]:
        node: dict[int, Any] = {}
        attributes: dict[Any, Any] = {}
        for number, value in _fields(message):
            node[number] = value
            if number == _ATTRIBUTE and isinstance(value, bytes):
                one = dict(_fields(value))
                attributes[one.get(1)] = next((one[each] for each in _VALUES if each in one), None)
        if node.get(_TYPE) == _METADATA:
            groups |= {name: int(ranks) for name, ranks in _GROUP.findall(_text(node.get(_INPUTS)).replace("\\", ""))}
        kind, size = _KINDS.get(attributes.get(b"comm_type", -1)), attributes.get(b"comm_size")
        if node.get(_TYPE) == _COLLECTIVE and kind is not None and isinstance(size, int):
            seconds = min(node[_DURATION] / 1e6, MAX_S) if isinstance(node.get(_DURATION), int) else 0.0
            found.append((kind, _text(attributes.get(b"pg_name")), min(size, MAX_SIZE_BYTES), seconds))
    return found, groups


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a byte, and where it ends."""
    if (end := _VARINT.match(data, at)) is None:
        raise ValueError(f"a number at byte {at} does not end")
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(end[0])), end.end()


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        length, after = (_FIXED[key & 7], at) if key & 7 in _FIXED else _varint(data, at)
        if key & 7 not in (0, 1, 2, 5) or (key & 7 and after + length > len(data)):
            raise ValueError(f"field {key >> 3} of type {key & 7} is in no trace, or longer than its message")
        at = after + length if key & 7 else after
        yield key >> 3, data[after:at] if key & 7 else length
