"""The two halves of a run: what reducers do on gradients, and the time that this takes on a cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import log, sqrt
from typing import Any

import numpy as np

from s2sim.arrays import Floats
from s2sim.collectives.timing.timer import SCATTER, TimedSchedule, Timer
from s2sim.experiment.buckets import record_buckets
from s2sim.experiment.execute import ExecutedRecording, busiest_link, group_identical_collectives, mean_bytes
from s2sim.experiment.lower_bounds import communication_bound, iteration_bound_s
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.experiment.record import RecordedReducer, baseline_of
from s2sim.experiment.recording_store import through_store
from s2sim.experiment.row_parts import CollectiveRow, Distance, IterationRow, Refused, Times
from s2sim.experiment.rows import Row
from s2sim.experiment.run_extrapolation import record_at_size
from s2sim.experiment.scenario.reducers import ReducerScenario, ReducerSpec, step_reader
from s2sim.reducers.measure import Error
from s2sim.reducers.script import Recording, count_rounds, payload_bytes
from s2sim.seeds import named_generator
from s2sim.simulation.bucketing.policy import merge_recordings
from s2sim.simulation.bucketing.sharded import Groups, ShardedDiscipline, shard_recording
from s2sim.simulation.run import Replay
from s2sim.topology.cluster import Cluster
from s2sim.uncertainty.interval import Band, band_of_draws, errors_known, interval_of, run_class, shipped_factors
from s2sim.units import PS_PER_S, format_rate, format_seconds


@dataclass(frozen=True, slots=True)
class Prediction:
    """The time that a recording takes on a cluster."""

    recorded: RecordedReducer  # The reducer and its recording
    executed: ExecutedRecording  # The recording on the cluster, as the library executes it
    row: Row  # All numbers of it


def record(
    scenario: ReducerScenario, ranks: int, progress: ProgressWatcher = SILENT
) -> tuple[list[RecordedReducer], list[Refused]]:
    """Run every reducer of a scenario on the gradients of the first step.

    The cluster decides only which ranks share a node and how long exchanges take, for bucketing that depends on it.
    Beside the recordings, the optional reducers are returned that refuse these gradients; `S2SimError` for another one.

    Parameters
    ----------
    scenario : ReducerScenario
        Cluster, gradients and reducers.
    ranks : int
        Number of ranks.
    progress : ProgressWatcher
        Advances once per rank and once per reducer.
    """
    training, buckets, others = scenario.training, scenario.buckets(ranks), step_reader(scenario.trace, ranks)
    what: list[Any] = ["run", ranks]
    if training is not None:
        layers = training.model.layers[::-1]
        what += [[each.name, each.shape, each.sparse, each.most_rows] for each in layers]
        what += [training.model.name, [each.tensors for each in buckets]]
    found: dict[str, RecordedReducer] = {}
    refused: list[Refused] = []
    for few, reducers in scenario.by_recorded_ranks(ranks).items():

        def run(missing: Sequence[ReducerSpec], few: int = few) -> dict[str, RecordedReducer]:
            gradients = []
            for rank in range(few):
                gradients.append(scenario.trace.gradient(0, rank))
                progress.advance()
            rest: Any = {"others": others, "ranks": ranks, "on_reducer": progress.advance}
            if training is None:
                records, left_out = record_at_size(scenario, missing, gradients, **rest)
            else:
                seed, model = scenario.seed, training.model
                records, left_out = record_buckets(missing, gradients, layers, buckets, seed=seed, model=model, **rest)
            refused.extend(left_out)
            return {item.option_string: item for item in records}

        found |= through_store(scenario, reducers, [*what, few], run)
    names = [item.option_string for item in scenario.reducers]
    # As it is written here: another spelling of the same options has the same recording.
    records = [replace(found[name], option_string=name) for name in names if name in found]
    if training is not None and isinstance(training.discipline, ShardedDiscipline) and training.discipline.scatters:
        groups = training.discipline.groups(scenario.healthy(ranks).node_of_rank.tolist())
        return [_shard_record(item, groups) for item in records], refused
    return records, refused


def _shard_record(item: RecordedReducer, groups: Groups) -> RecordedReducer:
    """Return what ranks with shards do, see `shard_recording`."""
    known = {id(each.recording): shard_recording(each.recording, groups) for each in item.exchange}
    exchange = tuple(replace(each, recording=known[id(each.recording)]) for each in item.exchange)
    shards = all(known[id(each.recording)] is not each.recording for each in item.exchange)
    return replace(item, recording=merge_recordings(exchange), exchange=exchange, shards=shards)


def execute(
    scenario: ReducerScenario, recorded: Sequence[RecordedReducer], timers: dict[str | None, Timer] | None = None
) -> list[ExecutedRecording]:
    """Return recordings on a cluster by their reducers' algorithms; ``timers``, by algorithm, keep their times."""
    ranks, timers = recorded[0].recording.workers, {} if timers is None else timers
    routes = next((timer.ways for timer in timers.values()), None) or scenario.route_table(ranks)
    scenarios = {name: scenario.running(name) for name in dict.fromkeys(item.reducer.runs_by for item in recorded)}
    for name, running in scenarios.items():
        timers[name] = timers.get(name) or running.timer(ranks, routes)
    return [ExecutedRecording.of(one, scenarios[one.reducer.runs_by], timers[one.reducer.runs_by]) for one in recorded]


