"""Profiles that nobody measured: operations over a share of a GPU's peak, and bytes over its memory bandwidth."""

from dataclasses import replace
from math import isfinite

from s2sim.errors import S2SimError, check_known, suggest_nearest
from s2sim.files import is_toml_path
from s2sim.gradients.models import Model, ModelLayer, load_model, model_names
from s2sim.profiles.profile import (
    MOST_EFFICIENCY,
    VALUE_BYTES,
    ComputeProfile,
    Precision,
    ProfileFile,
    Rule,
    TensorEntry,
    TensorTiming,
    optimizer_ps,
    relative_efficiency,
)
from s2sim.topology.hardware import Gpu
from s2sim.units import PS_PER_S, parse_time_ps

BACKWARD = 2
"""Backward of a layer over its forward: the gradient of its input, and that of its weights."""


def computed_profile(
    model: Model,
    gpu: Gpu,
    batch: int,
    efficiency: float,
    *,
    precision: Precision = "fp32",
    rule: Rule = "sgd-momentum",
    name: str | None = None,
) -> ComputeProfile:
    """Return the profile of a model on a GPU by its operations.

    The matrix products of a layer take 2 operations per multiply-add over ``efficiency`` of the GPU's peak for
    ``precision``, or the time to read its weights if that is longer; activations of kernels without products pass the
    GPU's memory in addition. Backward takes twice as long as forward, and each pass at least one launch. ``batch`` is
    the mini-batch of one GPU, ``rule`` that of the optimizer (`s2sim.profiles.profile.optimizer_ps`).

    `S2SimError` if the layer table counts no operations, `TopologyError` if the GPU has no peak for the precision.
    """
    if model.table.sample is None:
        raise S2SimError(
            f"the layer table of {model.name} counts no operations: add sample = '...' and positions to its layers"
        )
    if batch < 1 or not 0 < efficiency <= MOST_EFFICIENCY:
        needs = f"a batch is at least 1, an efficiency above 0 and at most {MOST_EFFICIENCY} (40 % is 0.4)"
        raise S2SimError(f"batch {batch}, efficiency {efficiency}: {needs}")
    rate_per_s = gpu.peak(precision) * efficiency
    busy = [(layer, *_seconds(layer, gpu, batch, rate_per_s, precision)) for layer in reversed(model.layers)]
    whole_s = sum(whole for _, whole, _ in busy)
    if not isfinite(whole_s):
        raise S2SimError(
            f"{model.name} on {gpu.name} takes longer than any number of seconds: check its sizes and rates"
        )
    launch_ps = gpu.kernel_launch_ps
    tensors = tuple(
        TensorTiming(
            name=layer.name,
            shape=layer.shape,
            sparse=layer.sparse,
            forward_ps=max(round(whole_s * PS_PER_S), launch_ps) if whole_s else 0,
            backward_ps=max(round(BACKWARD * whole_s * PS_PER_S), launch_ps),
            rows=layer.rows,
        )
        for layer, whole_s, _ in busy
    )
    return ComputeProfile(
        name=name or model.name,
        model=model.name,
        gpu=gpu.name,
        batch=batch,
        sample=model.table.sample,
        tensors=tensors,
        optimizer_ps=optimizer_ps(rule, model.layers, batch, gpu),
        memory_bound=sum(memory for _, _, memory in busy) / whole_s if whole_s else 0.0,
        kind="computed",
        source=f"operations of the layer table of {model.name} over {efficiency:.3g} of the {precision} peak of "
        f"{gpu.name}, activations over {gpu.memory_efficiency:.3g} of its memory bandwidth; backward is twice forward",
        precision=precision,
    )


def _seconds(layer: ModelLayer, gpu: Gpu, batch: int, rate_per_s: float, precision: Precision) -> tuple[float, float]:
    """Return what a layer's forward takes, and how long of that the memory is what takes it."""
    products_s = 2 * layer.multiply_adds * batch / rate_per_s
    # Of a row-sparse table only the rows of the mini-batch are read, which its values count.
    weights_s = 0.0 if layer.sparse else layer.size * VALUE_BYTES[precision] / gpu.stream_Bps
    values_s = layer.values * batch * VALUE_BYTES[precision] / gpu.stream_Bps
    return max(products_s, weights_s) + values_s, values_s + (weights_s if weights_s > products_s else 0.0)


