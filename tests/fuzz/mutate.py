"""Changes of valid input: of its bytes, of the words of a text, of the values of JSON, of the members of an archive."""

from __future__ import annotations

import copy
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any

EXTREME_WORDS = (
    *("0", "-1", "1e-320", "1e308", "1e400", "-1e400", "nan", "inf", "-inf", "0.1", "1e18", "0x10", "²", "١٢", ""),
    *("99999999999999999999999999", "4611686018427387904", "2147483648", "-9223372036854775809", "1_000", "true"),
    *("{1}", "{x}", "{:>2000000000}", "%s", "%999999999d", "../../etc/passwd", "/dev/zero", "\x00", "null", "[]", "{}"),
    *("'", '"', '"""', "#", ",", "=", ":", "a" * 10_000, "[" * 5_000, "1979-05-27", "10Gbps", "1e30Gbps", "-1 us"),
)
EXTREME_VALUES: tuple[Any, ...] = (
    *(0, -1, 1e-320, 1e308, 10**30, -(10**30), 2**62, 2**31, 0.5, "", "x", "²", "a" * 10_000, None, True, False),
    *([], {}, [[]], [None], {"": None}, [0] * 3, "\x00", "../x", "1e400", "NaN", float("nan"), float("inf")),
)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with some of them changed, cut, repeated, moved or added."""
    place, other = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    changes: list[Callable[[], bytes]] = [
        lambda: data[:place],
        lambda: data[:place] + data[other:],
        lambda: data[:other] + data[place:],
        lambda: data[place:] + data[:place],
        lambda: data[:place] + rng.randbytes(rng.choice((1, 8, 100))) + data[place:],
        lambda: data[:place] + rng.choice((b"\0", b"\xff", b"\x7f")) * 8 + data[place + 8 :],
        lambda: data[:place] + struct.pack("<q", rng.choice((-1, 0, 2**31, 2**62, len(data)))) + data[place + 8 :],
        lambda: bytes(
            byte ^ (1 << rng.randrange(8)) if rng.random() < 4 / max(len(data), 1) else byte for byte in data
        ),
    ]
    return rng.choice(changes)()


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """Return a text with words, numbers or lines changed, or bytes of it."""
    if rng.random() < 0.15:
        return mutate_bytes(data, rng)
    text = data.decode("utf-8", "replace")
    if rng.random() < 0.3:
        lines = text.splitlines(keepends=True) or [""]
        first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
        rng.choice(
            (
                lambda: lines.pop(first),
                lambda: lines.insert(second, lines[first]),
                lambda: lines.__setitem__(first, lines[second]),
                lambda: lines.extend(lines[first:] * 20),
            )
        )()
        return "".join(lines).encode()
    parts = re.findall(r"[\w.+-]+|\s+|.", text, re.DOTALL) or [""]
    words = [index for index, part in enumerate(parts) if re.match(r"[\w.+-]", part)] or [0]
    numbers = [index for index in words if re.match(r"[-+]?\d", parts[index])] or words
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.choice(rng.choice((numbers, words, range(len(parts)))))
        parts[at] = rng.choice((rng.choice(EXTREME_WORDS), parts[rng.choice(words)], ""))
    return "".join(parts).encode("utf-8", "surrogatepass")


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """Return JSON with values replaced, removed, added or moved; or a changed text."""
    if rng.random() < 0.2:
        return mutate_text(data, rng)
    root = [json.loads(data)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places: list[tuple[Any, Any]] = []

        def visit(value: Any, places: list[tuple[Any, Any]] = places) -> None:
            keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            for key in keys:
                places.append((value, key))
                visit(value[key])

        visit(root)
        holder, key = rng.choice(places)
        kind = rng.random()
        if kind < 0.15 and holder is not root:
            del holder[key]
        elif kind < 0.3:
            other, name = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[name]))
        elif kind < 0.4 and isinstance(holder, dict):
            holder[rng.choice(EXTREME_WORDS)] = holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(EXTREME_VALUES))
    if not root:
        return b""
    return json.dumps(root[0]).encode()


def mutate_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Return a safetensors file with a changed header of the right length, or with changed bytes."""
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    (length,) = struct.unpack("<Q", data[:8])
    header = mutate_json(data[8 : 8 + length].rstrip(), rng)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def mutate_archive(data: bytes, rng: random.Random) -> bytes:
    """Return a zip archive with a member changed, renamed, repeated or compressed otherwise; or with changed bytes."""
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as given:
        members = [(name, given.read(name)) for name in given.namelist()]
    at = rng.randrange(len(members))
    name, content = members[at]
    kind = rng.randrange(4)
    if kind == 0:
        members[at] = name, mutate_bytes(content, rng)
    elif kind == 1:
        members[at] = rng.choice(EXTREME_WORDS) or "x", content
    elif kind == 2:
        del members[at]
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))) as out:
        for name, content in members:
            out.writestr(name.replace("\x00", "0"), content)
    return written.getvalue()
