"""What one iteration of a trace took: when each gradient was ready, each layer's forward, the optimizer."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import S2SimError
from s2sim.gradients import gradient, models
from s2sim.profiles.kineto_events import Events, TraceSpan, collect_events, read_events
from s2sim.profiles.profile import PS_PER_US, ComputeProfile, RecordedProfile, tensor_timings
from s2sim.profiles.read import check_model_name
from s2sim.tables import group_by
from s2sim.units import format_number_of


@dataclass(frozen=True, slots=True, eq=False)
class TraceIteration:
    """One forward, backward and step of the optimizer."""

    names: tuple[str, ...]  # Of the parameters in the order of readiness
    shapes: tuple[tuple[int, ...] | None, ...]  # Of the parameters; None where nobody recorded one
    sparse: tuple[bool, ...]  # Whether the gradient is that of rows looked up in a table
    ready_us: Floats  # When each gradient was ready, in microseconds from the begin of backward
    # What forward took from the operation that first used a parameter until that of the next parameter, 0 where another
    # parameter of the same operation has it
    forward_us: Floats
    optimizer_us: float  # 0 where the trace tells none
    repeated: bool  # Whether forward ran again after the first gradient was ready: gradients are accumulated


class TraceTimeline:
    """Events of a trace by time, and when the GPU was done with what the host had asked for."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._accumulated = sorted(events.accumulated, key=itemgetter(0))
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
        self._optimizers = list[TraceSpan]()
        for step in sorted(events.optimizers, key=lambda each: (each.start, -each.end)):
            # An optimizer that calls another has it within its own step.
            if not self._optimizers or step.end > self._optimizers[-1].end:
                self._optimizers.append(step)

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
        return np.asarray(np.maximum(host_us, np.concatenate([[-np.inf], ends])[np.searchsorted(launched, host_us)]))

    def iterations(self) -> list[TraceSpan]:
        """Return the iterations: as marked, else as the optimizer ends them, else all of the trace as one."""
        events = self._events
        if events.steps:
            return sorted(events.steps, key=lambda each: each.start)
        ends = [each.end for each in self._optimizers] or [np.inf]
        return [TraceSpan("iteration", start, end) for start, end in zip([-np.inf, *ends[:-1]], ends, strict=True)]

    def measure(self, span: TraceSpan) -> TraceIteration | None:
        """Return what an iteration took, None where no gradient became ready in it."""
        accumulated = [(end, shape) for end, shape in self._accumulated if span.start <= end <= span.end]
        nodes = _within(self._node_start, span)
        forward = _within(self._forward_start, span)
        if not accumulated or not len(nodes):
            return None
        begun = float(self._node_start[nodes[0]])
        ends = np.array([end for end, _ in accumulated])
        # The function of backward that made each gradient: the last one to start before it was there.
        makers = np.maximum(np.searchsorted(self._node_start, ends, side="right") - 1, 0)
        shapes = tuple(shape for _, shape in accumulated)
        starts: dict[int, float] = {}
        for place in forward:
            starts.setdefault(int(self._forward_sequence[place]), float(self._forward_start[place]))
        ready = self.done_us(ends) - self.done_us(np.array([begun]))
        outside = self._forward_start[forward]
        # The last function of backward that had begun, and when all so far had ended.
        places = np.searchsorted(self._node_start, outside, side="right") - 1
        outside = outside[(places < 0) | (np.maximum.accumulate(self._node_end)[places] <= outside)]
        return TraceIteration(
            names=self._names(makers, shapes, starts),
            shapes=shapes,
            sparse=tuple(self._sparse(maker, shape) for maker, shape in zip(makers, shapes, strict=True)),
            ready_us=np.maximum.accumulate(np.maximum(ready, 0.0)),
            forward_us=self._forward_us(self._node_sequence[makers], starts, begun),
            optimizer_us=self._optimizer_us(span),
            repeated=bool(np.any((outside > ends[0]) & (outside < ends[-1]))),
        )

    def _forward_us(self, sequences: Ints, all_starts: dict[int, float], begun: float) -> Floats:
        starts = {number: start for number, start in all_starts.items() if start < begun}
        share = np.zeros(len(sequences))
        # What is used first gets its gradient last; the parameter that is ready first waits for the whole operation.
        first_ready = {int(number): place for place, number in reversed(list(enumerate(sequences)))}
        used = sorted((starts[number], place) for number, place in first_ready.items() if number in starts)
        if not used:
            return share
        bounds = np.array([min(starts.values()), *(start for start, _ in used[1:]), begun])
        share[[place for _, place in used]] = np.diff(np.maximum.accumulate(self.done_us(bounds)))
        return share

    def _optimizer_us(self, span: TraceSpan) -> float:
        launched, starts, ends = self._kernels
        total = 0.0
        for step in self._optimizers:
            if span.start <= step.start <= span.end:
                first, last = np.searchsorted(launched, [step.start, step.end])
                total += float(ends[last - 1] - starts[first]) if last > first else step.end - step.start
        return total

    def _sparse(self, maker: int, shape: tuple[int, ...] | None) -> bool:
        """Return whether a gradient is that of few rows: of a table looked up once, and used for nothing else."""
        name = self._events.node_name[self._node_order[maker]]
        indices = self._events.looked_up.get(int(self._node_sequence[maker]))
        if not name.startswith("Embedding") or not shape or indices is None:
            return False
        # A gradient of several parts, as of a table that is the output layer too, is summed before it is there.
        first, last = np.searchsorted(self._sum_start, [self._node_start[maker], self._node_end[maker]])
        return bool(first == last and indices < gradient.SPARSE_BELOW * shape[0])

    def _names(
        self, makers: Ints, shapes: tuple[tuple[int, ...] | None, ...], starts: dict[int, float]
    ) -> tuple[str, ...]:
        """Return names of parameters: the module's where the trace tells it, else a number and the operation."""
        modules = [self._module_at(starts.get(int(self._node_sequence[maker]))) for maker in makers]
        dimensions = [len(shape or ()) for shape in shapes]
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
        places = range(bisect_right(self._module_starts, host_us) - 1, -1, -1)
        return next((self._modules[place].name for place in places if self._modules[place].end > host_us), None)