def predict(
    scenario: ReducerScenario,
    recorded: Sequence[RecordedReducer],
    *,
    thorough: bool = True,
    on_row: Callable[[Row], None] = lambda _: None,
) -> list[Prediction]:
    """Return the times of recordings on a scenario's cluster, with its library and on its GPU.

    Parameters
    ----------
    scenario : ReducerScenario
        May differ in everything except the number of ranks from the one in which they were recorded.
    recorded : sequence of RecordedReducer
        All of the same number of ranks, ``dense``, with which all are compared, among them.
    thorough : bool
        Whether to predict the times with other libraries too, which takes more replays.
    on_row : callable
        Called with each row once it is finished.
    """
    executed = execute(scenario, recorded)
    dense = executed[list(recorded).index(baseline_of(recorded))]
    found = []
    for item, each in zip(recorded, executed, strict=True):
        found.append(Prediction(item, each, make_row(item, each, dense, thorough=thorough)))
        on_row(found[-1].row)
    return found


def make_row(
    recorded: RecordedReducer, executed: ExecutedRecording, dense: ExecutedRecording, *, thorough: bool = True
) -> Row:
    """Return the row of one reducer; ``dense`` is the baseline on the same cluster, ``thorough`` as in `predict`."""
    replay, cluster, scenario = executed.replay, executed.timer.cluster, executed.scenario
    sent, received = executed.traffic()
    assisted = any(launch.timed.schedule.assisted for launch in replay.launches)
    work_s = (replay.encode_ps + replay.decode_ps) / PS_PER_S
    bound = communication_bound(recorded.recording, executed.plan, executed.timer, assisted=assisted, work_s=work_s)
    dense_sent, most_sent = int(dense.traffic()[0].max()), int(sent.max())
    compared = scenario.compute_ps is not None or scenario.training is not None
    own_ps, dense_ps = executed.compared_ps, dense.compared_ps
    rounds, errors = count_rounds(recorded.recording), recorded.errors
    least_s = bound.seconds / recorded.recording.steps
    band, draws_s = band_of(executed, recorded.option_string, 0.0 if compared else least_s)
    return Row(
        name=recorded.reducer.traits.name,
        reducer=recorded.option_string,
        options=recorded.reducer.options(),
        workers=cluster.workers,
        baseline=executed is dense,
        lossless=recorded.reducer.traits.lossless,
        agrees=recorded.reducer.traits.agrees,
        consensus_distance=recorded.consensus,
        estimates=recorded.reducer.traits.estimates,
        feedback="no" if recorded.spec.bare else recorded.reducer.traits.feedback,
        time_s=Times(
            encode=replay.encode_ps / PS_PER_S,
            communication=replay.communication_ps / PS_PER_S,
            decode=replay.decode_ps / PS_PER_S,
            total=replay.total_ps / PS_PER_S,
            iteration=own_ps / PS_PER_S if compared else None,
        ),
        encode_work_s=replay.work_ps("encode") / PS_PER_S,
        decode_work_s=replay.work_ps("decode") / PS_PER_S,
        iteration=_iteration(executed),
        period=recorded.recording.steps,
        bytes_sent_per_rank=mean_bytes(most_sent, recorded.recording),
        bytes_received_per_rank=mean_bytes(int(received.max()), recorded.recording),
        payload_bytes_per_rank=mean_bytes(int(payload_bytes(recorded.recording).max()), recorded.recording),
        ratio=dense_sent * recorded.recording.steps / most_sent if most_sent else None,
        error=_distance(errors.whole),
        error_compressed=_distance(errors.compressed),
        error_largest=errors.whole.largest,
        error_compressed_largest=errors.compressed.largest,
        error_per_layer={name: _distance(error) for name, error in errors.layers.items()},
        error_bound=recorded.bound,
        rounds=rounds.after_gradient,
        rounds_before_gradient=rounds.before_gradient,
        host_syncs=rounds.host_syncs + executed.plan.host_syncs,
        host_syncs_ideal=rounds.host_syncs + executed.ideal_plan.host_syncs,
        host_syncs_real=rounds.host_syncs + executed.real_plan.host_syncs,
        lower_bound_s=least_s,
        lower_bound_why=bound.derivation,
        speedup_vs_dense=dense_ps / own_ps if own_ps else 1.0 if dense_ps == 0 else float("inf"),
        collectives=_collectives(recorded.recording, replay),
        bottleneck=bottleneck_text(replay, cluster, recorded.recording.steps),
        lowering=executed.lowering() if thorough else (),
        total_ideal_s=executed.replayed(executed.ideal_plan).total_ps / PS_PER_S if thorough else None,
        order_gap_s=executed.gap_s(executed.plan.unordered(executed.ideal_plan)) if thorough else None,
        real_library=scenario.machines.real_library.option_string,
        total_real_s=executed.replayed(executed.real_plan).total_ps / PS_PER_S if thorough else None,
        bytes_sent_real_per_rank=mean_bytes(executed.sent_real(), recorded.recording),
        assumes=recorded.assumes,
        recorded_error=recorded_error(scenario),
        band=band,
        band_draws_s=draws_s,
    )


