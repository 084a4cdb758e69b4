"""Gradients as they come, and the reductions of buckets that are complete."""

from __future__ import annotations

import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from s2sim.bridge.hooks.tensors import from_layer, is_finite, not_a_number, to_layer
from s2sim.bridge.processes.members import members_of
from s2sim.bridge.processes.rank import reduce_here
from s2sim.errors import S2SimError, S2SimWarning
from s2sim.gradients.gradient import Gradient
from s2sim.seeds import bucket_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    import torch.distributed as dist

    from s2sim.bridge.hooks.layout import Layout
    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.rank import Reducer


@dataclass(slots=True, eq=False)
class Handed:
    """Gradients that were handed in together, and wait for the last of them together."""

    tensors: dict[str, torch.Tensor]  # By name of the parameter; each is written to, or another one put in its place
    finished: Callable[[], None]  # Called when all of them are reduced
    failed: Callable[[Any], None]  # Called with the error if they cannot be
    ready: Any = None  # What a GPU has to have passed before they are there
    left: int = field(init=False)  # How many are not reduced yet

    def __post_init__(self) -> None:
        self.left = len(self.tensors)


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Layers that are reduced together, and this rank's reducer of them with what it keeps."""

    names: tuple[str, ...]
    reducer: Reducer
    seed: int


class Exchange:
    """One rank's buckets; all ranks hand in the same parameters in the same order.

    Parameters
    ----------
    reducer : Reducer
        Of which every bucket gets an instance.
    group : ProcessGroup
        On which nobody else posts.

    Attributes
    ----------
    waited_s, reducing_s : float
        Seconds in which all reductions have waited for other ranks, and in all.
    """

    def __init__(self, layout: Layout, reducer: Reducer, group: dist.ProcessGroup, seed: int) -> None:
        self._layout = layout
        self._group = group
        whole = len(layout.buckets) == 1
        self.buckets = [
            Bucket(names, reducer.held_in(layout.held(names)), seed if whole else bucket_seed(seed, names))
            for names in layout.buckets
        ]
        self.waited_s = self.reducing_s = 0.0
        self._layers: dict[str, Layer] = {}
        self._from: dict[str, Handed] = {}
        self._left = list(self.buckets)

    def take(self, handed: Handed, step: int, *, last: bool) -> None:
        """Reduce all buckets that are complete with these gradients; with the last ones of a step all have to be."""
        if handed.ready is not None:
            handed.ready.synchronize()
        for name, tensor in handed.tensors.items():
            self._layers[name] = to_layer(tensor, sparse=name in self._layout.sparse)
            self._from[name] = handed
        for bucket in list(self._left):
            if all(name in self._layers for name in bucket.names):
                self._left.remove(bucket)
                self._give(bucket.names, self._reduce(bucket, step))
        if last:
            missing = [name for bucket in self._left for name in bucket.names if name not in self._layers]
            if missing:
                raise S2SimError(
                    f"no gradient of {missing[0]} came, nor of {len(missing) - 1} other parameters: make the HookState "
                    "of the model that is trained, once it is known which of its parameters are"
                )
            self._left = list(self.buckets)

    def fail(self, handed: Handed, error: Exception) -> None:
        """Tell all who wait, those of the last gradients among them."""
        for each in {id(each): each for each in (*self._from.values(), handed)}.values():
            if each.left:
                each.failed(error)
        self._from, self._layers = {}, {}

    def _reduce(self, bucket: Bucket, step: int) -> Gradient:
        own = Gradient(bucket.names, tuple(self._layers[name] for name in bucket.names))
        if not self._all_finite(own):
            return not_a_number(own)
        # Of a part of the gradient there may be more to warn of than of all, which was done before the first step.
        with _without_warnings() if step == 0 else nullcontext():
            found = reduce_here(bucket.reducer, own, group=self._group, seed=bucket.seed, step=step)
        self.waited_s += found.waited_s
        self.reducing_s += found.total_s
        # It is for checks of single reductions, and a training has many.
        members_of(self._group).told.clear()
        return found.reduced.mean

    def _all_finite(self, own: Gradient) -> bool:
        """Return whether the gradients of all ranks are finite: what one could not recover from, none may begin."""
        import torch
        import torch.distributed as dist

        broken = torch.tensor([not is_finite(own)], dtype=torch.uint8)
        dist.all_reduce(broken, dist.ReduceOp.MAX, group=self._group)
        return not broken.item()

    def _give(self, names: Sequence[str], mean: Gradient) -> None:
        for name, layer in zip(names, mean.layers, strict=True):
            del self._layers[name]
            handed = self._from.pop(name)
            handed.tensors[name] = from_layer(layer, handed.tensors[name])
            handed.left -= 1
            if handed.left == 0:
                handed.finished()


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", S2SimWarning)
        yield
