"""From a trace of PyTorch's profiler to a compute profile, and what the trace does not tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.extrapolation.models import load_model, model_names
from s2sim.profiles.kineto.events import gather
from s2sim.profiles.kineto.iteration import Timeline
from s2sim.profiles.kineto.json_stream import read_events
from s2sim.profiles.kineto.layer_names import named_as
from s2sim.profiles.profile import Profile, Ready
from s2sim.profiles.write import check_model_words
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from s2sim.arrays import Floats
    from s2sim.profiles.kineto.events import Events
    from s2sim.profiles.kineto.iteration import Iteration

_PS_PER_US = 10**6


@dataclass(frozen=True, slots=True)
class Imported:
    """A profile, and a line each on what was missing in its trace and what stands there instead."""

    profile: Profile
    notes: tuple[str, ...]


def import_trace(
    path: Path,
    *,
    name: str,
    model: str | None = None,
    batch: int | None = None,
    sample: str | None = None,
    gpu: str | None = None,
    follow: Callable[[int, int], None] | None = None,
) -> Imported:
    """Return the compute profile that a trace of PyTorch's profiler tells.

    Of iterations as ``profiler.step()`` marks them the first is dropped, and medians are taken of the others. With
    kernels of a GPU in the trace a gradient is ready when all kernels launched until then are done, else when the
    operation that adds it to its parameter is.

    Parameters
    ----------
    path : Path
        Chrome trace as ``export_chrome_trace`` writes it, plain or compressed with gzip; read as a stream.
    name : str
        Of the profile.
    model : str or None
        Name of a layer table, whose names the gradients get where their shapes are its, or a few words; the name of
        the trace unless given.
    batch : int or None
        Samples of one GPU's mini-batch, which no trace tells.
    sample : str or None
        What one of them is.
    gpu : str or None
        Name of the GPU; as the trace has it unless given.
    follow : callable or None
        Called with (bytes read, bytes in all) now and then.

    Raises
    ------
    S2SimError
        The file is broken, or lacks what a profile needs.
    """
    if batch is not None and batch < 1:
        raise S2SimError(f"a mini-batch of {batch} is none: say at least 1")
    if model:
        check_model_words(model)
    header: dict[str, Any] = {}
    events = gather(read_events(path, header, follow))
    timeline = Timeline(events)
    kept, notes = _kept(path, timeline)
    if not timeline.on_gpu:
        notes.append("no kernels of a GPU are in it: its times are those of operations on the host")
    if events.communicates:
        notes.append("kernels of NCCL ran beside backward, which took longer for it: a trace of one GPU has it alone")
    if not any(iteration.optimizer_us for iteration in kept):
        notes.append("no step of an optimizer is in it: taken as 0 s")
    if batch is None:
        notes.append("it does not tell the mini-batch: taken as one sample, say --batch")
    profile = Profile(
        name=name,
        model=model or path.name,
        gpu=gpu or _gpu(header),
        batch=batch or 1,
        sample=sample or ("sample" if batch else "mini-batch"),
        tensors=_tensors(timeline.names(kept[0]), kept),
        optimizer_ps=_ps(float(np.median([iteration.optimizer_us for iteration in kept]))),
        memory_bound=memory_bound(events),
        kind="measured",
        source=f"trace {path.name} of PyTorch's profiler, median of {number_of(len(kept), 'iteration')}",
    )
    if model in model_names():
        profile = named_as(profile, load_model(str(model)))
    return Imported(profile, tuple(notes))


def memory_bound(events: Events) -> float:
    """Return the share of kernels' time in those that multiply no matrices; 0 where the trace has no kernels."""
    total = events.product_us + events.other_us
    return round(events.other_us / total, 3) if total > 0 else 0.0


def _kept(path: Path, timeline: Timeline) -> tuple[list[Iteration], list[str]]:
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
        notes.append(f"{number_of(len(measured) - len(kept), 'iteration')} with other gradients left out")
    if any(iteration.repeated for iteration in kept):
        raise S2SimError(
            f"{path} runs forward several times in an iteration (accumulated gradients, or iterations that are not "
            "marked): profile without accumulation, and call profiler.step() after each optimizer step"
        )
    if not any(iteration.forward_us.any() for iteration in kept):
        raise S2SimError(f"{path} holds no forward: profile whole training steps, from forward to the optimizer's step")
    return kept, notes


def _tensors(names: tuple[str, ...], kept: list[Iteration]) -> tuple[Ready, ...]:
    ready = [_ps(each) for each in _medians([iteration.ready_us for iteration in kept])]
    forward = _medians([iteration.forward_us for iteration in kept])
    tensors = []
    before = 0
    for place, name in enumerate(names):
        shape = kept[0].shapes[place]
        assert shape is not None
        tensors.append(
            Ready(name, shape or (1,), kept[0].sparse[place], _ps(float(forward[place])), ready[place] - before)
        )
        before = ready[place]
    return tuple(tensors)


def _medians(columns: list[Floats]) -> Floats:
    return np.asarray(np.median(np.stack(columns), axis=0))


def _gpu(header: dict[str, Any]) -> str:
    devices = header.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else None
    found = first.get("name") if isinstance(first, dict) else None
    return found if isinstance(found, str) and found else "CPU"


def _ps(time_us: float) -> int:
    return round(time_us * _PS_PER_US)
