"""A compute profile: when each gradient of a model is ready in backward, on one GPU and for one mini-batch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["measured", "computed", "estimated", "user"]


@dataclass(frozen=True, slots=True)
class Ready:
    """One parameter, in the order in which gradients become ready.

    Attributes
    ----------
    name : str
        Of the parameter, as the model has it.
    shape : tuple of int
        Rows first.
    sparse : bool
        Whether a mini-batch touches only some rows of it.
    forward_ps : int
        What its layer's forward pass takes, 0 where another parameter of the layer has it.
    backward_ps : int
        From when the gradient before it was ready, or backward began, until its own is.
    """

    name: str
    shape: tuple[int, ...]
    sparse: bool
    forward_ps: int
    backward_ps: int

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Profile:
    """What one GPU computes in an iteration of one model.

    Forward visits parameters in the reverse order of readiness: what is used last gets its gradient first.

    Attributes
    ----------
    name, model : str
        Of the profile, and of the model.
    gpu : str
        Name in the hardware catalogue, or as its source calls it.
    batch : int
        Samples in one GPU's mini-batch.
    sample : str
        What one of them is: image, sentence, sequence of 1,024 tokens.
    tensors : tuple of Ready
        Every parameter, in the order of readiness.
    optimizer_ps : int
        What the optimizer takes once all gradients are reduced.
    memory_bound : float
        Share of compute time, from 0 to 1, in which the memory and not the arithmetic is busy.
    kind : {"measured", "computed", "estimated", "user"}
        How sure its times are; computed ones are operations over a share of the GPU's peak.
    source : str
        What they rest on.
    """

    name: str
    model: str
    gpu: str
    batch: int
    sample: str
    tensors: tuple[Ready, ...]
    optimizer_ps: int
    memory_bound: float
    kind: Kind
    source: str

    @property
    def forward_ps(self) -> int:
        """Of all layers."""
        return sum(tensor.forward_ps for tensor in self.tensors)

    @property
    def backward_ps(self) -> int:
        """Until the last gradient is ready."""
        return sum(tensor.backward_ps for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        """Elements of all parameters."""
        return sum(tensor.size for tensor in self.tensors)
