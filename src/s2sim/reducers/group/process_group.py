"""The in-memory process group: drives all ranks' programs as far as each can go, moves the arrays, records scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.group.combine import OVERFLOW
from s2sim.reducers.group.member import Progress, World
from s2sim.reducers.scripts.script import Recording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Reduced, Reducer


def make_instances(reducer: Reducer, ranks: int) -> list[Reducer]:
    """Return one instance of ``reducer`` for each rank, with its options and without its state."""
    return [reducer.fresh() for _ in range(ranks)]


def run_group(
    reducers: Sequence[Reducer], gradients: Sequence[Gradient], *, seed: int = 0, step: int = 0
) -> tuple[list[Reduced], Recording]:
    """Run one reduction and return what each rank ends with, and the scripts.

    There is one instance (see `make_instances`) and one gradient a rank, all with the same layers; root seed and
    training step are the same for all ranks.
    """
    size = len(gradients)
    world = World(size)
    ranks = [Progress(index) for index in range(size)]
    running: dict[int, Program] = {
        rank.rank: reducer.reduce(rank.member(world.all, step, seed), gradient)
        for reducer, rank, gradient in zip(reducers, ranks, gradients, strict=True)
    }
    results: dict[int, Reduced] = {}
    # Sums that overflow, and what becomes of infinities, show in the mean.
    with np.errstate(over="ignore", invalid="ignore"):
        while running:
            free = [index for index in running if not _missing(world, ranks[index])]
            if not free:
                raise S2SimError(_hang(world, [ranks[index] for index in running]))
            for index in free:
                try:
                    ranks[index].wait(next(running[index]))
                except StopIteration as stop:
                    results[index] = stop.value
                    del running[index]
    _check_ended(world, ranks)
    means = {id(result.mean): result.mean for result in results.values()}.values()
    if not all(map(_is_finite, means)) and all(map(_is_finite, gradients)):
        raise S2SimError(OVERFLOW)
    return [results[index] for index in range(size)], Recording(
        world.record(), tuple(tuple(rank.script) for rank in ranks)
    )


def _is_finite(gradient: Gradient) -> bool:
    return all(
        bool(np.isfinite(layer.values if isinstance(layer, RowSparse) else layer).all()) for layer in gradient.layers
    )


def _missing(world: World, rank: Progress) -> list[int]:
    """Return the collectives that a rank waits for and not all have posted."""
    return [call for call in rank.waits_for if world.collectives[call].missing]


def _hang(world: World, waiting: Sequence[Progress]) -> str:
    """Say who waits for which collective, and who has not posted it."""
    waits: dict[int, list[int]] = {}
    for rank in waiting:
        for call in _missing(world, rank):
            waits.setdefault(call, []).append(rank.rank)
    texts = [f"{_ranks(who, 'waits', 'wait')} for {_not_posted(world, call)}" for call, who in waits.items()]
    return f"the programs hang, as they would on a real cluster: {'; '.join(texts)}"


def _not_posted(world: World, call: int) -> str:
    collective = world.collectives[call]
    return f"{collective.heading.label!r}, which {_ranks(sorted(collective.missing), 'has', 'have')} not posted"


def _ranks(ranks: Sequence[int], one: str, several: str) -> str:
    """Return the ranks with their verb, runs of three and more as first-last."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)} {several if len(ranks) > 1 else one}"


def _check_ended(world: World, ranks: Sequence[Progress]) -> None:
    """Raise if a collective is still in flight, or ranks have not done alike what all of them must."""
    for rank in ranks:
        for call in sorted(rank.posted - rank.waited):
            if world.collectives[call].missing:
                raise S2SimError(
                    f"rank {rank.rank} has posted {_not_posted(world, call)}: it would hang on a real cluster"
                )
            raise S2SimError(
                f"rank {rank.rank}'s program ends without waiting for {world.collectives[call].heading.label!r}: its "
                "buffers would still be in use"
            )
    if _differ(rank.awaits for rank in ranks):
        raise S2SimError("only some ranks await the gradient: the others would start before it is there")
    for group in world.groups.values():
        members = [ranks[rank].members.get(group) for rank in group.ranks]
        if _differ(member.shared if member else 0 for member in members):
            raise S2SimError("the ranks share different numbers of replicated computations: all must share the same")


def _differ(values: Iterable[object]) -> bool:
    return len(set(values)) > 1