def _within(sorted_us: Floats, span: TraceSpan) -> Ints:
    first, last = np.searchsorted(sorted_us, [span.start, span.end])
    return np.arange(first, last)


def name_by_model(profile: ComputeProfile, model: models.Model) -> ComputeProfile:
    """Return a profile with a model's layer names; layers of one shape are matched by their order in forward."""
    wanted = Counter(layer.shape for layer in model.layers)
    found = Counter(tensor.shape for tensor in profile.tensors)
    for shape in [*wanted, *found]:
        if wanted[shape] != found[shape]:
            raise S2SimError(
                f"model {model.name} has {wanted[shape]} of {sum(wanted.values())} layers of the shape "
                f"{' x '.join(map(str, shape))}, the trace {found[shape]} of {sum(found.values())}: name the model "
                "that was profiled, or call it in words of your own"
            )
    layers = group_by(model.layers, lambda layer: layer.shape)
    tensors = []
    for tensor in profile.tensors:
        layer = layers[tensor.shape].pop()
        tensors.append(replace(tensor, name=layer.name, sparse=layer.sparse))
    return replace(profile, model=model.name, tensors=tuple(tensors))


def import_profile(
    path: Path,
    *,
    name: str,
    model: str | None = None,
    batch: int | None = None,
    sample: str | None = None,
    gpu: str | None = None,
    follow: Callable[[int, int], None] | None = None,
) -> RecordedProfile:
    """Return the compute profile of a trace of PyTorch's profiler: medians of iterations but the first.

    ``path`` is a Chrome trace, plain or gzip. A gradient is ready when all kernels launched before are done, or,
    without a GPU, when it has been added. ``model`` names a layer table with the gradients' names or is free text
    (default: the file's name); ``batch`` is samples of one GPU, ``sample`` describes one, ``gpu`` defaults to the
    trace's. ``follow`` is called with (bytes read, total bytes). `S2SimError` for unusable files.
    """
    if batch is not None and batch < 1:
        raise S2SimError(f"a mini-batch of {batch} is none: say at least 1")
    if model:
        check_model_name(model)
    header: dict[str, Any] = {}
    events = collect_events(read_events(path, header, follow))
    timeline = TraceTimeline(events)
    kept, notes = _iterations_to_use(path, timeline)
    if not timeline.on_gpu:
        notes.append("no kernels of a GPU are in it: its times are those of operations on the host")
    if events.communicates:
        notes.append("kernels of NCCL ran beside backward, which took longer for it: a trace of one GPU has it alone")
    if not any(iteration.optimizer_us for iteration in kept):
        notes.append("no step of an optimizer is in it: taken as 0 s")
    if batch is None:
        notes.append("it does not tell the mini-batch: taken as one sample, say --batch")
    profile = ComputeProfile(
        name=name,
        model=model or path.name,
        gpu=gpu or _gpu(header),
        batch=batch or 1,
        sample=sample or ("sample" if batch else "mini-batch"),
        tensors=tensor_timings(
            kept[0].names,
            [shape for shape in kept[0].shapes if shape is not None],
            kept[0].sparse,
            *(np.median([getattr(one, part) for one in kept], axis=0).tolist() for part in ("forward_us", "ready_us")),
        ),
        optimizer_ps=round(PS_PER_US * float(np.median([iteration.optimizer_us for iteration in kept]))),
        memory_bound=memory_bound(events),
        kind="measured",
        source=f"trace {path.name} of PyTorch's profiler, median of {format_number_of(len(kept), 'iteration')}",
    )
    if model in models.model_names():
        profile = name_by_model(profile, models.load_model(str(model)))
    return RecordedProfile(profile, tuple(notes))


