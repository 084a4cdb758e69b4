"""Trains a module for some steps and takes medians of when layers ran and gradients were ready."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.gradient import SPARSE_BELOW
from s2sim.profiles import profile, read
from s2sim.provenance import usable_cores
from s2sim.pytorch.members import gather
from s2sim.pytorch.subject import TrainingSubject

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """The clock of a device; a mark of a GPU has a time once the GPU has passed it."""

    mark: Callable[[], Any]  # Returns a mark of this moment
    wait: Callable[[Any], None]  # Returns when a mark has been passed
    between_us: Callable[[Any, Any], float]  # Returns the microseconds from one mark to another, both passed


# An operation on the CPU has ended when its call returns.
HOST_CLOCK = DeviceClock(time.perf_counter, lambda _: None, lambda first, second: (second - first) * 1e6)


def clock_of(device: str) -> DeviceClock:
    """Return the clock of a device, ``cpu`` or ``cuda``; `S2SimError` without one."""
    if device not in ("cpu", "cuda"):
        raise OptionError(f"--device {device} is none that is recorded on: cpu or cuda")
    if device == "cpu":
        return HOST_CLOCK
    import torch

    if not torch.cuda.is_available():
        raise S2SimError("--device cuda: PyTorch finds no GPU here; record on the CPU with --device cpu, or elsewhere")
    new_event: Any = torch.cuda.Event  # Its annotations differ between versions of PyTorch.

    def mark() -> Any:
        event = new_event(enable_timing=True)
        event.record()
        return event

    # Events in the current stream are passed when all that was launched before them is done.
    return DeviceClock(mark, lambda event: event.synchronize(), lambda first, second: first.elapsed_time(second) * 1e3)


@dataclass(slots=True)
class StepMarks:
    """Marks of one step; layers in the order in which forward entered them, as often as it did."""

    layers: list[tuple[str, Any]] = field(default_factory=list)  # (module with own parameters, mark)
    ready: dict[str, Any] = field(default_factory=dict)
    forward_end: Any = None
    backward_end: Any = None
    optimizer_end: Any = None
    # Of steps of somebody's loop
    mini_batches: int = 1
    begin: Any = None
    optimizer_begin: Any = None
    end: Any = None
    reduces: bool = True  # Whether DistributedDataParallel reduces the gradients


def own_parameters(module: torch.nn.Module) -> dict[str, tuple[str, ...]]:
    """Return each module's own trained parameters by their `named_parameters` names, a shared one under its first."""
    names = {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}
    owners = {}
    for name, part in module.named_modules():
        own = tuple(names[id(each)] for each in part.parameters(recurse=False) if id(each) in names)
        if own:
            owners[name] = own
    return owners


@contextmanager
def watch(
    module: torch.nn.Module, clock: DeviceClock, first: str | None = None, last: str | None = None
) -> Iterator[list[StepMarks]]:
    """Yield a list of marks; layers and gradients are added to the last.

    With ``first`` only that module is, once, and of gradients only that of the parameter ``last``, if any.
    """
    steps: list[StepMarks] = []

    def entered(name: str, *_: Any) -> None:
        # Backward may compute forward again, as with activation checkpoints.
        if steps and steps[-1].forward_end is None and (first is None or not steps[-1].layers):
            steps[-1].layers.append((name, clock.mark()))

    def ready(name: str, *_: Any) -> None:
        if steps:
            steps[-1].ready[name] = clock.mark()

    parts: dict[str, Any] = dict(module.named_modules())
    parameters: dict[str, Any] = dict(module.named_parameters())
    if first is not None:
        parameters = {last: parameters[last]} if last else {}
    with ExitStack() as hooks:
        for name in own_parameters(module) if first is None else [first]:
            hooks.callback(parts[name].register_forward_pre_hook(partial(entered, name)).remove)
        for name, parameter in parameters.items():
            if parameter.requires_grad:
                hooks.callback(parameter.register_post_accumulate_grad_hook(partial(ready, name)).remove)
        yield steps


WARMUP_STEPS = 5
"""Not measured: kernels are chosen, memory is taken, and the optimizer makes its state."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Medians of a module's steps in microseconds."""

    ready_us: dict[str, float]  # By parameter in the order of readiness, since the start of backward
    # Forward time of each module by its parameter that is ready first, so that forward waits for all of them.
    forward_us: dict[str, float]
    optimizer_us: float
    sparse: frozenset[str]  # Parameters with mostly zero gradient rows
    without_gradient: tuple[str, ...]  # In all steps; ready at the end of backward


