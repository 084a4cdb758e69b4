"""The profile of a file with measured times, whose tensors have to be those of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import S2SimError, nearest
from s2sim.gradients.extrapolation.models import Model, ModelLayer, load_model, model_names
from s2sim.profiles.optimizer import optimizer_ps
from s2sim.profiles.profile import Profile, Ready
from s2sim.text_files import is_toml_path
from s2sim.units import parse_time_ps

if TYPE_CHECKING:
    from s2sim.profiles.form import ProfileFile, Tensor
    from s2sim.topology.files.hardware import Gpu


def measured_profile(name: str, file: ProfileFile, gpu: Gpu | None) -> Profile:
    """Return the profile of a file with tensors; `S2SimError` where these are not the layers of its model.

    ``gpu`` runs the optimizer; None where the file says how long that takes.
    """
    assert file.memory_bound is not None
    model = _model_of(file)
    layers = _layers_of(file, model)
    share = 0.0 if file.forward is None else float(file.forward.value)
    batch = int(file.batch.value)
    optimizer = file.optimizer
    return Profile(
        name=name,
        model=file.model if model is None else model.name,
        gpu=file.gpu,
        batch=batch,
        sample=file.sample or (model and model.table.sample) or "sample",
        tensors=tuple(_ready(tensor, layer, share) for tensor, layer in zip(file.tensors, layers, strict=True)),
        optimizer_ps=parse_time_ps(optimizer.time or "")
        if optimizer.rule is None or gpu is None
        else optimizer_ps(optimizer.rule, layers, batch, gpu),
        memory_bound=float(file.memory_bound.value),
        kind=file.kind,
        source=file.source,
    )


def _model_of(file: ProfileFile) -> Model | None:
    """Return the layer table that a file names; None where its tensors say all themselves."""
    if file.model in model_names() or is_toml_path(file.model):
        return load_model(file.model)
    without = [tensor.name for tensor in file.tensors if tensor.shape is None]
    if without:
        raise S2SimError(
            f"tensor {without[0]!r} has no shape, and model {file.model!r} is no layer table"
            f"{nearest(file.model, model_names())}: give every tensor a shape, or name a table"
        )
    return None


def _layers_of(file: ProfileFile, model: Model | None) -> list[ModelLayer]:
    """Return the layers of a file's tensors, in their order."""
    if model is None:
        return [ModelLayer(each.name, each.shape or (), bool(each.sparse)) for each in file.tensors]
    layers = {layer.name: layer for layer in model.layers}
    named = {tensor.name for tensor in file.tensors}
    for tensor in file.tensors:
        if tensor.name not in layers:
            raise S2SimError(f"tensor {tensor.name!r} is none of {model.name}{nearest(tensor.name, layers)}")
        layer = layers[tensor.name]
        if tensor.shape not in (None, layer.shape) or tensor.sparse not in (None, layer.sparse):
            raise S2SimError(
                f"tensor {tensor.name!r} is {_shape_text(layer)} in {model.name}: leave its shape out, or name another "
                "model"
            )
    missing = [name for name in layers if name not in named]
    if missing:
        raise S2SimError(
            f"{len(missing)} of the {len(layers)} tensors of {model.name} are missing, first {missing[0]!r}"
        )
    return [layers[tensor.name] for tensor in file.tensors]


def _shape_text(layer: ModelLayer) -> str:
    return f"{' x '.join(map(str, layer.shape))}{', row-sparse' if layer.sparse else ''}"


def _ready(tensor: Tensor, layer: ModelLayer, share: float) -> Ready:
    backward_ps = parse_time_ps(tensor.backward)
    forward_ps = round(share * backward_ps) if tensor.forward is None else parse_time_ps(tensor.forward)
    return Ready(layer.name, layer.shape, layer.sparse, forward_ps, backward_ps)
