"""What one rank computes of a model that tensor- and pipeline-parallel ranks share out."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from math import inf

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import OptionError
from s2sim.profiles.profile import ComputeProfile, TensorTiming

_LAYER = re.compile(r"^(.*?)\.(\d+)\.")
_NORMALISES = re.compile(r"(^|[._])(ln|[a-z_]*norm)", re.IGNORECASE)
# Attention's projections, together or one by one, and two matrices of the layers after it.
_MIN_MATRICES = 4
# Of a layer's forward, and as many of its backward.
_ALL_REDUCES = 2


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """Sizes of what a transformer's layers pass on, of a sample: ``tokens`` vectors of ``hidden`` values."""

    tokens: int | None
    hidden: int


@dataclass(frozen=True, slots=True)
class ShardedCompute:
    """What the first stage's ranks compute: they end backward last, so that all wait for their gradients."""

    # Of one of them: its tensors, their times, and in these what ranks of its replica send each other
    profile: ComputeProfile
    tensor_parallel_ps: int  # In that, of one mini-batch, what all-reduces between tensor-parallel ranks take
    pipeline_ps: int  # In that, of one mini-batch, what it takes to send activations to the next stage
    idle_ps: int  # What the rank waits for other stages in an iteration, before its last backward
    stages_ps: tuple[int, ...]  # Forward and backward of a mini-batch in each stage
    unmodelled: str = ""  # What is left out because it is not known, as a sentence; empty where nothing is


def transformer_shape(profile: ComputeProfile) -> TransformerShape | None:
    """Return the shape of a transformer (its hidden size is a side of each layer's matrices); else None."""
    told = re.search(r"([\d,]+) tokens", profile.sample)
    for layer in _layers(profile.tensors):
        for tensor in layer:
            if _NORMALISES.search(tensor.name) and _is_layer(layer, tensor.size):
                return TransformerShape(int(told[1].replace(",", "")) if told else None, tensor.size)
    return None


