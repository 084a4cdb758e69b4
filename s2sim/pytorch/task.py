"""A model with its data: parameters, the loss on a rank's mini-batch, and the origin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import inf, prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from s2sim.errors import OptionError, S2SimError
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class DataOrigin:
    """Origin of training data: description, licence and source."""

    data: str
    licence: str
    source: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Mean loss and share of right answers on held-out data."""

    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A model with its data, ready to train."""

    module: torch.nn.Module
    sparse: frozenset[str]  # Parameters with mostly zero gradient rows
    loss: Callable[[int, int], torch.Tensor]  # (step, rank) to the mean loss of the rank's mini-batch
    batch: int  # Samples in one rank's mini-batch; for language models, predicted tokens
    model: str
    origin: DataOrigin
    evaluate: Callable[[], Evaluation] | None = None  # None without held-out data
    score: str = "accuracy"  # Name of `Evaluation.accuracy` for users


_MAY_BE_ZERO = ("warmup_steps", "momentum", "held_out")


@dataclass(frozen=True, slots=True)
class ModelSettings(ABC):
    """A model's settings, filled from an option string, and the way to a task; numbers must be above zero.

    There may be no ``warmup_steps`` before the first recorded one. The optimizer moves the weights along the mean
    gradient; ``momentum`` is that of SGD. ``held_out`` is the share of the data that no rank trains on, to evaluate the
    model by. ``samples`` names the setting with the samples of one rank's mini-batch, empty where there is none.
    """

    needs_text: ClassVar[bool] = False
    samples: ClassVar[str] = ""

    warmup_steps: int = 0
    optimizer: Literal["sgd", "adam"] = "adam"
    learning_rate: float = 0.002
    momentum: float = 0.0
    held_out: float = 0.0

    def __post_init__(self) -> None:
        owner = type(self).__name__.lower()
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in _MAY_BE_ZERO and isinstance(value, int | float) and not 0 < value < inf:
                raise OptionError(f"model {owner}: {field.name}={value} is not above 0")
        if self.warmup_steps < 0:
            raise OptionError(f"model {owner}: warmup_steps={self.warmup_steps} is negative")
        for name in ("momentum", "held_out"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"model {owner}: {name}={getattr(self, name)} is not from 0 to below 1")
        if self.momentum and self.optimizer != "sgd":
            raise OptionError(
                f"model {owner}: momentum={self.momentum} is that of SGD, and the optimizer is {self.optimizer}: add "
                "optimizer=sgd"
            )

    @property
    def sample(self) -> str:
        """What one sample of a mini-batch is."""
        return "sample"

    @abstractmethod
    def prepare(self, *, workers: int, seed: int, text: Sequence[Path]) -> Task:
        """Read the data, split it into ``workers`` shards and build the model."""


def make_optimizer(
    settings: ModelSettings,
    parameters: Iterable[torch.nn.Parameter],
    *,
    learning_rate: float | None = None,
    momentum: float | None = None,
) -> torch.optim.Optimizer:
    """Return PyTorch's optimizer of a model's settings; explicit rates win."""
    import torch

    rate = settings.learning_rate if learning_rate is None else learning_rate
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=settings.momentum if momentum is None else momentum)


def missing_extra(error: ImportError) -> S2SimError:
    """Return the error for a package of the extra ``torch`` that is not installed."""
    return S2SimError(f"training a model needs {error.name}: pip install 's2sim[torch]'")


def initialise(module: torch.nn.Module, sparse: frozenset[str], seed: int, *, embedding_scale: float) -> None:
    """Draw every parameter from its own named generator, so that no library version changes the start.

    Embedding tables are uniform within ±``embedding_scale``, other matrices and kernels within ±1/sqrt(inputs)
    (the default of PyTorch's layers), biases zero; normalisation weights keep their ones.
    """
    import numpy as np
    import torch

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            shape = tuple(parameter.shape)
            if len(shape) >= 2:
                limit = embedding_scale if name in sparse else 1 / sqrt(prod(shape[1:]))
                drawn = named_generator(seed, "initial", name).uniform(-limit, limit, shape).astype(np.float32)
                parameter.copy_(torch.from_numpy(drawn))
            elif "bias" in name:
                parameter.zero_()


def device_of(module: torch.nn.Module) -> torch.device:
    """Return the device of a module's parameters."""
    return next(module.parameters()).device


@contextmanager
def reproducible_torch() -> Iterator[None]:
    """One thread, deterministic algorithms, and PyTorch's own random state left as it was."""
    import torch

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.use_deterministic_algorithms(mode=deterministic)
        torch.set_num_threads(threads)
