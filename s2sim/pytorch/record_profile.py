"""Records the compute profile of a model that trains on this machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.models import load_model, model_names
from s2sim.profiles.profile import PS_PER_US, ComputeProfile, Precision, RecordedProfile, tensor_timings
from s2sim.profiles.read import PROCESSORS
from s2sim.pytorch import task, timing
from s2sim.pytorch.subject import TrainingSubject, subject_maker, user_code_error
from s2sim.units import format_number_of

_MAX_LISTED = 3


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
) -> RecordedProfile:
    """Train a model for some steps and return its compute profile: times of layers, gradients and optimizer.

    Either ``model`` is an option string of a recorder's model such as ``lstm:width=32`` or a known network such as
    ``resnet-50`` (`NETWORKS`), or ``module`` is a user's function as ``package.module:function`` or
    ``path.py:function``: called with ``batch`` and ``device``, it returns a module, a function from step number to
    loss, and optionally an optimizer (default: plain SGD). ``batch`` is in samples (default: the model's); ``device``
    is cpu or cuda; ``precision`` is fp32, tf32 (GPU only), fp16 or bf16 (by autocast). ``steps`` are measured in each
    of two ways (`measure`). ``text`` is UTF-8 for language models; ``progress`` is called with (steps done, steps in
    all).
    """
    for what, number, least in (("--batch", batch, 1), ("--steps", steps, 1), ("--seed", seed, 0)):
        if number is not None and number < least:
            raise OptionError(f"{what} {number} is less than {least}")
    if precision == "tf32" and device == "cpu":
        raise OptionError("--precision tf32 is of GPUs: record with --device cuda")
    make = subject_maker(model, module, batch, [Path(path) for path in text], seed)
    total = timing.WARMUP_STEPS + 2 * steps
    done = 0

    def follow() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    try:
        import torch

        clock = timing.clock_of(device)
        gpus = [torch.cuda.current_device()] if device == "cuda" else []
        with torch.random.fork_rng(devices=gpus), timing.with_precision(make(device), precision, device) as subject:
            times = _run_user_code(subject, module, lambda: timing.measure(subject, clock, steps, follow))
            share = _run_user_code(subject, module, lambda: _memory_bound(subject)) if gpus else 0.0
    except ModuleNotFoundError as error:
        raise task.missing_extra(error) from error
    host = "" if device == "cuda" else f", {format_number_of(torch.get_num_threads(), 'thread')} of a CPU"
    counted = format_number_of(steps, "step")
    sparse = times.sparse
    if subject.model in model_names():
        sparse = frozenset(layer.name for layer in load_model(subject.model).layers if layer.sparse)
    profile = make_profile(
        replace(times, sparse=sparse),
        dict(subject.module.named_parameters()),
        name=name,
        model=subject.model,
        gpu=device_name(device),
        batch=subject.batch,
        sample=subject.sample,
        optimizer_ps=round(PS_PER_US * times.optimizer_us),
        source=f"hooks in training, PyTorch {torch.__version__}, {precision}, median of {counted}{host}",
        precision=precision,
        memory_bound=share,
    )
    notes = []
    if device == "cpu":
        notes.append("these are times of a CPU: record with --device cuda on the GPU that you ask about")
    if times.without_gradient:
        shown = ", ".join(times.without_gradient[:_MAX_LISTED])
        more = len(times.without_gradient) - _MAX_LISTED
        shown += f" and {more} more" if more > 0 else ""
        notes.append(f"without a gradient, and ready at the end of backward: {shown}")
    return RecordedProfile(profile, tuple(notes))


def make_profile(
    times: timing.StepTimes, parameters: Mapping[str, Any], *, memory_bound: float = 0.0, **about: Any
) -> ComputeProfile:
    """Return the measured profile of times of a module's parameters, with fields of a `ComputeProfile` in ``about``."""
    names = list(times.ready_us)
    tensors = tensor_timings(
        names,
        [tuple(parameters[name].shape) for name in names],
        [name in times.sparse for name in names],
        [times.forward_us[name] for name in names],
        list(times.ready_us.values()),
    )
    return ComputeProfile(tensors=tensors, memory_bound=memory_bound, kind="measured", **about)


def _run_user_code(subject: TrainingSubject, module: str | None, work: Callable[[], Any]) -> Any:
    """Return the result of ``work``; errors of a user's code become one line."""
    import torch

    try:
        return work()
    except torch.cuda.OutOfMemoryError as error:
        raise S2SimError(f"the GPU's memory is too small for a mini-batch of {subject.batch}: say less") from error
    except Exception as error:  # a user's code may raise anything
        if module is None or isinstance(error, S2SimError):
            raise
        raise user_code_error(module, error) from error


def device_name(device: str) -> str:
    """Return a GPU's name in the catalogue, or as PyTorch has it; ``CPU`` for the host."""
    if device == "cpu":
        return PROCESSORS
    import torch

    from s2sim.topology.hardware import find_gpu_name

    found = torch.cuda.get_device_name()
    return find_gpu_name(found) or found


def _memory_bound(subject: TrainingSubject) -> float:
    """Return the share of kernel time without matrix products, by PyTorch's profiler over one step."""
    from tempfile import TemporaryDirectory

    import torch
    from torch.profiler import ProfilerActivity, profile

    from s2sim.profiles.kineto import memory_bound
    from s2sim.profiles.kineto_events import collect_events, read_events

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        subject.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(subject.loss(0))
        subject.optimizer.step()
        torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        profiler.export_chrome_trace(str(path))
        return memory_bound(collect_events(read_events(path, {})))
