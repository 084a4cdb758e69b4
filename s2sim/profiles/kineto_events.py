"""Events of a PyTorch profiler trace, one by one from JSON of any size, kept as columns of numbers.

A window of the text is in memory, and `json.JSONDecoder.raw_decode` decodes each value: it is in C, and takes a quarter
less time for the same events than ijson with its C parser.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, TextIO

from s2sim.errors import S2SimError
from s2sim.files import check_regular

EVENTS_KEY = "traceEvents"

_GZIP_MAGIC = b"\x1f\x8b"
_MAX_FILE_BYTES, _WINDOW_CHARACTERS = 2**42, 2**20
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
        with path.open("rb") as raw:
            compressed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            inner: Any = gzip.GzipFile(fileobj=raw) if compressed else raw
            text = io.TextIOWrapper(inner, encoding="utf-8-sig")
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
        rest = self._held[self._at :]
        if len(rest) > _MAX_VALUE_CHARACTERS:
            raise self._wrong()
        read = self._text.read(max(_WINDOW_CHARACTERS, len(rest)))
        self._dropped += self._at
        self._held, self._at = rest + read, 0
        self._moved()
        return bool(read)

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
            window.take("[")
            while window.next_character() != "]":
                yield window.value()
                if window.next_character() != "]":
                    window.take(",")
            window.take("]")
        else:
            header[str(key)] = window.value()
        if window.next_character() != "}":
            window.take(",")
    if not found:
        raise S2SimError(f"{window.path} is not a trace of PyTorch's profiler: it has no {EVENTS_KEY}")


_ACCUMULATE, _NODE = "torch::autograd::AccumulateGrad", "autograd::engine::evaluate_function: "
_MODULE = "nn.Module: "
_LOOKUPS = frozenset({"aten::embedding", "aten::embedding_bag", "aten::_embedding_bag"})
_LATEST_US = 1e18
# Kernels that multiply matrices: of cuBLAS, cuDNN, CUTLASS, flash attention, rocBLAS (Cijk), MIOpen, and templates of
# PyTorch's compiler. All others wait for the memory.
_PRODUCTS = re.compile(
    "gemm|convol|conv2d|AsmConv|[sh0-9]cudnn_|wgrad|dgrad|fprop|winograd|cutlass|xmma|nvjet|fmha|flash|attn_[fb]wd|Cijk_"
    "|triton_tem_|_(add|b)?mm_",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A named stretch of time; ``start`` and ``end`` are microseconds on the trace's clock."""

    name: str
    start: float
    end: float


