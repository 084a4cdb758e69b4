"""Reducers bucket by bucket: each runs on the layers of one bucket, with separate state."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from s2sim.errors import S2SimWarning
from s2sim.experiment.record import RecordedReducer, exact_means, make_bound_row, record, record_each
from s2sim.experiment.row_parts import Refused
from s2sim.experiment.scenario.reducers import ReducerSpec
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.measure import consensus_distance, final_results, worst_error
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.reducers.run import OtherSteps, ReducerRun, dry_run, run_reducer
from s2sim.reducers.shared.layers import merge_layers, select_layers
from s2sim.seeds import bucket_seed
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange, merge_recordings


def buckets_for(reducer: Reducer, buckets: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """Return the buckets that a reducer runs on: these, or one of all their tensors."""
    if reducer.traits.scope == "bucket":
        return tuple(buckets)
    return (Bucket(tuple(sorted(place for bucket in buckets for place in bucket.tensors))),)


def record_in_buckets(
    reducers: Sequence[ReducerSpec],
    gradients: Sequence[Gradient],
    names: Sequence[str],
    buckets: Sequence[Bucket],
    *,
    seed: int,
    others: OtherSteps | None = None,
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run each reducer on every bucket of gradients, one per rank; ``names`` are the layers in order of readiness."""
    means, like = exact_means(gradients, others), gradients[0]
    place_of = {name: place for place, name in enumerate(like.names)}

    def record_one(asked: ReducerSpec) -> RecordedReducer:
        own_buckets = buckets_for(asked.reducer, buckets)
        if len(own_buckets) == 1:
            ((found,), _) = record([replace(asked, optional=False)], gradients, seed=seed, others=others)
            return replace(found, exchange=(BucketExchange(own_buckets[0], found.recording),))
        parts = [sorted(place_of[names[tensor]] for tensor in bucket.tensors) for bucket in own_buckets]
        fitted: list[Reducer] = []
        ran: list[ReducerRun] = []
        with capture_warnings() as told:
            for part in parts:
                own = [select_layers(gradient, part) for gradient in gradients]
                own_seed = bucket_seed(seed, own[0].names)
                fitted.append(asked.reducer.fitted(own, own_seed))
                timed = replace(asked, reducer=fitted[-1]).timed
                ran.append(run_reducer(timed, own, seed=own_seed, others=_restrict_steps(others, part)))
        exact = means(fitted[0].period)
        results = final_results(_merged(parts, [each.results for each in ran], like), asked.reducer.traits)
        compressed = [
            [part[index] for index in each.compresses(select_layers(like, part))]
            for each, part in zip(fitted, parts, strict=True)
        ]
        most = max(range(len(parts)), key=lambda place: select_layers(like, compressed[place]).size)
        if told:
            dry_run(fitted[most], like, len(gradients), seed=seed)
        bounds = [(each.instances[0].error_bound(), layers) for each, layers in zip(ran, compressed, strict=True)]
        exchange = tuple(BucketExchange(bucket, each.recording) for bucket, each in zip(own_buckets, ran, strict=True))
        return RecordedReducer(
            asked.option_string,
            fitted[most],
            merge_recordings(exchange),
            worst_error(results, exact, sorted(index for layers in compressed for index in layers)),
            make_bound_row(bounds, results[0].mean, exact),
            consensus_distance(results),
            exchange,
        )

    return record_each(reducers, len(gradients), record_one, on_reducer)


def _restrict_steps(others: OtherSteps | None, part: Sequence[int]) -> OtherSteps | None:
    return None if others is None else lambda step: [select_layers(gradient, part) for gradient in others(step)]


def _merged(parts: Sequence[Sequence[int]], results: Sequence[Sequence[Reduced]], like: Gradient) -> list[Reduced]:
    known: dict[tuple[int, ...], Gradient] = {}
    found = []
    for own in zip(*results, strict=True):
        alike = tuple(id(each.mean) for each in own)
        if alike not in known:
            known[alike] = merge_layers(zip(parts, (each.mean for each in own), strict=True), like)
        found.append(replace(own[0], mean=known[alike]))
    return found


@contextmanager
def capture_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect the warnings of reducers on parts of a gradient instead of showing them.

    A part may lack what others have. If no part warns, the full gradient has nothing to warn of; else the caller
    runs the reducer by `dry_run` on the full gradient.
    """
    told: list[warnings.WarningMessage] = []
    with warnings.catch_warnings(record=True) as every:
        warnings.simplefilter("always", S2SimWarning)
        yield told
        told += [each for each in every if issubclass(each.category, S2SimWarning)]
    for other in every:
        if not issubclass(other.category, S2SimWarning):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
