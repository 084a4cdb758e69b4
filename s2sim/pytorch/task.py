"""A model with its data: parameters, the loss on a rank's mini-batch, and texts and pairs with their origin."""

from __future__ import annotations

import ast
import hashlib
import platform
import sysconfig
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from math import inf, prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import OptionError, S2SimError
from s2sim.files import check_regular, read_bytes
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
    items: int | None = field(default=None, compare=False)  # Of which it is a share, if that is known


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


@dataclass(frozen=True, slots=True)
class ModelSettings(ABC):
    """A model's settings, filled from an option string, and the way to a task; numbers must be above zero.

    There may be no ``warmup_steps`` before the first recorded one. The optimizer moves the weights along the mean
    gradient; ``momentum`` is that of SGD. ``held_out`` is the share of the data that no rank trains on, to evaluate the
    model by. ``samples`` names the setting with the samples of one rank's mini-batch, empty where there is none;
    ``sample`` is what one of them is, with settings in braces as in ``sequence of {0.length} words``.
    """

    needs_text: ClassVar[bool] = False
    samples: ClassVar[str] = ""
    sample: ClassVar[str] = "sample"

    warmup_steps: int = 0
    optimizer: Literal["sgd", "adam"] = "adam"
    learning_rate: float = 0.002
    momentum: float = 0.0
    held_out: float = 0.0

    def __post_init__(self) -> None:
        owner = type(self).__name__.lower()
        for item in fields(self):
            value = getattr(self, item.name)
            may_be_zero = item.name in ("warmup_steps", "momentum", "held_out")
            if not may_be_zero and isinstance(value, int | float) and not 0 < value < inf:
                raise OptionError(f"model {owner}: {item.name}={value} is not above 0")
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


_END_OF_LINE, _UNKNOWN = "<eos>", "<unk>"
_MAX_BYTES = 2**28
# SHA-256 of a text to the part of WikiText-2 it is.
_WIKITEXT_2 = {
    "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8": "validation",
    "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0": "test",
}


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A text as word numbers in reading order, int64 of shape (n,); 0 is the most frequent word."""

    tokens: Ints
    vocabulary_size: int
    origin: DataOrigin


def _origin(paths: Sequence[Path], contents: Sequence[bytes]) -> DataOrigin:
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    parts = [_WIKITEXT_2.get(digest) for digest in digests]
    known = [part for part in parts if part is not None]
    if len(known) == len(parts):
        return DataOrigin(
            data=f"WikiText-2 (Merity et al., 2016), {' and '.join(known)} part, text from Wikipedia",
            licence="CC BY-SA 3.0",
            source="Merity, Xiong, Bradbury, Socher: Pointer Sentinel Mixture Models, arXiv:1609.07843",
        )
    named = ", ".join(f"{path.name} (SHA-256 {each[:12]})" for path, each in zip(paths, digests, strict=True))
    return DataOrigin(data=f"text of the user: {named}", licence="not stated", source="files of the user")


def check_texts(paths: Sequence[Path]) -> None:
    """Refuse texts that cannot be read, before anything long is done for them."""
    for path in paths:
        try:
            check_regular(path, _MAX_BYTES)
        except OSError as error:
            raise S2SimError(f"the text {path} cannot be read: {error.strerror}") from error


def read_corpus(paths: Sequence[Path], *, vocabulary: int | None = None) -> Corpus:
    """Read UTF-8 texts as words and line ends; all but the ``vocabulary`` most frequent become one mark."""
    contents = []
    words: list[str] = []
    for path in paths:
        try:
            content = read_bytes(path, _MAX_BYTES)
            lines = content.decode("utf-8").splitlines()
        except OSError as error:
            raise S2SimError(f"the text {path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise S2SimError(f"the text {path} is not UTF-8: {error.reason} at byte {error.start}") from error
        contents.append(content)
        words += [word for line in lines for word in (*line.split(), _END_OF_LINE)]
    counts = Counter(words)
    if vocabulary is not None and len(counts) > vocabulary:
        kept = {word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: vocabulary - 1]}
        words = [word if word in kept else _UNKNOWN for word in words]
        counts = Counter(words)
    # Ties by spelling, so that the numbers do not depend on the order of reading.
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    numbers = {word: number for number, word in enumerate(ranked)}
    tokens = np.fromiter((numbers[word] for word in words), np.int64, len(words))
    return Corpus(tokens, len(ranked), _origin(paths, contents))


def shard_windows(tokens: Ints, *, workers: int, sequences: int, length: int) -> Ints:
    """Split a text by rank into windows, int64 (workers, windows, sequences, length + 1), one word of overlap."""
    per_sequence = len(tokens) // (workers * sequences)
    windows = (per_sequence - 1) // length
    if windows < 1:
        raise S2SimError(
            f"the text has {len(tokens)} words; {workers} workers with {sequences} sequences of {length} need at "
            f"least {workers * sequences * (length + 1)}: use a longer text or fewer workers"
        )
    streams = tokens[: workers * sequences * per_sequence].reshape(workers, sequences, per_sequence)
    starts = np.arange(windows) * length
    positions = starts[:, None] + np.arange(length + 1)
    return np.ascontiguousarray(streams[:, :, positions].transpose(0, 2, 1, 3))


def hold_out(tokens: Ints, share: float, *, length: int, most: int) -> tuple[Ints, Ints]:
    """Split off the last ``share`` of a text as at most ``most`` evenly spread windows, int64 (windows, length + 1)."""
    held = int(len(tokens) * share)
    starts = np.arange((held - 1) // length) * length
    if not len(starts):
        raise S2SimError(
            f"{share:g} of a text of {len(tokens)} words is less than the {length + 1} words of a sequence to evaluate "
            "by: use a longer text, or a larger held_out"
        )
    starts = starts[np.arange(min(most, len(starts))) * len(starts) // min(most, len(starts))]
    return tokens[: len(tokens) - held], tokens[len(tokens) - held :][starts[:, None] + np.arange(length + 1)]


def evaluate_classes(
    module: torch.nn.Module, logits: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor
) -> Evaluation:
    """Return the mean cross-entropy of a model's logits, and the share of inputs with the highest for their targets."""
    import torch

    with torch.no_grad():
        device = device_of(module)
        found, wanted = logits(inputs.to(device)), targets.to(device)
        loss = torch.nn.functional.cross_entropy(found, wanted)
        return Evaluation(float(loss), float((found.argmax(dim=1) == wanted).double().mean()), len(wanted))


