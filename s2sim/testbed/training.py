"""Iterations of DistributedDataParallel between processes of a testbed: alone, with hooks, and recorded."""

import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from s2sim.errors import OptionError
from s2sim.profiles.read import RecordedJob
from s2sim.pytorch.members import gather
from s2sim.pytorch.subject import TrainingSubject, subject_maker
from s2sim.testbed.measure import MIN_REPEATS, Repetitions, sent_bytes, summarise

DENSE, PYTORCH = "dense", "torch:"
"""Training without a hook, and what the names of PyTorch's own hooks begin with."""

_PYTORCH_HOOK = re.compile(r"torch:(?:fp16|powersgd(?::rank=([1-9]\d{0,3}))?)")
# DDP makes its buckets anew after the first step, and reducers with feedback are in full swing some steps later.
_WARM_UPS = 5


@dataclass(frozen=True, slots=True)
class Training:
    """A training: one of the recorder's models or a function of the user's own, its mini-batch and DDP's buckets."""

    model: str | None = None
    module: str | None = None  # ``path.py:function``, see `s2sim.pytorch.subject.function_subject`
    batch: int | None = None  # Samples of one rank's mini-batch; None for what the model says
    bucket_bytes: int = 25 << 20  # Limit of DDP's buckets
    seed: int = 0
    text: tuple[str, ...] = ()  # Paths of what a language model learns from

    @property
    def name(self) -> str:
        """What rows and the folder of the recorded job call it."""
        parts = [self.model or self.module, *self.text, f"batch{self.batch or ''}", f"bucket{self.bucket_bytes}"]
        whole = "-".join(map(str, parts + [f"seed{self.seed}"] * bool(self.seed)))
        return re.sub(r"[^\w.=-]+", "-", whole.replace(".py", "")).strip("-.")

    def subject(self) -> TrainingSubject:
        """Return module, loss and optimizer; `OptionError` or `S2SimError` if there are none."""
        return subject_maker(self.model, self.module, self.batch, [*map(Path, self.text)], self.seed)("cpu")


@cache
def gradient_bytes(training: Training) -> int:
    """Return the bytes of the dense gradient of a training in float32."""
    return 4 * sum(each.numel() for each in training.subject().module.parameters() if each.requires_grad)


def check_hook(text: str) -> None:
    """Refuse what is no hook: neither a reducer's option string nor ``torch:`` and one of PyTorch's own."""
    if not text.startswith(PYTORCH):
        from s2sim.pytorch.hook import reducer_for_training

        reducer_for_training(text, feedback=True)
    elif _PYTORCH_HOOK.fullmatch(text) is None:
        raise OptionError(f"--reducer {text}: PyTorch's own are torch:fp16 and torch:powersgd:rank=N")


def find_recorded(folder: Path, name: str, workers: int, setting: str) -> Path | None:
    """Return where a training was recorded between so many workers, on ``setting`` if it was; None if nowhere."""
    found = [path.parent for path in sorted((folder / "recorded").glob(f"*/{name}/job.json"))]
    found = [path for path in found if RecordedJob.read(str(path)).ranks == workers]
    return next((path for path in found if path.parent.name == setting), found[0] if found else None)


def prepare_recorded(folder: Path, name: str, workers: int, setting: str) -> Path | None:
    """Return the empty place where the training is to be recorded; None if it is recorded."""
    if find_recorded(folder, name, workers, setting) is not None:
        return None
    place = folder / "recorded" / setting / name
    shutil.rmtree(place, ignore_errors=True)  # What an interrupted recording left
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def run_trainings(rank: int, ranks: int, arguments: Mapping[str, Any], tell: Callable[[Any], None]) -> None:
    """Record a ``training`` (fields of `Training`) into ``recorded`` unless None, and time it with each task's hook."""
    training, effort = Training(**arguments["training"]), Repetitions(**arguments["effort"])
    if arguments["recorded"] is not None:
        _record(training, Path(arguments["recorded"]), rank, ranks)
    for number, fields in enumerate(arguments["tasks"]):
        summary = _time_training(training, fields["what"], rank, ranks, effort)
        if rank == 0:
            tell({"number": number, "summary": summary})


def _distribute(training: Training, rank: int, ranks: int) -> tuple[Any, TrainingSubject, Callable[[int], None]]:
    """Return the training in DistributedDataParallel, and a function from an iteration's number that does it."""
    import torch

    subject = training.subject()

    class Loss(torch.nn.Module):
        """The module with its loss, as DDP has to be called to notice a mini-batch."""

        def __init__(self) -> None:
            super().__init__()
            self.model = subject.module

        def forward(self, step: int) -> torch.Tensor:
            return subject.loss(step)

    ddp = torch.nn.parallel.DistributedDataParallel(Loss(), bucket_cap_mb=training.bucket_bytes / 2**20)

    def iterate(number: int) -> None:
        subject.optimizer.zero_grad()
        ddp(number * ranks + rank).backward()
        subject.optimizer.step()

    return ddp, subject, iterate


def _record(training: Training, folder: Path, rank: int, ranks: int) -> None:
    from s2sim.pytorch.job_recorder import JobRecorder

    ddp, subject, iterate = _distribute(training, rank, ranks)
    sparse = any(getattr(each, "sparse", False) for each in subject.module.modules())
    about: dict[str, Any] = {"batch": subject.batch, "sample": subject.sample, "model": subject.model}
    with JobRecorder(ddp, folder, **about, alone=not sparse, network=True) as recorder:
        while left := recorder.steps_left:
            iterate(left)
            recorder.step()


def _add_hook(ddp: Any, what: str, seed: int) -> Any:
    """Add the hook of a row; return our state, None of dense training and of PyTorch's own hooks."""
    if what == DENSE:
        return None
    if not what.startswith(PYTORCH):
        from s2sim.pytorch.hook import HookState, hook

        state = HookState(ddp, what, seed=seed)
        ddp.register_comm_hook(state, hook)
        return state
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    found = _PYTORCH_HOOK.fullmatch(what)
    assert found is not None
    if what == f"{PYTORCH}fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    else:
        own = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=int(found[1] or 1), start_powerSGD_iter=2)
        ddp.register_comm_hook(own, powerSGD_hook.powerSGD_hook)
    return None


def _time_training(training: Training, what: str, rank: int, ranks: int, effort: Repetitions) -> dict[str, float]:
    """Return the time of an iteration, see `s2sim.testbed.measured.MeasuredTiming`; all ranks call this."""
    ddp, _, iterate = _distribute(training, rank, ranks)
    state = _add_hook(ddp, what, training.seed)

    def run(numbers: range) -> list[float]:
        marks_s = [time.perf_counter()]
        for number in numbers:
            iterate(number)
            marks_s.append(time.perf_counter())
        return [end_s - begin_s for begin_s, end_s in pairwise(marks_s)]

    slowest_s = max(gather(run(range(_WARM_UPS))[-1]))
    repeats = min(effort.repeats, max(MIN_REPEATS, ceil(effort.budget_s / slowest_s)))

    def counters() -> list[float]:
        codec_s = 0.0 if state is None else state.reducing_s - state.waited_s
        return [codec_s, sent_bytes(), time.process_time()]

    before, times_s = counters(), run(range(_WARM_UPS, _WARM_UPS + repeats))
    here = [*times_s, *((after - old) / repeats for old, after in zip(before, counters(), strict=True))]
    rows = np.array(gather(here))
    if state is not None:
        state.close()
    codec_s, sent, cpu_s = rows[:, repeats:].T
    return summarise(rows[:, :repeats].max(axis=0), float(codec_s.max()), float(cpu_s.sum()), float(sent.max()))