def measure(subject: TrainingSubject, clock: DeviceClock, steps: int, follow: Callable[[], None]) -> StepTimes:
    """Return times after warm-up: ``steps`` with all hooks, which take time, give shares, as many with one totals."""
    module = subject.module
    module.train()
    with watch(module, clock) as watched:
        seen = []
        for step in range(WARMUP_STEPS):
            _step(subject, clock, watched, step)
            if subject.sparse is None:
                seen.append(sparse_tables(module, {name: each.grad for name, each in module.named_parameters()}))
            follow()
        sparse = frozenset.intersection(*seen) if subject.sparse is None else subject.sparse
        if not watched[-1].layers:
            raise S2SimError("no module with parameters ran in forward: compute the loss by calling the module")
        watched.clear()
        for step in range(steps):
            _step(subject, clock, watched, WARMUP_STEPS + step)
            follow()
    with watch(module, clock, watched[-1].layers[0][0]) as plain:
        for step in range(steps):
            _step(subject, clock, plain, WARMUP_STEPS + steps + step)
            follow()
    return step_times(module, clock, watched, plain, sparse)


def step_times(
    module: torch.nn.Module,
    clock: DeviceClock,
    watched: list[StepMarks],
    plain: list[StepMarks],
    sparse: frozenset[str],
) -> StepTimes:
    """Return the times of steps with marks at all layers and gradients, scaled to those with few marks."""
    clock.wait(plain[-1].end or plain[-1].optimizer_end)
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    came = {name for marks in watched for name in marks.ready}
    hooked_us = median(clock.between_us(marks.forward_end, marks.backward_end) for marks in watched)
    plain_us = median(clock.between_us(marks.forward_end, marks.backward_end) for marks in plain)
    scale = plain_us / hooked_us if hooked_us > 0 else 1.0
    ready_us = {
        name: scale
        * median(
            max(0.0, clock.between_us(marks.forward_end, marks.ready.get(name, marks.backward_end)))
            for marks in watched
        )
        for name in names
    }
    order = sorted(names, key=lambda name: ready_us[name])
    return StepTimes(
        ready_us={name: ready_us[name] for name in order},
        forward_us=_forward_us(module, clock, watched, plain, order),
        optimizer_us=median(clock.between_us(marks.backward_end, marks.optimizer_end) for marks in plain),
        sparse=sparse,
        without_gradient=tuple(name for name in names if name not in came),
    )


def median_s(clock: DeviceClock, pairs: Iterable[tuple[Any, Any]]) -> float:
    """Return the median seconds from the first mark of a pair to the second."""
    return max(0.0, median(clock.between_us(*pair) for pair in pairs)) / 1e6


def iteration_parts(clock: DeviceClock, steps: list[StepMarks]) -> read.IterationSeconds:
    """Return the median parts of steps of somebody's loop."""
    ends = attrgetter("forward_end", "backward_end", "optimizer_begin", "optimizer_end")
    pairs = zip(*(pairwise((each.layers[0][1], *ends(each))) for each in steps), strict=True)
    forward_s, backward_s, exposed_s, optimizer_s = parts_s = [median_s(clock, each) for each in pairs]
    other_s = max(0.0, median_s(clock, [(each.begin, each.end) for each in steps]) - sum(parts_s))
    return read.IterationSeconds(forward_s, backward_s, exposed_s, optimizer_s, other_s)


def _step(subject: TrainingSubject, clock: DeviceClock, steps: list[StepMarks], number: int) -> None:
    import torch

    subject.optimizer.zero_grad(set_to_none=True)
    steps.append(StepMarks())
    loss = subject.loss(number)
    marks = steps[-1]
    marks.forward_end = clock.mark()
    torch.autograd.backward(loss)
    marks.backward_end = clock.mark()
    subject.optimizer.step()
    marks.optimizer_end = clock.mark()
    if len(steps) > 1:
        clock.wait(steps[-2].optimizer_end)


