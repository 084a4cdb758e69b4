"""The tensors of a row's model in the order in which their gradients become ready, and what its layers compute."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError, nearest
from s2sim.gradients.extrapolation.models import load_model, model_names
from s2sim.profiles.computed import computed_profile
from s2sim.profiles.opened import profile_names
from s2sim.profiles.profile import Profile, Ready
from s2sim.profiles.read import load_profile
from s2sim.replay.iteration.compute import Compute
from s2sim.topology.files.hardware import load_gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.study.validate.iterations.row import IterationRow

_PS_PER_MS = 10**9
# Of fully connected layers, to what a row says that its model has: where it is more, all layers differ.
_MOST_GROWTH = 1.1
# Of models of which only the size is known.
_USUAL_TENSORS, _USUAL_WIDTH = 100, 256
_MOST_TENSORS = 2000
# Share of the peak that layers reach of which nobody measured any; only how they share out a row's time comes from it,
# where that says what all take.
_EFFICIENCY = 0.5


def profile_of(row: IterationRow, gpu: str) -> Profile:
    """Return the compute profile of a row's model on its GPU, with as many parameters as that says.

    A model that is not known, of which a row says what it computes, has layers that are alike; `S2SimError`
    where it does not say enough.
    """
    names = dict.fromkeys([*profile_names(), *model_names()])
    known = {_plain(name): name for name in names}
    base = row.model.partition("/")[0]
    # Behind a slash stands what it is trained on.
    name = known.get(_plain(row.model), known.get(_plain(base)))
    if name is None and (row.n_params is None or row.computing_ms is None):
        raise S2SimError(
            f"the model {row.model!r} is not known{nearest(base, names)}, and n_params or times of compute are missing"
        )
    if name is None:
        return _of_layers_alike(row, gpu)
    if name in profile_names():
        profile = load_profile(name, gpu=gpu, batch=row.batch_per_gpu)
    else:
        profile = computed_profile(load_model(name), load_gpu(gpu), row.batch_per_gpu or 1, _EFFICIENCY)
    return replace(profile, tensors=_with_parameters(profile.tensors, row.n_params))


def _of_layers_alike(row: IterationRow, gpu: str) -> Profile:
    """Return the profile of a model of which only the size is known."""
    assert row.n_params is not None
    count = row.n_tensors or _USUAL_TENSORS
    if count > _MOST_TENSORS:
        raise S2SimError(f"{count} tensors are more than {_MOST_TENSORS}, which takes too long")
    shape = (max(1, round(row.n_params / count / _USUAL_WIDTH)), _USUAL_WIDTH)
    one = Ready("", shape, sparse=False, forward_ps=1, backward_ps=2)
    tensors = tuple(replace(one, name=f"layer{number}") for number in range(count))
    return Profile(row.model, row.model, gpu, row.batch_per_gpu or 1, "sample", tensors, 0, 0.0, "user", "the row")


def compute_of(row: IterationRow, profile: Profile) -> Compute:
    """Return what a row's GPU computes: as long as it says, spread over layers as in its profile, or as that says."""
    forward_ps, backward_ps = profile.forward_ps, profile.backward_ps
    optimizer_ps = profile.optimizer_ps
    if row.computing_ms is not None:
        whole_ps = forward_ps + backward_ps
        forward_ps = round(row.computing_ms * _PS_PER_MS * forward_ps / whole_ps)
        backward_ps = round(row.computing_ms * _PS_PER_MS) - forward_ps
        optimizer_ps = round(row.step_ms * _PS_PER_MS)
    if row.forward_ms is not None and row.backward_ms is not None:
        forward_ps, backward_ps = round(row.forward_ms * _PS_PER_MS), round(row.backward_ms * _PS_PER_MS)
    return Compute(
        forward_ps=_spread([tensor.forward_ps for tensor in profile.tensors], forward_ps),
        backward_ps=_spread([tensor.backward_ps for tensor in profile.tensors], backward_ps),
        optimizer_ps=optimizer_ps,
        memory_bound=profile.memory_bound,
    )


def _plain(name: str) -> str:
    """Return a name without what people write differently.

    >>> _plain("ResNet-50"), _plain("resnet50")
    ('resnet50', 'resnet50')
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _with_parameters(tensors: Sequence[Ready], parameters: int | None) -> tuple[Ready, ...]:
    """Return tensors with so many parameters together.

    Models for other data differ in their fully connected layers, so that these matrices take the difference; where they
    cannot, all tensors do.
    """
    counted = sum(tensor.size for tensor in tensors)
    if parameters is None or parameters == counted:
        return tuple(tensors)
    matrices = sum(tensor.size for tensor in tensors if len(tensor.shape) == 2)
    left = parameters - (counted - matrices)
    if 0 < left <= _MOST_GROWTH * matrices:
        return tuple(_resized(tensor, left / matrices) if len(tensor.shape) == 2 else tensor for tensor in tensors)
    return tuple(_resized(tensor, parameters / counted) for tensor in tensors)


def _resized(tensor: Ready, share: float) -> Ready:
    return replace(tensor, shape=(max(1, round(tensor.shape[0] * share)), *tensor.shape[1:]))


def _spread(weights: Sequence[int], whole_ps: int) -> Ints:
    """Return picoseconds in proportion to weights that sum to the whole, int64 of shape (t,)."""
    ends = np.cumsum(np.asarray(weights, np.float64))
    found: Ints = np.diff(np.rint(ends / ends[-1] * whole_ps).astype(np.int64), prepend=0)
    return found