def measured_profile(name: str, file: ProfileFile, gpu: Gpu | None) -> ComputeProfile:
    """Return the profile of a file whose tensors match its model; ``gpu`` runs an optimizer that is not timed."""
    assert file.memory_bound is not None
    model, layers = _model_of(file)
    share = 0.0 if file.forward is None else float(file.forward.value)
    batch = int(file.batch.value)
    optimizer = file.optimizer
    return ComputeProfile(
        name=name,
        model=file.model if model is None else model.name,
        gpu=file.gpu,
        batch=batch,
        sample=file.sample or (model and model.table.sample) or "sample",
        tensors=tuple(_tensor_timing(tensor, layer, share) for tensor, layer in zip(file.tensors, layers, strict=True)),
        optimizer_ps=parse_time_ps(optimizer.time or "")
        if optimizer.rule is None or gpu is None
        else optimizer_ps(optimizer.rule, layers, batch, gpu),
        memory_bound=float(file.memory_bound.value),
        kind=file.kind,
        source=file.source,
        precision=file.precision,
    )


def _model_of(file: ProfileFile) -> tuple[Model | None, list[ModelLayer]]:
    """Return the model of a file, None where it is no layer table, and a layer for each tensor."""
    if file.model not in model_names() and not is_toml_path(file.model):
        without = [tensor.name for tensor in file.tensors if tensor.shape is None]
        if without:
            raise S2SimError(
                f"tensor {without[0]!r} has no shape, and model {file.model!r} is no layer table"
                f"{suggest_nearest(file.model, model_names())}: give every tensor a shape, or name a table"
            )
        return None, [ModelLayer(each.name, each.shape or (), bool(each.sparse)) for each in file.tensors]
    model = load_model(file.model)
    layers = {layer.name: layer for layer in model.layers}
    named = {tensor.name for tensor in file.tensors}
    for tensor in file.tensors:
        check_known(tensor.name, layers, f"tensor {tensor.name!r} is none of {model.name}", S2SimError)
        layer = layers[tensor.name]
        if tensor.shape not in (None, layer.shape) or tensor.sparse not in (None, layer.sparse):
            shape = f"{' x '.join(map(str, layer.shape))}{', row-sparse' if layer.sparse else ''}"
            raise S2SimError(
                f"tensor {tensor.name!r} is {shape} in {model.name}: leave its shape out, or name another model"
            )
    missing = [name for name in layers if name not in named]
    if missing:
        raise S2SimError(
            f"{len(missing)} of the {len(layers)} tensors of {model.name} are missing, first {missing[0]!r}"
        )
    return model, [layers[tensor.name] for tensor in file.tensors]


def _tensor_timing(tensor: TensorEntry, layer: ModelLayer, share: float) -> TensorTiming:
    backward_ps = parse_time_ps(tensor.backward)
    forward_ps = round(share * backward_ps) if tensor.forward is None else parse_time_ps(tensor.forward)
    return TensorTiming(layer.name, layer.shape, layer.sparse, forward_ps, backward_ps, layer.rows)


def with_batch(profile: ComputeProfile, batch: int) -> ComputeProfile:
    """Return a profile whose forward and backward grow with the mini-batch; the optimizer stays as it is."""
    if batch == profile.batch:
        return profile
    scaled = _scaled(profile, batch / profile.batch)
    return replace(
        scaled, batch=batch, source=f"{profile.source}; scaled from a mini-batch of {profile.batch} in proportion"
    )


def on_gpu(profile: ComputeProfile, measured: tuple[Gpu, Precision], asked: tuple[Gpu, Precision]) -> ComputeProfile:
    """Scale a profile to a GPU and precision: memory-bound work by bandwidth and bytes, the rest by reached peak."""
    (here, held), (gpu, precision) = measured, asked
    if gpu.name == here.name and precision == held:
        return profile
    by_bandwidth = here.stream_Bps / gpu.stream_Bps
    by_memory = by_bandwidth * VALUE_BYTES[precision] / VALUE_BYTES[held]
    by_peak = here.peak(held) / (gpu.peak(precision) * relative_efficiency(precision, held))
    memory = profile.memory_bound * by_memory
    whole = memory + (1 - profile.memory_bound) * by_peak
    scaled = _scaled(profile, whole)
    # Frameworks take TF32 where a GPU has it, some of them unasked.
    more = "; not TF32, which precision=tf32 takes" if precision == "fp32" and gpu.multiplies("tf32") else ""
    return replace(
        scaled,
        gpu=gpu.name,
        optimizer_ps=round(profile.optimizer_ps * by_bandwidth),
        memory_bound=memory / whole,
        precision=precision,
        source=f"{profile.source}; carried from {held} on {here.name} to {precision} on {gpu.name}: matrix products by "
        f"what they reach of the peak (times {by_peak:.3g}), the rest by memory (times {by_memory:.3g}){more}",
    )


def _scaled(profile: ComputeProfile, factor: float) -> ComputeProfile:
    tensors = tuple(
        replace(tensor, forward_ps=round(tensor.forward_ps * factor), backward_ps=round(tensor.backward_ps * factor))
        for tensor in profile.tensors
    )
    return replace(profile, tensors=tensors, kind="estimated")
