"""Trains a module for some steps and takes medians of when layers ran and gradients were ready."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from s2sim.bridge.timing.watch import Marks, own_parameters, watching_all, watching_begin
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import SPARSE_BELOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.bridge.timing.clock import Clock
    from s2sim.bridge.timing.subject import Subject

WARMUP_STEPS = 5
"""Not measured: kernels are chosen, memory is taken, and the optimizer makes its state."""


@dataclass(frozen=True, slots=True)
class Times:
    """Medians of a module's steps in microseconds."""

    # Parameter to when its gradient was ready, from the begin of backward, in the order of readiness.
    ready_us: dict[str, float]
    # Parameter to what forward takes from entering its module until entering the next; the parameter of a module that
    # is ready first has all of it, so that forward waits for all of them.
    forward_us: dict[str, float]
    optimizer_us: float
    sparse: frozenset[str]  # Parameters whose gradient has few non-zero rows
    # Parameters that got none in any step; they count as ready at the end of backward.
    without_gradient: tuple[str, ...]


def measure(subject: Subject, clock: Clock, steps: int, follow: Callable[[], None]) -> Times:
    """Return the times of a module in training, after warm-up steps.

    Hooks take time themselves. So ``steps`` run with a hook on every layer and every parameter, and as many with one
    hook only; these tell how long forward, backward and optimizer are, those how it is shared out.
    """
    module = subject.module
    module.train()
    with watching_all(module, clock) as watched:
        seen = []
        for step in range(WARMUP_STEPS):
            _step(subject, clock, watched, step)
            if subject.sparse is None:
                seen.append(_few_rows(subject))
            follow()
        sparse = frozenset.intersection(*seen) if subject.sparse is None else subject.sparse
        if not watched[-1].layers:
            raise S2SimError("no module with parameters ran in forward: compute the loss by calling the module")
        watched.clear()
        for step in range(steps):
            _step(subject, clock, watched, WARMUP_STEPS + step)
            follow()
    with watching_begin(module, watched[-1].layers[0][0], clock) as plain:
        for step in range(steps):
            _step(subject, clock, plain, WARMUP_STEPS + steps + step)
            follow()
    clock.wait(plain[-1].optimizer_end)
    return _medians(subject, clock, watched, plain, sparse)


def _step(subject: Subject, clock: Clock, steps: list[Marks], number: int) -> None:
    """Train one step; the host runs ahead of the GPU by one, as in a training."""
    import torch

    subject.optimizer.zero_grad(set_to_none=True)
    steps.append(Marks())
    loss = subject.loss(number)
    marks = steps[-1]
    marks.forward_end = clock.mark()
    torch.autograd.backward(loss)
    marks.backward_end = clock.mark()
    subject.optimizer.step()
    marks.optimizer_end = clock.mark()
    if len(steps) > 1:
        clock.wait(steps[-2].optimizer_end)


def _few_rows(subject: Subject) -> frozenset[str]:
    """Return the tables of embeddings of whose gradient most rows are zero, as imported gradients are judged."""
    import torch

    names = {id(parameter): name for name, parameter in subject.module.named_parameters()}
    found = set()
    for part in subject.module.modules():
        if not isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag):
            continue
        gradient = part.weight.grad
        if gradient is None or id(part.weight) not in names:
            continue
        rows = gradient.coalesce().indices().shape[1] if gradient.is_sparse else int(gradient.any(dim=1).sum())
        if rows < SPARSE_BELOW * gradient.shape[0]:
            found.add(names[id(part.weight)])
    return frozenset(found)


def _medians(subject: Subject, clock: Clock, watched: list[Marks], plain: list[Marks], sparse: frozenset[str]) -> Times:
    names = [name for name, parameter in subject.module.named_parameters() if parameter.requires_grad]
    seen = {name for marks in watched for name in marks.ready}
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
    return Times(
        ready_us={name: ready_us[name] for name in order},
        forward_us=_forward_us(subject, clock, watched, plain, order),
        optimizer_us=median(clock.between_us(marks.backward_end, marks.optimizer_end) for marks in plain),
        sparse=sparse,
        without_gradient=tuple(name for name in names if name not in seen),
    )


def _forward_us(
    subject: Subject, clock: Clock, watched: list[Marks], plain: list[Marks], order: list[str]
) -> dict[str, float]:
    """Return what forward takes of each parameter, scaled to what it takes in all without most hooks."""
    owners = own_parameters(subject.module)
    bearer = {layer: min(own, key=order.index) for layer, own in owners.items()}
    shares: dict[str, list[float]] = {name: [] for name in order}
    for marks in watched:
        taken = dict.fromkeys(order, 0.0)
        begins = [*marks.layers, ("", marks.forward_end)]
        for (layer, begin), (_, end) in pairwise(begins):
            taken[bearer[layer]] += clock.between_us(begin, end)
        for name, time_us in taken.items():
            shares[name].append(time_us)
    medians = {name: median(times) for name, times in shares.items()}
    total = sum(medians.values())
    wholes = [clock.between_us(marks.layers[0][1], marks.forward_end) for marks in plain if marks.layers]
    scale = median(wholes) / total if wholes and total > 0 else 1.0
    return {name: time_us * scale for name, time_us in medians.items()}
