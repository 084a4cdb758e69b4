"""Which parameters of a model have gradients to exchange, and in which buckets they are reduced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Held

BUCKET_BYTES = 25 * 2**20
"""As DistributedDataParallel has it, and the first one."""
_FIRST_BUCKET_BYTES = 2**20
_TINY = 4


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The parameters of a model that take part, and their buckets.

    DistributedDataParallel makes its buckets anew after the first iteration, and again in a training that is resumed.
    These here follow from the model alone, so that what a reducer keeps of a bucket stays of use.
    """

    parameters: dict[str, torch.nn.Parameter]  # By name, in the model's order
    sparse: frozenset[str]  # Those in whose gradient most rows are zero
    # Names, in the model's order; the bucket whose gradients are expected first is the first.
    buckets: tuple[tuple[str, ...], ...]

    def held(self, names: Sequence[str]) -> Held:
        """Return the type that these gradients are held in; float32 where some are."""
        import torch

        return "bf16" if all(self.parameters[name].dtype == torch.bfloat16 for name in names) else "fp32"

    def example(self) -> Gradient:
        """Return a gradient of as many layers, all of them tiny, by which a reducer can be tried."""
        import numpy as np

        from s2sim.gradients.gradient import Gradient, as_row_sparse

        shapes = [[min(side, _TINY) for side in parameter.shape] or [1] for parameter in self.parameters.values()]
        arrays = [np.ones(shape, np.float32) for shape in shapes]
        layers = (
            as_row_sparse(array) if name in self.sparse else array
            for name, array in zip(self.parameters, arrays, strict=True)
        )
        return Gradient(tuple(self.parameters), tuple(layers))


def layout_of(model: torch.nn.Module, *, sparse: Sequence[str] | None, bucket_bytes: int | None, whole: bool) -> Layout:
    """Return the layout of a model, DistributedDataParallel or what is in it.

    Parameters
    ----------
    sparse : sequence of str, optional
        Names of parameters in whose gradient most rows are zero; the weights of embeddings unless given.
    bucket_bytes : int, optional
        Bytes from which on a bucket is full; those of DistributedDataParallel unless given.
    whole : bool
        One bucket of all.
    """
    import torch

    inner, ignored = model, frozenset[str]()
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        inner, ignored = model.module, frozenset(model.parameters_to_ignore)
        bucket_bytes = bucket_bytes or model.bucket_bytes_cap
    parameters = {
        name: parameter
        for name, parameter in inner.named_parameters()
        if parameter.requires_grad and name not in ignored
    }
    if not parameters:
        raise OptionError("the model has no parameter with a gradient: there is nothing to exchange")
    for name, parameter in parameters.items():
        if parameter.dtype not in (torch.float32, torch.bfloat16):
            raise OptionError(
                f"the parameter {name} is held in {parameter.dtype}: the hook takes torch.float32 and torch.bfloat16"
            )
    if sparse is None:
        tables = _tables(inner, parameters)
    else:
        for name in sparse:
            if name not in parameters:
                raise OptionError(f"no parameter with a gradient is called {name!r}{nearest(name, parameters)}")
        tables = frozenset(sparse)
    if whole:
        return Layout(parameters, tables, (tuple(parameters),))
    return Layout(parameters, tables, _in_buckets(parameters, bucket_bytes or BUCKET_BYTES))


def _tables(model: torch.nn.Module, parameters: dict[str, torch.nn.Parameter]) -> frozenset[str]:
    """Return the weights of embeddings, but for those that another layer uses too, whose gradients fill all rows."""
    import torch

    embedded: set[int] = set()
    others: set[int] = set()
    for module in model.modules():
        found = embedded if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) else others
        found.update(map(id, module.parameters(recurse=False)))
    return frozenset(name for name, parameter in parameters.items() if id(parameter) in embedded - others)


def _in_buckets(parameters: dict[str, torch.nn.Parameter], bucket_bytes: int) -> tuple[tuple[str, ...], ...]:
    """Return buckets of one type each, from the model's end to its begin, a small one first."""
    full: list[list[str]] = []
    open_by_type: dict[torch.dtype, list[str]] = {}
    for name in reversed(parameters):
        own = open_by_type.setdefault(parameters[name].dtype, [])
        own.append(name)
        limit = bucket_bytes if full else min(_FIRST_BUCKET_BYTES, bucket_bytes)
        if sum(parameters[each].nbytes for each in own) >= limit:
            full.append(open_by_type.pop(parameters[name].dtype))
    return tuple(tuple(reversed(names)) for names in (*full, *open_by_type.values()))