def sparse_tables(module: torch.nn.Module, gradients: Mapping[str, torch.Tensor | None]) -> frozenset[str]:
    """Return the embedding tables with mostly zero gradient rows, by the rule of imported gradients."""
    import torch

    names = {id(parameter): name for name, parameter in module.named_parameters()}
    found = set()
    for part in module.modules():
        if not isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag):
            continue
        name = names.get(id(part.weight), "")
        if (gradient := gradients.get(name)) is None:
            continue
        rows = gradient.coalesce().indices().shape[1] if gradient.is_sparse else int(gradient.any(dim=1).sum())
        if rows < SPARSE_BELOW * gradient.shape[0]:
            found.add(name)
    return frozenset(found)


def _forward_us(
    module: torch.nn.Module, clock: DeviceClock, watched: list[StepMarks], plain: list[StepMarks], order: list[str]
) -> dict[str, float]:
    """Return the forward time of each parameter, scaled to the total without most hooks."""
    bearer = {layer: min(own, key=order.index) for layer, own in own_parameters(module).items()}
    taken = [dict.fromkeys(order, 0.0) for _ in watched]
    for step, marks in zip(taken, watched, strict=True):
        for (layer, begin), (_, end) in pairwise([*marks.layers, ("", marks.forward_end)]):
            step[bearer[layer]] += clock.between_us(begin, end)
    medians = {name: median(step[name] for step in taken) for name in order}
    total = sum(medians.values())
    wholes = [clock.between_us(marks.layers[0][1], marks.forward_end) for marks in plain if marks.layers]
    scale = median(wholes) / total if wholes and total > 0 else 1.0
    return {name: time_us * scale for name, time_us in medians.items()}


def describe_network(group: Any, device: str, *, measure: bool) -> dict[str, Any]:
    """Return what ranks know of the network between them, fields of `RecordedJob`; all ranks call this."""
    import torch
    from torch import distributed

    # A job may leave it to PyTorch, or name one a device.
    own: Any = group or distributed.group.WORLD
    backend, namespace = own._get_backend(torch.device(device)).name(), Path("/proc/self/ns/net")  # noqa: SLF001
    # Processes with one name may have networks of their own.
    places = gather((socket.gethostname(), namespace.stat().st_ino if namespace.exists() else 0), group)
    return {
        "backend": backend,
        "hosts": tuple(name for name, _ in places),
        "nodes": tuple(list(dict.fromkeys(places)).index(place) for place in places),
        "interface": os.environ.get(f"{backend.upper()}_SOCKET_IFNAME"),
        "processors": usable_cores(),
        "all_reduces": time_all_reduces(group, device) if measure else (),
    }


_SIZES_BYTES = tuple(4**power for power in range(5, 13))  # 1 KiB to 16 MiB
_SMALL_BYTES, _IN_A_ROW = 1 << 16, 5
_REPEATS, _WARM_UPS, _LONGEST_S = 5, 2, 0.4


def time_all_reduces(group: Any, device: str) -> tuple[read.AllReduceTime, ...]:
    """Return the median seconds of float32 all-reduces of a process group by size, those of its slowest rank.

    All ranks call this. Sizes end after one that takes longer than .4 s; small ones are timed in a row.
    """
    import torch
    from torch import distributed

    clock, found = clock_of(device), []
    for size_bytes in _SIZES_BYTES:
        tensor = torch.zeros(size_bytes // 4, device=device)
        times_us, in_a_row = [], _IN_A_ROW if size_bytes <= _SMALL_BYTES else 1
        for _ in range(_WARM_UPS + _REPEATS):
            distributed.barrier(group=group)
            begin = clock.mark()
            for _ in range(in_a_row):
                distributed.all_reduce(tensor, group=group)
            end = clock.mark()
            clock.wait(end)
            times_us.append(clock.between_us(begin, end) / in_a_row)
        found.append(read.AllReduceTime(size_bytes, max(gather(median(times_us[_WARM_UPS:]) / 1e6, group))))
        if found[-1].time_s > _LONGEST_S:
            break
    return tuple(found)


@contextmanager
def with_precision(subject: TrainingSubject, precision: profile.Precision, device: str) -> Iterator[TrainingSubject]:
    """Yield a subject with a precision of matrix products (TF32 switch, autocast); settings are restored after."""
    import torch

    halves = {"fp16": torch.float16, "bf16": torch.bfloat16}

    def loss(step: int) -> torch.Tensor:
        context: Any = torch.autocast(device, halves[precision]) if precision in halves else nullcontext()
        with context:
            return subject.loss(step)

    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32 = convolution.allow_tf32 = precision == "tf32"
    try:
        yield replace(subject, loss=loss)
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before