def bottleneck_text(replay: Replay, cluster: Cluster, steps: int = 1) -> str:
    """Return the longest phase and the busiest link of a replay of ``steps`` steps as text."""
    if replay.total_ps == 0:
        return "nothing takes time"
    names = ("encoding", "transfers and waiting", "decoding")
    times_ps = (replay.encode_ps, replay.communication_ps, replay.decode_ps)
    phase, longest = max(zip(names, times_ps, strict=True), key=lambda item: item[1])
    text = f"{longest / replay.total_ps:.0%} of the communication phase goes to {phase}"
    if (busiest := busiest_link(replay, cluster, steps)) is None:
        return text
    rate = format_rate(busiest.rate_Bps)
    return f"{text}; the busiest link is {busiest.name} ({rate}), busy {busiest.share:.0%} of communication"


def _distance(error: Error) -> Distance:
    return Distance(error.relative_l2, error.cosine)


def _iteration(executed: ExecutedRecording) -> IterationRow | None:
    iterations, training = executed.iterations, executed.scenario.training
    if iterations is None or training is None:
        return None
    low_ps, high_ps = iterations.spread_ps
    parts, samples = iterations.typical, training.samples * executed.recording.workers
    return IterationRow(
        **{each.name: getattr(parts, each.name) / PS_PER_S for each in fields(parts)},
        spread_s=(high_ps - low_ps) / PS_PER_S,
        iterations=len(iterations.activity.begun_ps) - 1,
        samples_per_s=samples * PS_PER_S / parts.iteration if parts.iteration else None,
        discipline=training.discipline.text,
        buckets=len(executed.exchange) or 1,
        streams=training.streams,
        lower_bound=iteration_bound_s(executed),
        waiting_mean=iterations.waiting_ps / PS_PER_S,
        state_bytes=executed.rank_work.state_bytes,
        pipeline_wait=min(training.idle_ps, parts.waiting) / PS_PER_S,
        parameter_bytes=executed.rank_work.gathers.received_bytes(training.accumulate),
    )


def _collectives(recording: Recording, replay: Replay) -> tuple[CollectiveRow, ...]:
    """Return a row per launch of a call; identical launches of several groups of ranks share one."""
    ran = [(launch, recording.calls[number], step) for launch in replay.launches for number, step in launch.parts]
    posted = [(launch.ranks, (call.label, step.what, step.demands[0].kind)) for launch, call, step in ran]
    rows = []
    for group in group_identical_collectives(posted):
        launch, call, step = ran[group[0]]
        identical = [ran[index] for index in group]
        rows.append(
            CollectiveRow(
                kind=step.demands[0].kind,
                algorithm=launch.timed.schedule.algorithm,
                label=f"{call.label}: {step.what}" if step.what else call.label,
                bytes=max(demand.handed_in_bytes for _, _, each in identical for demand in each.demands),
                time_s=max(each.end_ps - each.start_ps for each, _, _ in identical) / PS_PER_S,
                size_from_data=call.size_from_data,
                why=launch.timed.why,
            )
        )
    return tuple(rows)


def recorded_error(scenario: ReducerScenario) -> float | None:
    """Return by which share the prediction of the recorded job is off; None without one."""
    recorded = None if scenario.training is None else scenario.training.recorded
    return None if recorded is None else recorded.error


# Draws of what the prediction of a recorded job leaves, of which 90 % lie within this many standard deviations.
_DRAWS, _WITHIN_90 = 400, 1.645
# Of a library's estimate, so that one of two that differ by `SCATTER` is taken for the lesser in one of twenty draws.
_ESTIMATE_ERROR = log(SCATTER) / _WITHIN_90 / sqrt(2)


