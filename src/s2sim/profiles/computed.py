"""Profiles that nobody measured: operations over a share of a GPU's peak, and bytes over its memory bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.profiles.optimizer import optimizer_ps
from s2sim.profiles.precision import VALUE_BYTES
from s2sim.profiles.profile import Profile, Ready
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.gradients.extrapolation.models import Model, ModelLayer
    from s2sim.profiles.form import Precision, Rule
    from s2sim.topology.files.hardware import Gpu

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
) -> Profile:
    """Return the profile of a model on a GPU by its operations.

    The matrix products of a layer take 2 operations a multiply-add over ``efficiency`` of the GPU's peak, or as long as
    reading its weights if that is longer; beside them, the activations that normalisation and other kernels without
    products read and write pass the GPU's memory. Backward is twice forward, and each pass at least one launch.

    Parameters
    ----------
    model : Model
        Whose layer table counts operations.
    gpu : Gpu
        Of the catalogue.
    batch : int
        Samples of one GPU's mini-batch.
    efficiency : float
        Share of the peak that matrix products reach.
    precision : str
        Of matrix products, and of what passes through memory.
    rule : str
        Of the optimizer, see `s2sim.profiles.optimizer.optimizer_ps`.
    name : str, optional
        Of the profile; that of the model without one.

    Raises
    ------
    S2SimError
        Where the layer table counts no operations; `TopologyError` where the catalogue has no peak for the precision.
    """
    if model.table.sample is None:
        raise S2SimError(
            f"the layer table of {model.name} counts no operations: add sample = '...' and positions to its layers"
        )
    if batch < 1 or not 0 < efficiency < float("inf"):
        raise S2SimError(f"batch {batch}, efficiency {efficiency}: a batch is at least 1, an efficiency above 0")
    rate_per_s = gpu.peak(precision) * efficiency
    busy = [(layer, *_seconds(layer, gpu, batch, rate_per_s, precision)) for layer in reversed(model.layers)]
    launch_ps = gpu.kernel_launch_ps
    tensors = tuple(
        Ready(
            name=layer.name,
            shape=layer.shape,
            sparse=layer.sparse,
            forward_ps=max(round(whole_s * PS_PER_S), launch_ps) if whole_s else 0,
            backward_ps=max(round(BACKWARD * whole_s * PS_PER_S), launch_ps),
        )
        for layer, whole_s, _ in busy
    )
    whole_s = sum(whole for _, whole, _ in busy)
    return Profile(
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
    )


def _seconds(layer: ModelLayer, gpu: Gpu, batch: int, rate_per_s: float, precision: Precision) -> tuple[float, float]:
    """Return what a layer's forward takes, and how long of that the memory is what takes it."""
    products_s = 2 * layer.multiply_adds * batch / rate_per_s
    # Of a row-sparse table only the rows of the mini-batch are read, which its values count.
    weights_s = 0.0 if layer.sparse else layer.size * VALUE_BYTES[precision] / gpu.stream_Bps
    values_s = layer.values * batch * VALUE_BYTES[precision] / gpu.stream_Bps
    return max(products_s, weights_s) + values_s, values_s + (weights_s if weights_s > products_s else 0.0)