# Where syntax-tree nodes keep an identifier: names, attributes, parameters, definitions and imports.
_IDENTIFIER_FIELDS = ("id", "attr", "arg", "name")


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Pairs of user (file) and item (identifier, by falling frequency), int64 (n,), sorted by user, item; each once."""

    users: Ints
    items: Ints
    user_count: int
    item_count: int
    origin: DataOrigin


def identifiers(source: bytes) -> set[str]:
    """Return the identifiers of a Python source, empty if it does not parse.

    >>> sorted(identifiers(b"print(os.name)"))
    ['name', 'os', 'print']
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # old files have escapes that newer versions warn of
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    found = (getattr(node, field, None) for node in ast.walk(tree) for field in _IDENTIFIER_FIELDS)
    return {value for value in found if isinstance(value, str)}


def interactions_of(per_file: Iterable[set[str]], origin: DataOrigin) -> Interactions:
    """Return the pairs of file and identifier, identifiers in at least two files only."""
    files = [names for names in per_file if names]
    counts = Counter(name for names in files for name in names)
    ranked = sorted((name for name, count in counts.items() if count > 1), key=lambda name: (-counts[name], name))
    numbers = {name: number for number, name in enumerate(ranked)}
    rows = [sorted(numbers[name] for name in names if name in numbers) for names in files]
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    items = np.array([item for row in rows for item in row], np.int64)
    return Interactions(users, items, len(rows), len(ranked), origin)


@cache
def standard_library_interactions() -> Interactions:
    """Return the interactions of the running interpreter's standard library, site packages left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(root.rglob("*.py")) if "site-packages" not in path.relative_to(root).parts]
    if not paths:
        raise S2SimError(f"the standard library at {root} has no .py files: use a Python installed with its sources")
    origin = DataOrigin(
        data=f"which identifier occurs in which file of the Python {platform.python_version()} standard library",
        licence="Python Software Foundation License 2",
        source="the standard library of the recording interpreter, parsed with ast; https://www.python.org/",
    )
    return interactions_of((identifiers(path.read_bytes()) for path in paths), origin)


def use_sparse_embeddings(task: Task) -> None:
    """Let the task's embedding tables leave gradients of the rows that a batch touches, not of all."""
    import torch

    for name, module in task.module.named_modules():
        if isinstance(module, torch.nn.Embedding) and f"{name}.weight" in task.sparse:
            module.sparse = True
