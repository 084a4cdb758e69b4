"""What of a trace's events matters to a profile, as columns of numbers: some dozen bytes an event, not its text."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_OPERATORS = frozenset({"cpu_op", "operator"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"})
_ACCUMULATE = "torch::autograd::AccumulateGrad"
_NODE = "autograd::engine::evaluate_function: "
_MODULE = "nn.Module: "
_LOOKUPS = frozenset({"aten::embedding", "aten::embedding_bag", "aten::_embedding_bag"})
_SUMS = frozenset({"aten::add", "aten::add_"})
_LATEST_US = 1e18
# Kernels that multiply matrices: of cuBLAS, cuDNN, CUTLASS and flash attention. All others wait for the memory.
_PRODUCTS = re.compile(r"gemm|convol|wgrad|dgrad|fprop|winograd|cutlass|xmma|nvjet|fmha|flash", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A named stretch of time; ``start`` and ``end`` are microseconds on the trace's clock."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class GradientAccumulation:
    """A gradient added to its parameter: when that ended, in microseconds, and its shape, None if it is not known."""

    end: float
    shape: tuple[int, ...] | None


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
    accumulated: list[GradientAccumulation] = field(default_factory=list)
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
    _names: dict[str, str] = field(default_factory=dict)

    def take(self, event: Any) -> None:
        """Keep what matters of one event; what is no complete event of a known kind is passed over."""
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        start, duration = _time(event.get("ts")), _time(event.get("dur"))
        name, category = event.get("name"), event.get("cat")
        more = event.get("args")
        if start is None or duration is None or not isinstance(name, str) or not isinstance(category, str):
            return
        self._take_span(
            category.lower(), TraceSpan(name, start, start + duration), more if isinstance(more, dict) else {}
        )

    def _take_span(self, kind: str, span: TraceSpan, arguments: dict[str, Any]) -> None:
        if kind in _OPERATORS:
            self._take_operator(span, arguments)
        elif kind in _LAUNCHES:
            if isinstance(arguments.get("correlation"), int):
                self.launch_time.append(span.start)
                self.launch_id.append(arguments["correlation"])
        elif kind == "kernel":
            self._take_kernel(span, arguments)
        elif kind == "user_annotation":
            if span.name.startswith("ProfilerStep"):
                self.steps.append(span)
            elif span.name.startswith("Optimizer.step#"):
                self.optimizers.append(span)
        elif kind == "python_function" and span.name.startswith(_MODULE):
            self.modules.append(TraceSpan(self._one(span.name.removeprefix(_MODULE)), span.start, span.end))

    def _take_operator(self, span: TraceSpan, arguments: dict[str, Any]) -> None:
        name = span.name
        sequence = arguments.get("Sequence number")
        if name == _ACCUMULATE:
            shapes = _shapes(arguments)
            self.accumulated.append(GradientAccumulation(span.end, shapes[0] if shapes else None))
        elif name.startswith(_NODE):
            if isinstance(sequence, int):
                self.node_start.append(span.start)
                self.node_end.append(span.end)
                self.node_sequence.append(sequence)
                self.node_name.append(self._one(name.removeprefix(_NODE)))
        elif isinstance(sequence, int) and not arguments.get("Fwd thread id"):
            self.forward_start.append(span.start)
            self.forward_sequence.append(sequence)
            shapes = _shapes(arguments) if name in _LOOKUPS else []
            if len(shapes) > 1:
                self.looked_up[sequence] = math.prod(shapes[1])
        elif name in _SUMS:
            self.sum_start.append(span.start)

    def _take_kernel(self, span: TraceSpan, arguments: dict[str, Any]) -> None:
        if "nccl" in span.name.lower():
            self.communicates = True
            return
        if isinstance(arguments.get("correlation"), int):
            self.kernel_start.append(span.start)
            self.kernel_end.append(span.end)
            self.kernel_id.append(arguments["correlation"])
        if _PRODUCTS.search(span.name):
            self.product_us += span.end - span.start
        else:
            self.other_us += span.end - span.start

    def _one(self, name: str) -> str:
        return self._names.setdefault(name, name)


def collect_events(events: Iterable[Any]) -> Events:
    """Return what matters of all events of a trace."""
    found = Events()
    for event in events:
        found.take(event)
    return found


def _time(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < _LATEST_US else None


def _shapes(arguments: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the shapes of an operation's inputs, empty where nobody recorded them or they are none."""
    dims = arguments.get("Input Dims", arguments.get("Input dims"))
    if not isinstance(dims, list):
        return []
    shapes = [tuple(dim) if isinstance(dim, list) else () for dim in dims]
    whole = all(isinstance(length, int) and length >= 0 for shape in shapes for length in shape)
    return shapes if whole else []
