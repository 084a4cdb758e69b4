"""Gradients on arrival, and the reductions of complete buckets."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from s2sim.arrays import Floats32
from s2sim.errors import OptionError, S2SimError, S2SimWarning, check_known, warn
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, as_row_sparse, stored, to_dense
from s2sim.gradients.synthetic import load_trace
from s2sim.pytorch.members import Members, hook_members, make_options
from s2sim.pytorch.rank import reduce_here
from s2sim.reducers.rank import GradientDtype, Reducer
from s2sim.reducers.registry import make_reducer, with_feedback
from s2sim.reducers.systems.dense import summed_dtype
from s2sim.seeds import bucket_seed

if TYPE_CHECKING:
    import torch


def to_layer(tensor: torch.Tensor, *, sparse: bool) -> Layer:
    """Return a copy of a gradient as float32 values in host memory; exact, also of bfloat16."""
    if tensor.is_sparse:
        rows = tensor.detach().coalesce()
        return RowSparse(rows.indices()[0].cpu().numpy(), _values(rows.values()), tuple(tensor.shape))
    if not sparse:
        return _values(tensor.detach())
    # Stored rows are copies: one of the whole can be spared.
    return as_row_sparse(tensor.detach().cpu().float().contiguous().numpy())


def from_layer(layer: Layer, tensor: torch.Tensor) -> torch.Tensor:
    """Return a layer as a tensor like another one: written into that, unless it is a sparse one."""
    import torch

    if tensor.is_sparse:
        table = as_row_sparse(layer)
        rows, values = torch.from_numpy(table.rows.copy()), torch.from_numpy(np.array(table.values))
        found = torch.sparse_coo_tensor(rows[None], values.to(tensor.dtype), table.shape, is_coalesced=True)
        return found.to(tensor.device)
    # An array that ranks of one process would share may not be written to, which PyTorch warns of.
    return tensor.copy_(torch.from_numpy(np.require(to_dense(layer), requirements=["C", "W"])).reshape(tensor.shape))


def weight_norms(parameters: Iterable[torch.Tensor]) -> Floats32:
    """Return the L2 norm of each parameter."""
    return np.array([float(each.detach().float().norm()) for each in parameters], np.float32)


def _map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _map_leaves(item, change) for key, item in value.items()}
    return [_map_leaves(item, change) for item in value] if isinstance(value, list) else change(value)


def to_tensors(value: Any) -> Any:
    """Return plain data with tensors for arrays, as PyTorch saves and loads them without running code."""
    import torch

    arrays = np.ndarray | np.generic
    return _map_leaves(value, lambda leaf: torch.from_numpy(np.array(leaf)) if isinstance(leaf, arrays) else leaf)


def from_tensors(value: Any) -> Any:
    """Return the plain data of `to_tensors`."""
    import torch

    return _map_leaves(value, lambda leaf: leaf.cpu().numpy().copy()[()] if isinstance(leaf, torch.Tensor) else leaf)


def all_finite(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has finite elements alone; an extreme is no number where an element is none."""
    values = tensor.coalesce().values() if tensor.is_sparse else tensor
    return not values.numel() or all(bool(extreme.isfinite()) for extreme in values.aminmax())


