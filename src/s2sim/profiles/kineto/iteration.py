"""What one iteration of a trace took: when each gradient was ready, each layer's forward, the optimizer."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.gradients.gradient import SPARSE_BELOW

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints
    from s2sim.profiles.kineto.events import Accumulated, Events, Span


@dataclass(frozen=True, slots=True, eq=False)
class Iteration:
    """One forward, backward and step of the optimizer.

    Attributes
    ----------
    span : Span
        From its first event to its last.
    shapes : tuple
        Of the parameters in the order of readiness; None where nobody recorded one.
    sparse : tuple of bool
        Whether the gradient is that of rows looked up in a table.
    ready_us : float64 array of shape (n,)
        When each gradient was ready, in microseconds from the begin of backward.
    forward_us : float64 array of shape (n,)
        What forward took from the operation that first used a parameter until that of the next parameter, 0 where
        another parameter of the same operation has it.
    optimizer_us : float
        0 where the trace tells none.
    repeated : bool
        Whether forward ran again after the first gradient was ready: gradients are accumulated.
    """

    span: Span
    shapes: tuple[tuple[int, ...] | None, ...]
    sparse: tuple[bool, ...]
    ready_us: Floats
    forward_us: Floats
    optimizer_us: float
    repeated: bool


class Timeline:
    """Events of a trace by time, and when the GPU was done with what the host had asked for."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._accumulated = sorted(events.accumulated, key=lambda each: each.end)
        self._node_order = np.argsort(np.array(events.node_start), kind="stable")
        self._node_start = np.array(events.node_start)[self._node_order]
        self._node_end = np.array(events.node_end)[self._node_order]
        self._node_sequence = np.array(events.node_sequence)[self._node_order]
        order = np.argsort(np.array(events.forward_start), kind="stable")
        self._forward_start = np.array(events.forward_start)[order]
        self._forward_sequence = np.array(events.forward_sequence)[order]
        self._sum_start = np.sort(np.array(events.sum_start))
        self._modules = sorted(events.modules, key=lambda each: each.start)
        self._module_starts = [each.start for each in self._modules]

    @cached_property
    def _kernels(self) -> tuple[Floats, Floats, Floats]:
        """When kernels were launched, increasing, and when each started and ended on the GPU."""
        events = self._events
        ids, first = np.unique(np.array(events.launch_id, np.int64), return_index=True)
        launched = np.array(events.launch_time)[first]
        kernel_ids = np.array(events.kernel_id, np.int64)
        places = np.searchsorted(ids, kernel_ids)
        known = places < len(ids)
        known[known] = ids[places[known]] == kernel_ids[known]
        times = launched[places[known]]
        order = np.argsort(times, kind="stable")
        starts = np.array(events.kernel_start)[known][order]
        ends = np.array(events.kernel_end)[known][order]
        return times[order], starts, np.maximum.accumulate(ends) if len(ends) else ends

    @property
    def on_gpu(self) -> bool:
        """Whether the trace tells which call on the host started which kernel."""
        return len(self._kernels[0]) > 0

    def done_us(self, host_us: Floats) -> Floats:
        """Return when the GPU was done with all that was launched by some times on the host, not before these."""
        launched, _, ends = self._kernels
        places = np.searchsorted(launched, host_us)
        return np.asarray(np.maximum(host_us, np.concatenate([[-np.inf], ends])[places]))

    def iterations(self) -> list[Span]:
        """Return the iterations: as marked, else as the optimizer ends them, else all of the trace as one."""
        from s2sim.profiles.kineto.events import Span

        events = self._events
        if events.steps:
            return sorted(events.steps, key=lambda each: each.start)
        ends = sorted(each.end for each in events.optimizers) or [np.inf]
        starts = [-np.inf, *ends[:-1]]
        return [Span("iteration", start, end) for start, end in zip(starts, ends, strict=True)]

    def measure(self, span: Span) -> Iteration | None:
        """Return what an iteration took, None where no gradient became ready in it."""
        accumulated = self._accumulated_in(span)
        nodes = _within(self._node_start, span)
        forward = _within(self._forward_start, span)
        if not accumulated or not len(nodes):
            return None
        begun = float(self._node_start[nodes[0]])
        ends = np.array([each.end for each in accumulated])
        makers = self._makers(accumulated)
        sequences = self._node_sequence[makers]
        ready = self.done_us(ends) - self.done_us(np.array([begun]))
        outside = self._forward_start[forward]
        outside = outside[~self._in_backward(outside)]
        return Iteration(
            span=span,
            shapes=tuple(each.shape for each in accumulated),
            sparse=tuple(self._sparse(maker, each.shape) for maker, each in zip(makers, accumulated, strict=True)),
            ready_us=np.maximum.accumulate(np.maximum(ready, 0.0)),
            forward_us=self._forward_us(sequences, forward, begun),
            optimizer_us=self._optimizer_us(span),
            repeated=bool(np.any((outside > ends[0]) & (outside < ends[-1]))),
        )

    def _accumulated_in(self, span: Span) -> list[Accumulated]:
        return [each for each in self._accumulated if span.start <= each.end <= span.end]

    def _makers(self, accumulated: list[Accumulated]) -> Ints:
        """Return the function of backward that made each gradient: the last one to start before it was there."""
        ends = np.array([each.end for each in accumulated])
        return np.maximum(np.searchsorted(self._node_start, ends, side="right") - 1, 0)

    def _in_backward(self, host_us: Floats) -> Any:
        """Return which times lie within a function of backward, as where forward is computed again."""
        places = np.searchsorted(self._node_start, host_us, side="right") - 1
        furthest = np.maximum.accumulate(self._node_end)
        return (places >= 0) & (furthest[places] > host_us)

    def _starts(self, forward: Ints) -> dict[int, float]:
        """Return when each operation of forward began, by its sequence number."""
        starts: dict[int, float] = {}
        for place in forward:
            starts.setdefault(int(self._forward_sequence[place]), float(self._forward_start[place]))
        return starts

    def _forward_us(self, sequences: Ints, forward: Ints, begun: float) -> Floats:
        starts = {number: start for number, start in self._starts(forward).items() if start < begun}
        share = np.zeros(len(sequences))
        if not starts:
            return share
        # What is used first gets its gradient last; the parameter that is ready first waits for the whole operation.
        first_ready = {int(number): place for place, number in reversed(list(enumerate(sequences)))}
        used = sorted((starts[number], place) for number, place in first_ready.items() if number in starts)
        if not used:
            return share
        bounds = np.array([min(starts.values()), *(start for start, _ in used[1:]), begun])
        share[[place for _, place in used]] = np.diff(np.maximum.accumulate(self.done_us(bounds)))
        return share

    def _optimizer_us(self, span: Span) -> float:
        within = [each for each in self._events.optimizers if span.start <= each.start <= span.end]
        total = 0.0
        for step in within:
            launched, starts, ends = self._kernels
            first, last = np.searchsorted(launched, [step.start, step.end])
            if last > first:
                total += float(ends[last - 1] - starts[first])
            else:
                total += step.end - step.start
        return total

    def _sparse(self, maker: int, shape: tuple[int, ...] | None) -> bool:
        """Return whether a gradient is that of few rows: of a table looked up once, and used for nothing else."""
        name = self._events.node_name[self._node_order[maker]]
        indices = self._events.looked_up.get(int(self._node_sequence[maker]))
        if not name.startswith("Embedding") or not shape or indices is None:
            return False
        # A gradient of several parts, as of a table that is the output layer too, is summed before it is there.
        first, last = np.searchsorted(self._sum_start, [self._node_start[maker], self._node_end[maker]])
        return bool(first == last and indices < SPARSE_BELOW * shape[0])

    def names(self, iteration: Iteration) -> tuple[str, ...]:
        """Return names of its parameters: the module's where the trace tells it, else a number and the operation."""
        accumulated = self._accumulated_in(iteration.span)
        makers = self._makers(accumulated)
        starts = self._starts(_within(self._forward_start, iteration.span))
        modules = [self._module_at(starts.get(int(self._node_sequence[maker]))) for maker in makers]
        dimensions = [len(each.shape or ()) for each in accumulated]
        matrices = Counter(module for module, count in zip(modules, dimensions, strict=True) if count > 1)
        counts = Counter(modules)
        names: list[str] = []
        for place, (maker, module, dimension) in enumerate(zip(makers, modules, dimensions, strict=True)):
            operation = self._events.node_name[self._node_order[maker]].removesuffix("0").removesuffix("Backward")
            if module is None:
                names.append(f"{place}.{operation}")
            elif matrices[module] == 1 and counts[module] <= 2:
                names.append(f"{module}.{'weight' if dimension > 1 else 'bias'}")
            else:
                names.append(f"{module}.{modules[:place].count(module)}")
        return tuple(names)

    def _module_at(self, host_us: float | None) -> str | None:
        """Return the innermost module that was running, None where the trace tells none."""
        if host_us is None:
            return None
        for place in range(bisect_right(self._module_starts, host_us) - 1, -1, -1):
            if self._modules[place].end > host_us:
                return self._modules[place].name
        return None


def _within(sorted_us: Floats, span: Span) -> Ints:
    """Return the places of increasing times that lie within a span."""
    first, last = np.searchsorted(sorted_us, [span.start, span.end])
    return np.arange(first, last)
