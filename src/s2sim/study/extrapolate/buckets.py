"""Reducers bucket by bucket, on gradients as recorded or scaled to the layers of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from s2sim.gradients.extrapolation.models import ModelLayer
from s2sim.study.extrapolate.scaled_buckets import record_scaled_buckets
from s2sim.study.measuring.buckets import record_in_buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.gradients.extrapolation.models import Model
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.run import OtherSteps
    from s2sim.replay.iteration.disciplines.discipline import Bucket
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.row_parts import Refused
    from s2sim.study.scenario.asked import AskedReducer


class Tensor(Protocol):
    """A parameter of a profile or a model."""

    @property
    def name(self) -> str:
        """As the model has it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""

    @property
    def sparse(self) -> bool:
        """Whether its gradient is row-sparse."""


def record_buckets(
    reducers: Sequence[AskedReducer],
    gradients: Sequence[Gradient],
    tensors: Sequence[Tensor],
    buckets: Sequence[Bucket],
    *,
    seed: int,
    others: OtherSteps | None = None,
    model: Model | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[Recorded], list[Refused]]:
    """Run each reducer on every bucket and return what it did, and which optional ones refuse.

    Where ``tensors`` are the layers of the gradients, by names and sizes, these run as they are. Otherwise scripts are
    scaled to the tensors, with the statistics of the gradients. One bucket of everything gives the same as no buckets:
    what `s2sim.study.extrapolate.beyond.record_as_asked` does. Buckets that are alike share one recording. A reducer
    that is defined over the whole gradient has one bucket of all tensors.

    Parameters
    ----------
    gradients : sequence of Gradient
        One a rank.
    tensors : sequence of Tensor
        In the order of readiness; buckets tell them by their places in it.
    others : OtherSteps or None
        As `record` takes it; where scripts are scaled, the same gradients are those of all steps.
    model : Model or None
        The model that was asked for: layers are in its order where they are its own, else in that of forward.

    Raises
    ------
    S2SimError
        Where a reducer that is not optional refuses a bucket, or its scripts cannot be scaled.
    """
    layers = [ModelLayer(tensor.name, tensor.shape, tensor.sparse) for tensor in tensors]
    if {layer.name: layer.size for layer in layers} == {name: layer.size for name, layer in gradients[0]}:
        names = [layer.name for layer in layers]
        return record_in_buckets(reducers, gradients, names, buckets, seed=seed, others=others, on_reducer=on_reducer)
    return record_scaled_buckets(reducers, gradients, layers, buckets, model, seed=seed, on_reducer=on_reducer)
