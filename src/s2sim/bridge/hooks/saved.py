"""What a hook's state is saved as, and whether something saved fits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from s2sim.bridge.hooks.tensors import from_tensors, to_tensors
from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FORMAT = 1
_ADVICE = {
    "reducer": "make the HookState with that option string",
    "seed": "give that seed",
    "ranks": "feedback belongs to a rank and its data, so that it cannot be shared out anew: take as many, or begin "
    "with a new HookState, which loses what was held back",
    "rank": "every rank saves and loads its own",
    "shapes": "load it with the same model",
    "buckets": "give the same bucket_bytes, or bucket_cap_mb of DistributedDataParallel",
}


@dataclass(frozen=True, slots=True)
class About:
    """What has to be equal for a state to be of use."""

    reducer: str
    seed: int
    ranks: int
    rank: int
    shapes: dict[str, list[int]]
    buckets: list[list[str]]

    def common(self) -> dict[str, Any]:
        """Return what all ranks have alike."""
        return {name: value for name, value in asdict(self).items() if name != "rank"}


def to_dict(about: About, step: int, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the states of all buckets as dicts, lists, tensors, numbers and texts."""
    return {"format": _FORMAT, **asdict(about), "step": step, "states": [to_tensors(dict(state)) for state in states]}


def from_dict(about: About, state: Mapping[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Return the step and the states of all buckets; `S2SimError` if they are of something else."""
    if state.get("format") != _FORMAT:
        raise S2SimError("this is no state of a hook that this version reads: give what HookState.state_dict returned")
    for name, own in asdict(about).items():
        if state[name] != own:
            shown = "" if isinstance(own, dict | list) else f" {state[name]}, and this HookState has {own}"
            raise S2SimError(f"the saved state is of {'another ' if not shown else ''}{name}{shown}: {_ADVICE[name]}")
    return state["step"], [from_tensors(each) for each in state["states"]]