def memory_bound(events: Events) -> float:
    """Return the share of kernels' time in those that multiply no matrices; 0 where the trace has no kernels."""
    total = events.product_us + events.other_us
    return round(events.other_us / total, 3) if total > 0 else 0.0


def _iterations_to_use(path: Path, timeline: TraceTimeline) -> tuple[list[TraceIteration], list[str]]:
    """Return the iterations to take medians of, all with the same gradients, and what to say of those left out."""
    measured = [found for span in timeline.iterations() if (found := timeline.measure(span)) is not None]
    if not measured:
        raise S2SimError(f"{path} holds no backward: profile whole training steps, loss.backward() within them")
    notes = []
    if len(measured) > 1:
        measured = measured[1:]
    else:
        notes.append("it holds one iteration alone, which may still be warming up: mark several with profiler.step()")
    shapes = Counter(iteration.shapes for iteration in measured).most_common(1)[0][0]
    if None in shapes:
        raise S2SimError(f"{path} does not tell the shapes of gradients: profile with record_shapes=True")
    kept = [iteration for iteration in measured if iteration.shapes == shapes]
    if len(kept) < len(measured):
        notes.append(f"{format_number_of(len(measured) - len(kept), 'iteration')} with other gradients left out")
    if any(iteration.repeated for iteration in kept):
        raise S2SimError(
            f"{path} runs forward several times in an iteration (accumulated gradients, or iterations that are not "
            "marked): profile without accumulation, and call profiler.step() after each optimizer step"
        )
    if not any(iteration.forward_us.any() for iteration in kept):
        raise S2SimError(f"{path} holds no forward: profile whole training steps, from forward to the optimizer's step")
    return kept, notes


def _gpu(header: dict[str, Any]) -> str:
    devices = header.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else None
    found = first.get("name") if isinstance(first, dict) else None
    return found if isinstance(found, str) and found else "CPU"