def shard_profile(
    profile: ComputeProfile,
    *,
    tp: int,
    pp: int,
    mini_batches: int,
    value_bytes: int,
    all_reduce_ps: Callable[[int], int],
    send_ps: Callable[[int], int],
) -> ShardedCompute:
    """Return what a rank of the first stage computes, one of ``tp`` that share its layers.

    Tensor-parallel ranks hold an even part of every matrix and of the vectors beside them, and do that part of its
    work; normalisations, and biases of what is summed, are on each (Shoeybi et al., Megatron-LM, arXiv:1909.08053,
    section 3). They all-reduce batch x tokens x hidden values twice in a layer's forward and twice in its backward
    (Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC21, section
    3.2). Stages are neighbouring layers that compute about as long as others; each sends the next as many values, and
    gets as many back, an even part from each tensor-parallel rank (section 4.1). Of m mini-batches, one forward and one
    backward in turns, p stages that take t each take (m + p - 1) t (section 2.2.1: a bubble of (p - 1) t).

    ``profile`` is that of the full model on one GPU; its mini-batch passes the stages as one, ``mini_batches`` times in
    an iteration. Layers pass values of ``value_bytes``. ``all_reduce_ps`` and ``send_ps`` return the duration of an
    all-reduce of a number of bytes between tensor-parallel ranks, and of a transfer of them from every rank of a stage
    to the next. `OptionError` with fewer layers than stages, or if ranks cannot share the layers.
    """
    sizes = transformer_shape(profile)
    if tp > 1 and sizes is None:
        raise OptionError(
            f"tp={tp}: how tensor-parallel ranks share the layers of {profile.model} is not known, which is no "
            "transformer: take tp=1"
        )
    tensors = profile.tensors
    if sizes is not None and tp > 1:
        tensors = tuple(_shard_tensor(tensor, sizes.hidden, tp) for tensor in tensors)
    stages = _stages([list(layer) for layer in _layers(tensors)], pp, profile.model)
    passed_bytes = 0
    if sizes is not None and sizes.tokens is not None:
        passed_bytes = profile.batch * sizes.tokens * sizes.hidden * value_bytes
    reduce_ps = all_reduce_ps(passed_bytes) if tp > 1 and passed_bytes else 0
    pass_ps = send_ps(-(-passed_bytes // tp)) if pp > 1 and passed_bytes else 0
    with_reduces = [[_add_reduces(layer, sizes, reduce_ps) for layer in stage] for stage in stages]
    stages_ps = []
    for number, stage in enumerate(with_reduces):
        own_ps = sum(tensor.forward_ps + tensor.backward_ps for layer in stage for tensor in layer)
        stages_ps.append(own_ps + pass_ps * ((number > 0) + (number < pp - 1)))
    first = [tensor for layer in with_reduces[0] for tensor in layer]
    first[0] = replace(first[0], forward_ps=first[0].forward_ps + pass_ps)
    own = sum(tensor.size for tensor in first) / profile.parameters
    between = [name for name, count in (("tensor-parallel ranks", tp), ("stages", pp)) if count > 1]
    reduces = sum(2 * _ALL_REDUCES for layer in stages[0] if sizes is not None and _is_layer(layer, sizes.hidden))
    return ShardedCompute(
        profile=replace(
            profile,
            tensors=tuple(first),
            optimizer_ps=round(profile.optimizer_ps * own),
            kind=profile.kind if tp * pp == 1 else "computed",
            source=profile.source
            if tp * pp == 1
            else f"{profile.source}; of that the first of {pp} stages, shared by {tp} tensor-parallel ranks",
        ),
        tensor_parallel_ps=reduces * reduce_ps,
        pipeline_ps=pass_ps,
        idle_ps=(mini_batches + pp - 1) * max(stages_ps) - mini_batches * stages_ps[0],
        stages_ps=tuple(stages_ps),
        unmodelled="; ".join(_left_out(profile, between, sizes, pp)),
    )


def _left_out(
    profile: ComputeProfile, between: Sequence[str], sizes: TransformerShape | None, pp: int
) -> Iterator[str]:
    if between and (sizes is None or sizes.tokens is None):
        yield (
            f"what {' and '.join(between)} send each other is left out: the profile {profile.name} does not tell how "
            "many values its layers pass on"
        )
    table = max(profile.tensors, key=lambda tensor: tensor.size)
    if pp > 1 and not _LAYER.match(table.name) and [each.size for each in profile.tensors].count(table.size) == 1:
        yield (
            f"if {table.name} is that of the head too, the first and the last stage all-reduce its gradient, of any "
            "reducer uncompressed, which is left out"
        )


def layer_blocks(names: Sequence[str]) -> Ints:
    """Return the number of each parameter's block, int64 of shape (parameters,), -1 for those of none.

    >>> layer_blocks(["head.weight", "layers.1.norm", "layers.1.mlp", "layers.0.norm", "embed"]).tolist()
    [-1, 0, 0, 1, -1]
    """
    found = [_LAYER.match(name) for name in names]
    number = {key: at for at, key in enumerate(dict.fromkeys(each.groups() for each in found if each))}
    return np.array([number[each.groups()] if each else -1 for each in found], np.int64)


def _layers(tensors: Sequence[TensorTiming]) -> list[tuple[TensorTiming, ...]]:
    """Return neighbouring tensors with one number in their names together, others alone, in the same order."""

    def layer(numbered: tuple[int, TensorTiming]) -> tuple[str, ...] | int:
        found = _LAYER.match(numbered[1].name)
        return found.groups() if found else numbered[0]

    return [tuple(tensor for _, tensor in each) for _, each in groupby(enumerate(tensors), key=layer)]


def _is_layer(layer: Sequence[TensorTiming], hidden: int) -> bool:
    matrices = [tensor.shape for tensor in layer if len(tensor.shape) == 2]
    return len(matrices) >= _MIN_MATRICES and all(hidden in shape for shape in matrices)


def _shard_tensor(tensor: TensorTiming, hidden: int, tp: int) -> TensorTiming:
    """Return a tensor's part on one of ``tp`` ranks, rounded up, and the time of its part of the work."""
    shape = tensor.shape
    side = next((at for at, length in enumerate(shape) if length != hidden), 0)
    if shape != (hidden,) and shape[side] >= tp:
        shape = (*shape[:side], -(-shape[side] // tp), *shape[side + 1 :])
    on_each = _NORMALISES.search(tensor.name) and _LAYER.match(tensor.name)
    by = 1 if on_each else tp
    return replace(
        tensor, shape=shape, forward_ps=round(tensor.forward_ps / by), backward_ps=round(tensor.backward_ps / by)
    )


def _add_reduces(layer: Sequence[TensorTiming], sizes: TransformerShape | None, reduce_ps: int) -> list[TensorTiming]:
    """Return a layer whose last gradient waits for its all-reduces, as does the layer before it in forward."""
    *others, last = layer
    if sizes is None or not reduce_ps or not _is_layer(layer, sizes.hidden):
        return list(layer)
    waits_ps = _ALL_REDUCES * reduce_ps
    return [*others, replace(last, forward_ps=last.forward_ps + waits_ps, backward_ps=last.backward_ps + waits_ps)]


def _stages(layers: Sequence[list[TensorTiming]], pp: int, model: str) -> list[list[list[TensorTiming]]]:
    """Return neighbouring layers as stages of which the slowest is as fast as can be, the first of forward first."""
    if pp > len(layers):
        raise OptionError(f"pp={pp}: {model} has {len(layers)} layers, fewer than stages: take fewer")
    took_ps = [sum(tensor.forward_ps + tensor.backward_ps for tensor in layer) for layer in layers]
    until_ps = list(accumulate(took_ps, initial=0))
    # The slowest of k stages that end with a layer, and where the last of them begins.
    slowest, begins = [0.0, *[inf] * len(layers)], list[list[int]]()
    for _ in range(pp):
        best = [
            min((max(slowest[start], until_ps[end] - until_ps[start]), start) for start in range(end))
            for end in range(1, len(layers) + 1)
        ]
        slowest = [inf, *(took for took, _ in best)]
        begins.append([0, *(start for _, start in best)])
    stages, end = [], len(layers)
    for begin in reversed(begins):
        stages.append(list(layers[begin[end] : end]))
        end = begin[end]
    return stages
