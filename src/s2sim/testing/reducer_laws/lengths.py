"""Bytes on the wire are lengths: what a program hands to its collectives is what its script says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.rank import Reducer
from s2sim.reducers.scripts.traffic import payload_bytes
from s2sim.testing.reducer_laws.examples import example_gradients
from s2sim.testing.require import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Contribution, Pending, Program, Rank


def check_lengths(reducer: Reducer, ranks: int) -> None:
    """Check that each rank's script has as many bytes as the arrays that it posts."""
    watched = [Watched(instance) for instance in make_instances(reducer, ranks)]
    _, recording = run_group(watched, example_gradients(ranks))
    for rank, (each, recorded) in enumerate(zip(watched, payload_bytes(recording).tolist(), strict=True)):
        require(each.posted == recorded, f"rank {rank} posts {each.posted} bytes, and its script has {recorded}")


@dataclass(slots=True)
class Watched(Reducer):
    """A reducer whose arrays are measured as it posts them."""

    inner: Reducer
    posted: int = 0

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Reduce as it does."""
        return (yield from self.inner.reduce(cast("Rank", _Counting(rank, self)), gradient))


class _Counting:
    """A rank that adds up the bytes of what is posted on it; it is the one given in all else."""

    def __init__(self, rank: Rank, watched: Watched) -> None:
        self._rank, self._watched = rank, watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def subgroup(self, ranks: Iterable[int]) -> _Counting:
        return _Counting(self._rank.subgroup(ranks), self._watched)

    def all_reduce(self, payload: Contribution, *more: Any, **how: Any) -> Pending:
        return self._counted([payload], self._rank.all_reduce(payload, *more, **how))

    def reduce(self, payload: Contribution, *more: Any, **how: Any) -> Pending:
        return self._counted([payload], self._rank.reduce(payload, *more, **how))

    def all_gather(self, payload: Contribution, **how: Any) -> Pending:
        return self._counted([payload], self._rank.all_gather(payload, **how))

    def reduce_scatter(self, payloads: Sequence[Contribution], *more: Any, **how: Any) -> Pending:
        return self._counted(payloads, self._rank.reduce_scatter(payloads, *more, **how))

    def all_to_all(self, payloads: Sequence[Contribution], **how: Any) -> Pending:
        return self._counted(payloads, self._rank.all_to_all(payloads, **how))

    def exchange(self, payloads: Mapping[int, Contribution], **how: Any) -> Pending:
        return self._counted(payloads.values(), self._rank.exchange(payloads, **how))

    def broadcast(self, payload: Contribution | None, *, root: int, **how: Any) -> Pending:
        own = [payload] if payload is not None and self._rank.index == root else []
        return self._counted(own, self._rank.broadcast(payload, root=root, **how))

    def _counted(self, payloads: Iterable[Contribution], posted: Pending) -> Pending:
        self._watched.posted += sum(map(_bytes_of, payloads))
        return posted


def _bytes_of(payload: Contribution) -> int:
    return sum(map(_bytes_of, payload)) if isinstance(payload, tuple) else payload.nbytes