@dataclass(slots=True)
class Events:
    """Events of one trace in the order of its file; all times are microseconds on the trace's clock.

    ``node_*`` are functions called by backward, with the sequence number of the forward operation; ``forward_*`` are
    operations of forward that have such a function; ``looked_up`` is the number of indices of a table's lookup by
    sequence number; ``sum_start`` are additions of tensors. ``launch_*`` are calls on the host that started a kernel,
    ``kernel_*`` the kernels on the GPU except communication; ``product_us`` and ``other_us`` are the times of kernels
    with and without matrix products.
    """

    steps: list[TraceSpan] = field(default_factory=list)
    optimizers: list[TraceSpan] = field(default_factory=list)
    modules: list[TraceSpan] = field(default_factory=list)
    # When each gradient had been added to its parameter, and its shape, None if it is not known
    accumulated: list[tuple[float, tuple[int, ...] | None]] = field(default_factory=list)
    node_start: array[float] = field(default_factory=lambda: array("d"))
    node_end: array[float] = field(default_factory=lambda: array("d"))
    node_sequence: array[int] = field(default_factory=lambda: array("q"))
    node_name: list[str] = field(default_factory=list)
    forward_start: array[float] = field(default_factory=lambda: array("d"))
    forward_sequence: array[int] = field(default_factory=lambda: array("q"))
    looked_up: dict[int, int] = field(default_factory=dict)
    sum_start: array[float] = field(default_factory=lambda: array("d"))
    launch_time: array[float] = field(default_factory=lambda: array("d"))
    launch_id: array[int] = field(default_factory=lambda: array("q"))
    kernel_start: array[float] = field(default_factory=lambda: array("d"))
    kernel_end: array[float] = field(default_factory=lambda: array("d"))
    kernel_id: array[int] = field(default_factory=lambda: array("q"))
    product_us: float = 0.0
    other_us: float = 0.0
    communicates: bool = False

    def take(self, event: Any) -> None:
        """Keep what matters of one event; what is no complete event of a known kind is passed over."""
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        start, duration = _time(event.get("ts")), _time(event.get("dur"))
        name, category, more = event.get("name"), event.get("cat"), event.get("args")
        if start is None or duration is None or not isinstance(name, str) or not isinstance(category, str):
            return
        span = TraceSpan(name, start, start + duration)
        self._take_span(category.lower(), span, more if isinstance(more, dict) else {})

    def _take_span(self, kind: str, span: TraceSpan, arguments: dict[str, Any]) -> None:
        if kind in {"cpu_op", "operator"}:
            self._take_operator(span, arguments)
        elif kind in {"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"}:
            if (number := _identifier(arguments, "correlation")) is not None:
                self.launch_time.append(span.start)
                self.launch_id.append(number)
        elif kind == "kernel":
            self._take_kernel(span, arguments)
        elif kind == "user_annotation":
            if span.name.startswith("ProfilerStep"):
                self.steps.append(span)
            elif span.name.startswith("Optimizer.step#"):
                self.optimizers.append(span)
        elif kind == "python_function" and span.name.startswith(_MODULE):
            self.modules.append(TraceSpan(sys.intern(span.name.removeprefix(_MODULE)), span.start, span.end))

    def _take_operator(self, span: TraceSpan, arguments: dict[str, Any]) -> None:
        name = span.name
        sequence = _identifier(arguments, "Sequence number")
        if name == _ACCUMULATE:
            shapes = _shapes(arguments)
            self.accumulated.append((span.end, shapes[0] if shapes else None))
        elif name.startswith(_NODE):
            if sequence is not None:
                self.node_start.append(span.start)
                self.node_end.append(span.end)
                self.node_sequence.append(sequence)
                self.node_name.append(sys.intern(name.removeprefix(_NODE)))
        elif sequence is not None and not arguments.get("Fwd thread id"):
            self.forward_start.append(span.start)
            self.forward_sequence.append(sequence)
            shapes = _shapes(arguments) if name in _LOOKUPS else []
            if len(shapes) > 1:
                self.looked_up[sequence] = math.prod(shapes[1])
        elif name in {"aten::add", "aten::add_"}:
            self.sum_start.append(span.start)

    def _take_kernel(self, span: TraceSpan, arguments: dict[str, Any]) -> None:
        if "nccl" in span.name.lower():
            self.communicates = True
            return
        if (number := _identifier(arguments, "correlation")) is not None:
            self.kernel_start.append(span.start)
            self.kernel_end.append(span.end)
            self.kernel_id.append(number)
        if _PRODUCTS.search(span.name):
            self.product_us += span.end - span.start
        else:
            self.other_us += span.end - span.start


def collect_events(events: Iterable[Any]) -> Events:
    """Return what matters of all events of a trace."""
    found = Events()
    for event in events:
        found.take(event)
    return found


def _identifier(arguments: dict[str, Any], name: str) -> int | None:
    """Return a number by which events are found, if it is there and fits in 64 bits."""
    value = arguments.get(name)
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None


def _time(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < _LATEST_US else None


def _shapes(arguments: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the shapes of an operation's inputs, empty where nobody recorded them or they are none."""
    dims = arguments.get("Input Dims", arguments.get("Input dims"))
    if not isinstance(dims, list):
        return []
    shapes = [tuple(dim) if isinstance(dim, list) else () for dim in dims]
    return shapes if all(isinstance(length, int) and length >= 0 for shape in shapes for length in shape) else []
