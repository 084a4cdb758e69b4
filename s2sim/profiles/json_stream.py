"""The events of a trace file one by one: a window of its text in memory, each value decoded by the standard library.

`json.JSONDecoder.raw_decode` is in C, and takes a quarter less time for the same events than ijson with its C parser.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import IO, Any, TextIO

from s2sim.errors import S2SimError
from s2sim.files import check_regular

EVENTS_KEY = "traceEvents"

_GZIP_MAGIC = b"\x1f\x8b"
_MAX_FILE_BYTES = 2**42
_WINDOW_CHARACTERS = 2**20
# No event is anywhere near as long; what is, is no event.
_MAX_VALUE_CHARACTERS = 2**26
# A value that goes on beyond the window is found wrong this close to its end, unless within a text.
_CUT_WITHIN = 16
_OF_NUMBERS = "0123456789+-.eE"
_SPACE = re.compile(r"[ \t\r\n]*")


def read_events(path: Path, header: dict[str, Any], follow: Callable[[int, int], None] | None = None) -> Iterator[Any]:
    """Yield what stands in the list ``traceEvents`` of a JSON file, which may be compressed with gzip.

    ``header`` receives the other members of the object as far as they have been read; ``follow`` is called with (bytes
    read, total bytes). `S2SimError` if the file is missing, broken, truncated or of another format.
    """
    try:
        check_regular(path, _MAX_FILE_BYTES)
        total = path.stat().st_size
        with path.open("rb") as raw, _text_of(raw) as text:
            window = _Window(path, text, lambda: follow(min(raw.tell(), total), total) if follow else None)
            yield from _events(window, header)
    except FileNotFoundError:
        raise S2SimError(f"there is no file {path}") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise S2SimError(f"{path} is broken: {error}") from None
    except EOFError:
        raise S2SimError(f"{path} is cut off: its compressed data end too early") from None
    except UnicodeDecodeError:
        raise S2SimError(f"{path} is not a trace of PyTorch's profiler: it is not UTF-8 text") from None
    except OSError as error:
        raise S2SimError(f"{path} cannot be read: {error.strerror or error}") from None


@contextmanager
def _text_of(raw: IO[bytes]) -> Iterator[TextIO]:
    import io

    compressed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    raw.seek(0)
    inner: Any = gzip.GzipFile(fileobj=raw) if compressed else raw
    text = io.TextIOWrapper(inner, encoding="utf-8-sig")
    try:
        yield text
    finally:
        text.detach()


class _Window:
    """What of a file's text is in memory, and how far it has been read."""

    def __init__(self, path: Path, text: TextIO, moved: Callable[[], None]) -> None:
        self.path = path
        self._text = text
        self._moved = moved
        self._decoder = JSONDecoder(strict=False)
        self._held = ""
        self._at = 0
        self._dropped = 0
        self._ended = False

    def next_character(self) -> str:
        """Return the next character that is no space, without taking it; empty at the end."""
        while True:
            match = _SPACE.match(self._held, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._held) or not self._more():
                return self._held[self._at : self._at + 1]

    def take(self, character: str) -> None:
        found = self.next_character()
        if found != character:
            raise self._wrong() if found else self._cut()
        self._at += 1

    def value(self) -> Any:
        if not self.next_character():
            raise self._cut()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._held, self._at)
            except JSONDecodeError as error:
                inside = error.msg.startswith("Unterminated string") or error.pos >= len(self._held) - _CUT_WITHIN
                if not inside:
                    raise self._wrong() from None
                if not self._more():
                    raise self._cut() from None
            except (ValueError, RecursionError):
                raise self._wrong() from None
            else:
                # A number that ends with the window, or with its point or exponent begun, may go on behind it.
                if self._held[end : end + 3].strip(_OF_NUMBERS) or not self._more():
                    self._at = end
                    return value

    def _more(self) -> bool:
        """Read on, as much as is still held at least, so that a long value is decoded a few times only."""
        if self._ended:
            return False
        rest = self._held[self._at :]
        if len(rest) > _MAX_VALUE_CHARACTERS:
            raise self._wrong()
        read = self._text.read(max(_WINDOW_CHARACTERS, len(rest)))
        self._dropped += self._at
        self._held, self._at = rest + read, 0
        self._ended = not read
        self._moved()
        return not self._ended

    def _wrong(self) -> S2SimError:
        return S2SimError(
            f"{self.path} is not a trace of PyTorch's profiler: at character {self._dropped + self._at + 1} stands no "
            "valid JSON of one; write it with torch.profiler's export_chrome_trace"
        )

    def _cut(self) -> S2SimError:
        return S2SimError(f"{self.path} is cut off: its JSON ends too early; export the trace again")


def _events(window: _Window, header: dict[str, Any]) -> Iterator[Any]:
    first = window.next_character()
    if first == "[":
        raise S2SimError(
            f"{window.path} is a bare list of events: a trace of PyTorch's profiler is an object with {EVENTS_KEY}"
        )
    if first and first != "{":
        raise S2SimError(f"{window.path} is not a trace of PyTorch's profiler: it does not begin with {{")
    window.take("{")
    found = False
    while window.next_character() != "}":
        key = window.value()
        window.take(":")
        if key == EVENTS_KEY and window.next_character() == "[":
            found = True
            yield from _items(window)
        else:
            header[str(key)] = window.value()
        if window.next_character() != "}":
            window.take(",")
    if not found:
        raise S2SimError(f"{window.path} is not a trace of PyTorch's profiler: it has no {EVENTS_KEY}")


def _items(window: _Window) -> Iterator[Any]:
    window.take("[")
    while window.next_character() != "]":
        yield window.value()
        if window.next_character() != "]":
            window.take(",")
    window.take("]")