def band_of(executed: ExecutedRecording, name: str, least_s: float) -> tuple[Band | None, tuple[float, ...]]:
    """Return the interval of a reducer's time, see `_library_band`, wider by what a recorded job was off."""
    band, draws_s = _library_band(executed, least_s)
    if (error := recorded_error(executed.scenario)) is None:
        return band, draws_s
    time_s = executed.compared_ps / PS_PER_S
    factors = np.exp(named_generator(0, "recorded", name).standard_normal(_DRAWS) * np.log1p(error) / _WITHIN_90)
    more_s = (np.resize(draws_s, _DRAWS) if draws_s else 0.0) + time_s * (factors - 1)
    low_s, high_s = interval_of(time_s + more_s)
    of = f"{'' if band is None else f'{band.of}; '}the prediction of the recorded job, off by {error:.1%}"
    return Band(min(low_s, time_s), max(high_s, time_s), of), tuple(more_s.tolist())


def choice_factors(timed: TimedSchedule, timer: Timer) -> Floats:
    """Return how many times as long a launch takes in each draw of what the library chooses, float64 (draws,) or (1,).

    Draws are the same for all launches and reducers: what a machine prefers at one size it prefers at others.
    """
    options = [(1.0, timed), *timer.alternatives(timed)]
    if len(options) == 1 or not timed.duration_ps:
        return np.ones(1)
    drawn = [named_generator(0, "choice", each.schedule.text).standard_normal(_DRAWS) for _, each in options]
    ratios, times_ps = np.array([(ratio, each.duration_ps) for ratio, each in options]).T
    chosen = np.argmin(np.log(ratios)[:, None] + _ESTIMATE_ERROR * np.array(drawn), axis=0)
    times: Floats = times_ps[chosen] / timed.duration_ps
    return times


# A library's choice matters from so many times the time on.
_MATTERS = 1.05


def choice_note(dense: ExecutedRecording) -> list[str]:
    """Return by what else the library may run dense's longest collective, if that takes another time."""
    launch = max(dense.replay.launches, key=lambda each: each.timed.duration_ps, default=None)
    if launch is None or not launch.timed.duration_ps:
        return []
    library, timed = dense.scenario.library, launch.timed
    alternatives = dense.timer.with_profile(library.profile).within(launch.ranks).alternatives(timed)
    texts = [
        f"{each.schedule.text} in {format_seconds(each.duration_ps / PS_PER_S)}"
        for each in (timed, *(other for _, other in alternatives))
        if each is timed or abs(log(each.duration_ps / timed.duration_ps)) > log(_MATTERS)
    ]
    what = f"{library.name} may run {timed.schedule.demand.kind} of dense by {' or by '.join(texts[1:])} instead of"
    close = f"its estimates differ by less than {SCATTER - 1:.0%}"
    return [f"{what} {texts[0]}: {close}"] if texts[1:] else []


def _library_band(executed: ExecutedRecording, least_s: float) -> tuple[Band | None, tuple[float, ...]]:
    """Return the 90 % interval of the compared time of a replay, and the seconds that each draw of errors adds to it.

    All replays use the same draws, of errors and of what the library chooses. Communication grows in proportion to its
    launches; of an iteration, what is exposed grows with it, and what backward cannot hide beside. (None, ()) if the
    time does not rest on a library's measured constants.
    """
    profile, iterations = executed.scenario.library.profile, executed.iterations
    replay = executed.replay if iterations is None else iterations
    launches = [launch for launch in replay.launches if launch.end_ps > max(launch.start_ps, 0)]
    if not errors_known(profile) or executed.scenario.unsure or not launches:
        return None, ()
    lengths_ps, drawn_ps, assumed = 0, np.zeros(1), dict[str, None]()
    for launch in launches:
        timer, demand = executed.timer.with_profile(profile).within(launch.ranks), launch.timed.schedule.demand
        if (run := run_class(timer.cluster, profile, demand.kind)) is None:
            return None, ()
        assumed |= dict.fromkeys(run.assumed)
        lengths_ps += launch.end_ps - launch.start_ps
        factors = shipped_factors(run, demand.buffer_bytes) * choice_factors(launch.timed, timer)
        drawn_ps = drawn_ps + (launch.end_ps - launch.start_ps) * factors
    longer = drawn_ps / lengths_ps
    if iterations is None:
        network_ps = executed.replay.communication_ps
        if executed.scenario.faults:
            # What a slow rank is late is no part of what the network takes.
            network_ps = min(network_ps, lengths_ps // executed.replay.steps)
        more_ps = (longer - 1) * network_ps
    else:
        parts = iterations.typical
        exposed_ps, hidden_ps = parts.exposed_communication, parts.hidden_communication
        all_ps, room_ps = exposed_ps + hidden_ps, max(hidden_ps, parts.backward)
        more_ps = np.maximum(longer * exposed_ps, longer * all_ps - room_ps) - exposed_ps
    compared_s = executed.compared_ps / PS_PER_S
    more_s = more_ps / PS_PER_S
    return band_of_draws(compared_s, compared_s + more_s, assumed, least_s), tuple(more_s.tolist())
