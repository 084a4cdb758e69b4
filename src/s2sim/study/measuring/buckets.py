"""Reducers bucket by bucket: each runs on the layers of a bucket alone, with a state of its own there."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimWarning
from s2sim.reducers.measure import consensus_distance, ended, worst_error
from s2sim.reducers.parts.shards import merge, pick
from s2sim.reducers.run import begin, run_reducer
from s2sim.reducers.scripts.join import join_buckets
from s2sim.replay.iteration.disciplines.discipline import Bucket
from s2sim.seeds import named_generator
from s2sim.study.measuring.record import ExactMeans, Recorded, bound_row, record, unless_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Reduced, Reducer
    from s2sim.reducers.run import OtherSteps, Ran
    from s2sim.reducers.scripts.script import Recording
    from s2sim.study.measuring.row_parts import Refused
    from s2sim.study.scenario.asked import AskedReducer


@dataclass(frozen=True, slots=True)
class BucketedRecord:
    """What one reducer did with gradients that leave in buckets.

    Attributes
    ----------
    recorded : Recorded
        Of the whole gradient; its recording is that of all buckets, one after the other, see
        `s2sim.reducers.scripts.join.join_buckets`.
    buckets : tuple of Bucket
        Those that it runs on: one of all gradients where it is defined over all of them.
    recordings : tuple of Recording
        One a bucket; buckets that are alike share one object.
    """

    recorded: Recorded
    buckets: tuple[Bucket, ...]
    recordings: tuple[Recording, ...]

    @property
    def waits(self) -> str | None:
        """Why it waits for the whole gradient, whatever leaves in buckets, as a sentence; None where it does not."""
        if self.recorded.reducer.traits.scope == "bucket":
            return None
        return f"{self.recorded.option_string} is defined over the whole gradient: it waits until all of it is ready"


def buckets_for(reducer: Reducer, buckets: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """Return the buckets that a reducer runs on: these, or one of all their tensors."""
    if reducer.traits.scope == "bucket":
        return tuple(buckets)
    return (Bucket(tuple(sorted(place for bucket in buckets for place in bucket.tensors))),)


def bucket_seed(seed: int, names: Sequence[str]) -> int:
    """Return the root seed of the bucket of these tensors: what is drawn in one is not what is drawn in another."""
    return int(named_generator(seed, "bucket", *names).integers(2**31))


def record_in_buckets(
    reducers: Sequence[AskedReducer],
    gradients: Sequence[Gradient],
    names: Sequence[str],
    buckets: Sequence[Bucket],
    *,
    seed: int,
    others: OtherSteps | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[BucketedRecord], list[Refused]]:
    """Run each reducer on every bucket of the gradients, one a rank, as `record` does on all of it.

    Parameters
    ----------
    names : sequence of str
        Of the gradients' layers, in the order of readiness; buckets tell their tensors by places in it.
    """
    exact = ExactMeans(gradients, others)

    def record_one(asked: AskedReducer) -> BucketedRecord:
        own = buckets_for(asked.reducer, buckets)
        if len(own) > 1:
            return _record_buckets(asked, gradients, names, own, exact, seed, others)
        ((found,), _) = record([replace(asked, optional=False)], gradients, seed=seed, others=others)
        return BucketedRecord(found, own, (found.recording,))

    return unless_refused(reducers, len(gradients), record_one, on_reducer)


def _record_buckets(
    asked: AskedReducer,
    gradients: Sequence[Gradient],
    names: Sequence[str],
    buckets: tuple[Bucket, ...],
    means: ExactMeans,
    seed: int,
    others: OtherSteps | None,
) -> BucketedRecord:
    like = gradients[0]
    place_of = {name: place for place, name in enumerate(like.names)}
    parts = [sorted(place_of[names[tensor]] for tensor in bucket.tensors) for bucket in buckets]
    fitted: list[Reducer] = []
    ran: list[Ran] = []
    with heard() as told:
        for part in parts:
            own = [pick(gradient, part) for gradient in gradients]
            own_seed = bucket_seed(seed, own[0].names)
            fitted.append(asked.reducer.fitted(own, own_seed))
            ran.append(run_reducer(fitted[-1], own, seed=own_seed, others=_of_part(others, part)))
    largest = max(range(len(parts)), key=lambda place: pick(like, parts[place]).size)
    say_of_all(told, fitted[largest], like, len(gradients), seed)
    exact = means.over(fitted[0].period)
    results = ended(_merged(parts, [each.results for each in ran], like), asked.reducer.traits)
    compressed = [
        [part[index] for index in each.compresses(pick(like, part))] for each, part in zip(fitted, parts, strict=True)
    ]
    bounds = [(each.instances[0].error_bound(), layers) for each, layers in zip(ran, compressed, strict=True)]
    recordings = tuple(each.recording for each in ran)
    recorded = Recorded(
        asked.option_string,
        fitted[largest],
        join_buckets(recordings),
        worst_error(results, exact, sorted(index for layers in compressed for index in layers)),
        bound_row(bounds, results[0].mean, exact),
        consensus_distance(results),
    )
    return BucketedRecord(recorded, buckets, recordings)


def _of_part(others: OtherSteps | None, part: Sequence[int]) -> OtherSteps | None:
    return None if others is None else lambda step: [pick(gradient, part) for gradient in others(step)]


def _merged(parts: Sequence[Sequence[int]], results: Sequence[Sequence[Reduced]], like: Gradient) -> list[Reduced]:
    """Return what each rank ends with of the whole gradient; ranks that end alike share it."""
    known: dict[tuple[int, ...], Gradient] = {}
    found = []
    for own in zip(*results, strict=True):
        alike = tuple(id(each.mean) for each in own)
        if alike not in known:
            known[alike] = merge(zip(parts, (each.mean for each in own), strict=True), like)
        found.append(replace(own[0], mean=known[alike]))
    return found


@contextmanager
def heard() -> Iterator[list[warnings.WarningMessage]]:
    """Keep what is warned of in parts of a gradient for `say_of_all`: a part may lack what others have."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", S2SimWarning)
        yield told


def say_of_all(
    told: Sequence[warnings.WarningMessage], reducer: Reducer, gradient: Gradient, ranks: int, seed: int
) -> None:
    """Warn of what there is to warn of all of a gradient, which is nothing if nothing was told of its parts."""
    for warning in told:
        if not issubclass(warning.category, S2SimWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if any(issubclass(warning.category, S2SimWarning) for warning in told):
        begin(reducer, gradient, ranks, seed=seed)
