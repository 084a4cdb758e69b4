"""The subject of a recording: a module with loss and optimizer, of the recorder's models or a user's function."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError, S2SimError, unknown_name, warn
from s2sim.gradients.models import load_model
from s2sim.options import split_option_string
from s2sim.pytorch.hook_buckets import check_types, common_type
from s2sim.pytorch.record_trace import MODELS, model_settings
from s2sim.pytorch.task import ModelSettings, make_optimizer

if TYPE_CHECKING:
    import torch

NETWORKS = {
    **{f"resnet-{depth}": f"s2sim.pytorch.networks:resnet_{depth}" for depth in (18, 50, 101, 152)},
    **{f"vgg-{depth}": f"s2sim.pytorch.networks:vgg_{depth}" for depth in (16, 19)},
    "gpt2": "s2sim.pytorch.networks:gpt2",
    "bert-base": "s2sim.pytorch.networks:bert_base",
    "bert-large": "s2sim.pytorch.networks:bert_large",
}
"""Functions that make networks on drawn inputs; names and parameters are those of the layer tables."""

_FORM = "package.module:function or path.py:function"


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSubject:
    """A model in training on one device."""

    module: torch.nn.Module
    loss: Callable[[int], torch.Tensor]  # The number of a step to the loss of its mini-batch, a scalar
    optimizer: torch.optim.Optimizer
    batch: int  # Samples of a mini-batch
    sample: str
    model: str
    sparse: frozenset[str] | None  # Parameters with mostly zero gradient rows; None if only gradients show that


def subject_maker(
    model: str | None, module: str | None, batch: int | None, texts: Sequence[Path], seed: int
) -> Callable[[str], TrainingSubject]:
    """Return a function from a device to the subject; options are checked at once."""
    if (model is None) == (module is None):
        raise OptionError("name either a model to record, such as cnn, or a function of your own with --module")
    name, options = ("", {}) if model is None else split_option_string(model)
    if model is not None and name not in NETWORKS:
        settings = check_model(model, batch, texts)
        return lambda device: model_subject(settings, device, texts, seed)
    asked = f"--module {module}" if module else f"model {name}"
    if batch is None:
        raise OptionError(f"{asked} needs --batch")
    if texts:
        raise OptionError(f"{asked} reads no text: leave --text out")
    if module is not None:
        return lambda device: function_subject(module, device, batch)
    if options:
        raise OptionError(f"{asked} has no option {next(iter(options))!r}: it is recorded as its layer table has it")
    sample = load_model(name).table.sample or "sample"
    return lambda device: replace(function_subject(NETWORKS[name], device, batch), model=name, sample=sample)


def check_model(text: str, batch: int | None, texts: Sequence[Path]) -> ModelSettings:
    """Return the settings of one of the recorder's models with a mini-batch; the first mistake is an error."""
    name, options = split_option_string(text)
    if name not in MODELS.names():
        raise unknown_name("model", name, [*MODELS.names(), *NETWORKS])
    settings = model_settings(text, texts)
    if batch is None:
        return settings
    if not settings.samples:
        raise OptionError(f"model {name} does not say which of its settings is the mini-batch: leave --batch out")
    if settings.samples in options:
        raise OptionError(f"--batch and {name}:{settings.samples}= are the same: give one of them")
    changed: dict[str, Any] = {settings.samples: batch}
    return replace(settings, **changed)


def model_subject(settings: ModelSettings, device: str, texts: Sequence[Path], seed: int) -> TrainingSubject:
    """Return a model of the recorder on a device, on the whole of its data."""
    task = settings.prepare(workers=1, seed=seed, text=texts)
    task.module.to(device)
    return TrainingSubject(
        module=task.module,
        loss=lambda step: task.loss(step, 0),
        optimizer=make_optimizer(settings, task.module.parameters(), momentum=0.0),
        batch=getattr(settings, settings.samples) if settings.samples else task.batch,
        sample=settings.sample.format(settings),
        model=task.model,
        sparse=task.sparse,
    )


def function_subject(text: str, device: str, batch: int) -> TrainingSubject:
    """Return module, loss and optimizer (default: plain SGD) of a user's function; errors become `S2SimError`."""
    import torch

    function = _load(text)
    try:
        made = function(batch=batch, device=device)
    except Exception as error:  # a user's code may raise anything
        raise user_code_error(text, error) from error
    parts = made if isinstance(made, tuple) else (made,)
    if len(parts) not in {2, 3} or not isinstance(parts[0], torch.nn.Module) or not callable(parts[1]):
        raise S2SimError(
            f"--module {text} returned {_kinds(parts)}: return a torch.nn.Module and a function from the number of a "
            "step to its loss, and an optimizer if it is not plain SGD"
        )
    module, loss = parts[:2]
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        raise S2SimError(f"--module {text}: the module has no parameter that is trained")
    places = {parameter.device.type for parameter in trained}
    if places != {device}:
        raise S2SimError(
            f"--module {text}: parameters are on {', '.join(sorted(places))}, not on {device}: move the module to the "
            "device that the function is called with"
        )
    optimizer = parts[2] if len(parts) == 3 else torch.optim.SGD(trained, lr=1e-3)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise S2SimError(f"--module {text}: the third value is {_kinds(parts[2:])}, not a torch.optim.Optimizer")
    place, _, name = text.rpartition(":")
    return TrainingSubject(module, loss, optimizer, batch, "sample", f"{Path(place).name}:{name}", None)


def recorded_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the trained parameters of a module; refuse what cannot be recorded as the gradients of one rank."""
    found = {name: each for name, each in module.named_parameters() if each.requires_grad}
    if not found or any(hasattr(each, "device_mesh") for each in found.values()):
        raise OptionError("what is recorded has trained parameters, whole on every rank: not those of FSDP")
    check_types(found, "the recorder")
    if empty := [name for name, each in found.items() if not each.numel()]:
        raise OptionError(f"the parameter {empty[0]} has no element: leave it out of the module")
    if common_type(found.values()) == "fp32" and len({each.dtype for each in found.values()}) > 1:
        warn("some parameters are bfloat16: bytes and times of their gradients are predicted as of float32")
    return found


def user_code_error(text: str, error: Exception) -> S2SimError:
    """Return the error for what was raised in a user's function."""
    lines = str(error).strip().splitlines()
    return S2SimError(f"--module {text} failed: {type(error).__name__}{': ' if lines else ''}{' '.join(lines[:1])}")


def _kinds(parts: tuple[Any, ...]) -> str:
    return ", ".join(type(part).__name__ for part in parts)


def _load(text: str) -> Callable[..., Any]:
    place, separator, name = text.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise OptionError(f"--module {text!r} names no function: write {_FORM}")
    is_file = place.endswith(".py")
    try:
        # A file may import others of its folder, as if it were run.
        folder = str(Path(place).resolve().parent if is_file else Path.cwd())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module = _import_file(Path(place)) if is_file else importlib.import_module(place)
    except Exception as error:  # a user's code may raise anything while it is imported
        if isinstance(error, S2SimError):
            raise
        raise user_code_error(text, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise OptionError(f"--module {text}: there is no function {name} in {place}")
    found: Callable[..., Any] = function
    return found


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise OptionError(f"--module {path}: there is no such file; write {_FORM}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
