"""Records the compute profile of a model that trains on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sim.bridge.task import missing_extra
from s2sim.bridge.timing.clock import clock_of
from s2sim.bridge.timing.measure import WARMUP_STEPS, measure
from s2sim.bridge.timing.precision import check_precision, in_precision
from s2sim.bridge.timing.subject import failed, subject_maker
from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.extrapolation.models import load_model, model_names
from s2sim.profiles.profile import Profile, Ready
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.bridge.timing.measure import Times
    from s2sim.bridge.timing.subject import Subject
    from s2sim.profiles.form import Precision

_PS_PER_US = 10**6
_MOST_LISTED = 3


@dataclass(frozen=True, slots=True)
class Recorded:
    """A profile, and a line each on what one might not expect of it."""

    profile: Profile
    notes: tuple[str, ...]


def record_profile(
    *,
    name: str,
    model: str | None = None,
    module: str | None = None,
    batch: int | None = None,
    device: str = "cpu",
    precision: Precision = "fp32",
    steps: int = 20,
    text: Sequence[str | Path] = (),
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Recorded:
    """Train a model for some steps and return what its layers take, when its gradients are ready, and its optimizer.

    Parameters
    ----------
    name : str
        Of the profile.
    model, module : str or None
        One of the two: a model of the recorder such as ``lstm:width=32`` or a known network such as ``resnet-50``
        (`NETWORKS`), or a user's function as ``package.module:function`` or ``path.py:function``. It is called with
        ``batch`` and ``device`` and returns a module, a function from the number of a step to its loss, and an
        optimizer if it is not plain SGD.
    batch : int or None
        Samples of a mini-batch; the model's own unless given.
    device : {"cpu", "cuda"}
        Where it trains; on a GPU marks are events in its stream.
    precision : {"fp32", "tf32", "fp16", "bf16"}
        Of matrix products; TF32 on a GPU alone, half precision by autocast.
    steps : int
        Steps that are measured in each of two ways, after warm-up steps: see `measure`.
    text : sequence of path
        UTF-8 text for the language models.
    seed : int
        Root seed of weights and samples of the recorder's models.
    progress : callable or None
        Called with (steps done, steps in all).

    Raises
    ------
    S2SimError
        Something is missing, or the user's function fails.
    """
    for what, number, least in (("--batch", batch, 1), ("--steps", steps, 1), ("--seed", seed, 0)):
        if number is not None and number < least:
            raise OptionError(f"{what} {number} is less than {least}")
    check_precision(precision, device)
    make = subject_maker(model, module, batch, [Path(path) for path in text], seed)
    total = WARMUP_STEPS + 2 * steps
    done = 0

    def follow() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    try:
        import torch

        clock = clock_of(device)
        gpus = [torch.cuda.current_device()] if device == "cuda" else []
        with torch.random.fork_rng(devices=gpus), in_precision(make(device), precision, device) as subject:
            times = _measured(subject, module, lambda: measure(subject, clock, steps, follow))
            share = _measured(subject, module, lambda: _memory_bound(subject)) if gpus else 0.0
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    host = "" if device == "cuda" else f", {number_of(torch.get_num_threads(), 'thread')} of a CPU"
    counted = number_of(steps, "step")
    profile = Profile(
        name=name,
        model=subject.model,
        gpu=_device_name(device),
        batch=subject.batch,
        sample=subject.sample,
        tensors=_tensors(subject, times),
        optimizer_ps=_ps(times.optimizer_us),
        memory_bound=share,
        kind="measured",
        source=f"hooks in training, PyTorch {torch.__version__}, {precision}, median of {counted}{host}",
    )
    return Recorded(profile, _notes(times, device))


def _measured(subject: Subject, module: str | None, work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns; whatever a user's module or its loss raises is one line."""
    import torch

    try:
        return work()
    except torch.cuda.OutOfMemoryError as error:
        raise S2SimError(f"the GPU's memory is too small for a mini-batch of {subject.batch}: say less") from error
    except Exception as error:  # a user's code may raise anything
        if module is None or isinstance(error, S2SimError):
            raise
        raise failed(module, error) from error


def _tensors(subject: Subject, times: Times) -> tuple[Ready, ...]:
    shapes = {name: tuple(parameter.shape) or (1,) for name, parameter in subject.module.named_parameters()}
    sparse = times.sparse
    if subject.model in model_names():
        sparse = frozenset(layer.name for layer in load_model(subject.model).layers if layer.sparse)
    tensors = []
    before = 0
    for name, ready_us in times.ready_us.items():
        ready = _ps(ready_us)
        tensors.append(Ready(name, shapes[name], name in sparse, _ps(times.forward_us[name]), ready - before))
        before = ready
    return tuple(tensors)


def _notes(times: Times, device: str) -> tuple[str, ...]:
    notes = []
    if device == "cpu":
        notes.append("these are times of a CPU: record with --device cuda on the GPU that you ask about")
    if times.without_gradient:
        shown = ", ".join(times.without_gradient[:_MOST_LISTED])
        more = len(times.without_gradient) - _MOST_LISTED
        notes.append(
            f"without a gradient, and ready at the end of backward: {shown}{f' and {more} more' if more > 0 else ''}"
        )
    return tuple(notes)


def _device_name(device: str) -> str:
    """Return the GPU's name in the hardware catalogue, or as its driver has it."""
    if device == "cpu":
        return "CPU"
    import torch

    from s2sim.topology.files.links import load_links

    found = torch.cuda.get_device_name()
    return load_links().gpu_name(found) or found


def _memory_bound(subject: Subject) -> float:
    """Return the share of kernels' time in which they multiply no matrices, by PyTorch's profiler over one step."""
    from tempfile import TemporaryDirectory

    import torch
    from torch.profiler import ProfilerActivity, profile

    from s2sim.profiles.kineto.events import gather
    from s2sim.profiles.kineto.json_stream import read_events
    from s2sim.profiles.kineto.read import memory_bound

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        subject.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(subject.loss(0))
        subject.optimizer.step()
        torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        profiler.export_chrome_trace(str(path))
        return memory_bound(gather(read_events(path, {})))


def _ps(time_us: float) -> int:
    return round(time_us * _PS_PER_US)