def _values(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    import torch

    return np.atleast_1d(tensor.to("cpu", torch.float32, copy=True).contiguous().numpy())


@dataclass(slots=True, eq=False)
class PendingGradients:
    """Gradients of one call, finished when the last of them is reduced."""

    tensors: dict[str, torch.Tensor]  # By name of the parameter; overwritten, or replaced
    finished: Callable[[], None]  # Called when all of them are reduced
    failed: Callable[[Any], None]  # Called with the error if they cannot be
    ready: Any = None  # Event of a GPU after which they are complete
    left: int = field(init=False)  # Gradients not yet reduced

    def __post_init__(self) -> None:
        self.left = len(self.tensors)


class PendingSum(NamedTuple):
    """A bucket of DistributedDataParallel in an all-reduce."""

    buffer: torch.Tensor  # This rank's gradients, and their mean in the end unless it is sparse
    sent: torch.Tensor  # In the type that travels, and their sum in the end
    works: tuple[Any, ...]
    future: torch.futures.Future[torch.Tensor]


class BucketExchanger:
    """One rank's buckets; all ranks hand in the same parameters in the same order.

    ``sums`` says whether gradients are only summed, in a type that travels, which `post_sum` does without buckets.
    """

    def __init__(self, layout: BucketLayout, reducer: Reducer, members: Members, seed: int) -> None:
        self._layout = layout
        self.members = members
        self._seed = seed
        # This rank's reducer of the layers that are reduced together, with what it keeps.
        self.reducers = {names: reducer.with_dtype(layout.held(names)) for names in layout.buckets}
        self.waited_s = self.reducing_s = 0.0
        self.waits_s: list[float] | None = None  # Of each collective, where somebody wants them
        self.step_bytes = self._bytes = 0.0, 0.0  # Of the last step and of this one: sent, and what dense would send
        self._layers: dict[str, Layer] = {}
        self._from: dict[str, PendingGradients] = {}
        self._left = list(self.reducers)
        self._summed = summed_dtype(next(iter(self.reducers.values())))
        self.sums, self._pending = self._summed is not None, list[PendingSum]()
        self._overflowed = False

    def post_sum(self, buffer: torch.Tensor, future: torch.futures.Future[torch.Tensor]) -> None:
        """Post the all-reduce of a bucket, float32 or bfloat16, in dense form; ``future`` is to have the mean."""
        import torch

        begun_s, members = time.perf_counter(), self.members
        values = buffer.to_dense()
        if self._summed == "fp32":
            sent = values.to(torch.float32, copy=not buffer.is_sparse)
        else:
            sent = (values.float() / members.size).to(torch.float16 if self._summed == "fp16" else torch.bfloat16)
        works = () if members.size == 1 else (members.handle.allreduce([sent], make_options("Allreduce", "sum")),)
        self._pending.append(PendingSum(buffer, sent, works, future))
        self.reducing_s += time.perf_counter() - begun_s

    def finish_sums(self) -> None:
        """Wait for all posted sums, and write means to their buckets, which are not numbers if a gradient was none."""
        pending, self._pending = self._pending, []
        try:
            for each in pending:
                mean, own = self._mean(each), each.buffer
                each.future.set_result(mean.to(own.dtype).to_sparse(1) if own.is_sparse else own.copy_(mean))
        except Exception as error:
            for each in pending:
                if not each.future.done():
                    set_exception: Callable[[Any], None] = each.future.set_exception
                    set_exception(error)
            raise

    def _mean(self, pending: PendingSum) -> torch.Tensor:
        """Wait for a sum, and return the mean, in the type that travels."""
        import torch

        begun_s, found = time.perf_counter(), pending.sent
        for work in pending.works:
            work.wait()
        self._add_waits([time.perf_counter() - begun_s])
        if not all_finite(found):  # So it is on all ranks, which agree why.
            if not self._agree(broken=not all_finite(pending.buffer)):
                if self._summed != "fp16":
                    raise S2SimError(f"a sum overflows {self._summed}: scale the gradients down")
                if not self._overflowed and self.members.index == 0:
                    warn("a sum overflows fp16, and is NaN: GradScaler finds a scale; without it, scale the loss down")
                self._overflowed = True
            found.fill_(torch.nan)
        mean = found.div_(self.members.size) if self._summed == "fp32" else found
        self.reducing_s += time.perf_counter() - begun_s
        return mean

    def take(self, handed: PendingGradients, step: int, *, last: bool) -> None:
        """Reduce all buckets that are complete with these gradients; with the last ones of a step all have to be."""
        if handed.ready is not None:
            handed.ready.synchronize()
        for name, tensor in handed.tensors.items():
            self._layers[name] = to_layer(tensor, sparse=name in self._layout.sparse)
            self._from[name] = handed
        for names in list(self._left):
            if all(name in self._layers for name in names):
                self._left.remove(names)
                for name, layer in self._reduce(names, step):
                    del self._layers[name]
                    pending = self._from.pop(name)
                    pending.tensors[name] = from_layer(layer, pending.tensors[name])
                    pending.left -= 1
                    if pending.left == 0:
                        pending.finished()
        if last:
            missing = [name for names in self._left for name in names if name not in self._layers]
            if missing:
                raise S2SimError(
                    f"no gradient of {missing[0]} came, nor of {len(missing) - 1} other parameters: make the HookState "
                    "of the model that is trained, once it is known which of its parameters are"
                )
            self._left = list(self.reducers)
            self.step_bytes, self._bytes = self._bytes, (0.0, 0.0)

    def fail(self, handed: PendingGradients, error: Exception) -> None:
        """Report an error to all waiting calls, including that of the last gradients."""
        for each in {id(each): each for each in (*self._from.values(), handed)}.values():
            if each.left:
                each.failed(error)
        self._from, self._layers = {}, {}

    def _add_waits(self, waits_s: list[float]) -> None:
        self.waited_s += sum(waits_s)
        if self.waits_s is not None:
            self.waits_s += waits_s

    def _agree(self, *, broken: bool) -> bool:
        """Return whether it is so on any rank."""
        return bool(self.members.all_reduce(np.array([broken], np.uint8), "max").wait()[0])

    def _reduce(self, names: tuple[str, ...], step: int) -> Gradient:
        own = Gradient(names, tuple(self._layers[name] for name in names))
        finite = all(bool(np.isfinite(stored(layer)).all()) for layer in own.layers)
        begun_s = time.perf_counter()
        broken = self._agree(broken=not finite)
        agreed_s = time.perf_counter() - begun_s
        # What one rank could not recover from, none may begin.
        if broken:
            return Gradient(own.names, tuple(np.full(layer.shape, np.nan, np.float32) for layer in own.layers))
        # Warnings on the whole gradient were shown before the first step; a part may cause more.
        quiet = warnings.catch_warnings(action="ignore", category=S2SimWarning)
        with quiet if step == 0 else nullcontext():
            seed = self._seed if len(self.reducers) == 1 else bucket_seed(self._seed, names)
            reducer = self.reducers[names]
            reducer.take_norms(lambda: weight_norms(self._layout.parameters[name] for name in names))
            found = reduce_here(reducer, own, group=self.members, seed=seed, step=step)
        dense = (2 - 2 / self.members.size) * own.nbytes / (2 if self._layout.held(names) == "bf16" else 1)
        self._bytes = self._bytes[0] + found.sent_bytes, self._bytes[1] + dense
        self._add_waits([agreed_s, *found.waits_s])
        self.reducing_s += found.total_s + agreed_s
        self.members.size_headers.clear()
        return found.reduced.mean


BUCKET_BYTES = 25 * 2**20
"""Bucket size of DistributedDataParallel, followed by that of its first bucket."""
_FIRST_BUCKET_BYTES, _SMALL_PARAMETER = 2**20, 4


@dataclass(frozen=True, slots=True, eq=False)
class BucketLayout:
    """The parameters of a model that take part, and their buckets."""

    parameters: dict[str, torch.nn.Parameter]  # By name, in the model's order
    sparse: frozenset[str]  # With mostly zero gradient rows
    # Names in the model's order; buckets in the expected order of their gradients.
    buckets: tuple[tuple[str, ...], ...]

    def held(self, names: Sequence[str]) -> GradientDtype:
        """Return the common dtype of these gradients, see `common_type`."""
        return common_type(self.parameters[name] for name in names)

    def example(self) -> Gradient:
        """Return a gradient of the same number of layers, all tiny, to try a reducer on."""
        layers: list[Layer] = []
        for name, parameter in self.parameters.items():
            array = np.ones([min(side, _SMALL_PARAMETER) for side in parameter.shape] or [1], np.float32)
            layers.append(as_row_sparse(array) if name in self.sparse else array)
        return Gradient(tuple(self.parameters), tuple(layers))


SHARDED = "the hook takes gradients of parameters that are whole on every rank:"


def check_types(parameters: Mapping[str, torch.nn.Parameter], taker: str) -> None:
    """Refuse parameters that are neither float32 nor bfloat16."""
    import torch

    for name, parameter in parameters.items():
        if parameter.dtype not in (torch.float32, torch.bfloat16):
            raise OptionError(
                f"the parameter {name} is held in {parameter.dtype}: {taker} takes torch.float32 and torch.bfloat16"
            )


def common_type(parameters: Iterable[torch.nn.Parameter]) -> GradientDtype:
    """Return the type of the gradients of parameters together: float32 unless all are bfloat16."""
    import torch

    return "bf16" if all(each.dtype == torch.bfloat16 for each in parameters) else "fp32"


def make_bucket_layout(
    model: torch.nn.Module, *, sparse: Sequence[str] | None, bucket_bytes: int | None, whole: bool
) -> BucketLayout:
    """Return the layout of a model, DistributedDataParallel or the module in it.

    ``sparse`` names parameters with mostly zero gradient rows (default: embedding weights); ``bucket_bytes`` is the
    size that closes a bucket (default: that of DistributedDataParallel); ``whole`` makes one bucket of all.
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
        if hasattr(parameter, "device_mesh"):
            raise OptionError(f"{SHARDED} {name} is sharded, as of FSDP")
    check_types(parameters, "the hook")
    if sparse is None:
        tables = _embedding_weights(inner, parameters)
    else:
        for name in sparse:
            check_known(name, parameters, f"no parameter with a gradient is called {name!r}")
        tables = frozenset(sparse)
    buckets = (tuple(parameters),) if whole else _in_buckets(parameters, bucket_bytes or BUCKET_BYTES)
    return BucketLayout(parameters, tables, buckets)


def _embedding_weights(model: torch.nn.Module, parameters: dict[str, torch.nn.Parameter]) -> frozenset[str]:
    """Return the weights of embeddings, except those shared with other layers, whose gradients fill all rows."""
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


_WARM_UPS, _TIMED = 2, 15
_CACHE_BYTES = 1 << 27


def time_codecs(rank: int, ranks: int, arguments: Mapping[str, Any], tell: Callable[[Any], None]) -> None:
    """Tell the seconds that each step of one bucket takes in a hook, and of them those of each wait, of each task.

    With error feedback where training needs it.

    ``arguments``: ``trace``, whose first step each task takes; ``tasks``, each an option string and names of layers.
    """
    import torch
    from torch import distributed

    members, trace = hook_members(range(ranks)), load_trace(arguments["trace"], workers=ranks)
    others = np.zeros(_CACHE_BYTES, np.uint8)
    own = dict(trace.gradient(0, rank))
    for number, (text, names) in enumerate(arguments["tasks"]):
        tensors = {name: torch.from_numpy(to_dense(own[name])) for name in names}
        sparse = frozenset(name for name in names if isinstance(own[name], RowSparse))
        layout = BucketLayout(
            {name: torch.nn.Parameter(each) for name, each in tensors.items()}, sparse, (tuple(names),)
        )
        exchanger, times_s = BucketExchanger(layout, with_feedback(make_reducer(text)), members, 0), []
        for step in range(_WARM_UPS + _TIMED):
            copies = {name: each.clone() for name, each in tensors.items()}
            # A training's own arrays are in the caches by then.
            others += 1
            handed = PendingGradients(copies, lambda: None, lambda _: None)
            distributed.barrier()
            begin_s, exchanger.waits_s = time.perf_counter(), []
            if exchanger.sums:
                exchanger.post_sum(torch.cat([each.reshape(-1) for each in copies.values()]), torch.futures.Future())
                exchanger.finish_sums()
            else:
                exchanger.take(handed, step, last=True)
            times_s.append((time.perf_counter() - begin_s, exchanger.waits_s))
        tell({"task": number, "seconds": times_s[_WARM_UPS:]})
    members.close()
