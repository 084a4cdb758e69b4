"""Names for a trace's gradients, which have none: those of a layer table with the same shapes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from s2sim.gradients.extrapolation.models import Model
    from s2sim.profiles.profile import Profile


def named_as(profile: Profile, model: Model) -> Profile:
    """Return a profile with the names of a model's layers.

    Of layers with one shape the one that forward uses first gets its gradient last. `S2SimError` where the profile's
    shapes are not those of the model.
    """
    wanted = Counter(layer.shape for layer in model.layers)
    found = Counter(tensor.shape for tensor in profile.tensors)
    for shape in [*wanted, *found]:
        if wanted[shape] != found[shape]:
            raise S2SimError(
                f"model {model.name} has {wanted[shape]} of {sum(wanted.values())} layers of the shape "
                f"{' x '.join(map(str, shape))}, the trace {found[shape]} of {sum(found.values())}: name the model "
                "that was profiled, or call it in words of your own"
            )
    layers = defaultdict(list)
    for layer in model.layers:
        layers[layer.shape].append(layer)
    tensors = []
    for tensor in profile.tensors:
        layer = layers[tensor.shape].pop()
        tensors.append(replace(tensor, name=layer.name, sparse=layer.sparse))
    return replace(profile, model=model.name, tensors=tuple(tensors))
