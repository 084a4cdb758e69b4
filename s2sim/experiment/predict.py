"""From a replay to a result row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from s2sim.collectives.timing.timer import link_bytes
from s2sim.experiment.execute import (
    ExecutedRecording,
    group_identical_collectives,
    mean_bytes,
    ring_traffic,
    schedule_traffic,
)
from s2sim.experiment.lower_bounds import communication_bound
from s2sim.experiment.prediction_interval import band_of
from s2sim.experiment.record import RecordedReducer
from s2sim.experiment.row_parts import CollectiveRow, Distance, IterationRow, Times, iteration_row
from s2sim.experiment.rows import Row
from s2sim.reducers.measure import Error
from s2sim.reducers.script import Recording, count_rounds, payload_bytes
from s2sim.simulation.run import Replay
from s2sim.topology.cluster import Cluster
from s2sim.units import PS_PER_S, format_rate


def executed_traffic(executed: ExecutedRecording) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (sent, received) bytes of each rank over all that is launched, of ring algorithms or of what ran.

    Where that is several steps', they are those of all of them.
    """
    ranks = executed.recording.workers
    if executed.scenario.uses_ring_bytes:
        return ring_traffic(executed.plan.lowered, ranks)
    return schedule_traffic(executed.replay, ranks)


def bottleneck_text(replay: Replay, cluster: Cluster, steps: int = 1) -> str:
    """Return which phase takes most of the time, and which link was busiest in it, of a replay of so many steps."""
    phases = {
        "encoding": replay.encode_ps,
        "transfers and waiting": replay.communication_ps,
        "decoding": replay.decode_ps,
    }
    if replay.total_ps == 0:
        return "nothing takes time"
    phase, longest = max(phases.items(), key=lambda item: item[1])
    text = f"{longest / replay.total_ps:.0%} of the communication phase goes to {phase}"
    carried = np.zeros(len(cluster.fabric.rate_Bps))
    # What ran before the gradients were there takes no time of this phase.
    for launch in (launch for launch in replay.launches if launch.end_ps > 0):
        carried += link_bytes(launch.timed.schedule, launch.timed.times)
    busy_s = carried / cluster.fabric.rate_Bps
    if replay.communication_ps == 0 or not busy_s.any():
        return text
    link = int(busy_s.argmax())
    share = busy_s[link] * PS_PER_S / (replay.communication_ps * steps)
    rate = format_rate(float(cluster.fabric.rate_Bps[link]))
    return f"{text}; the busiest link is {cluster.fabric.link_names[link]} ({rate}), busy {share:.0%} of communication"


def make_row(
    recorded: RecordedReducer, executed: ExecutedRecording, dense: ExecutedRecording, *, thorough: bool = True
) -> Row:
    """Return the row of one reducer; ``dense`` is that reducer on the same cluster.

    What other libraries would make of it takes more replays, which are done only if it is to be ``thorough``.
    """
    replay, cluster, scenario = executed.replay, executed.timer.cluster, executed.scenario
    sent, received = executed_traffic(executed)
    assisted = any(launch.timed.schedule.assisted for launch in replay.launches)
    work_s = (replay.encode_ps + replay.decode_ps) / PS_PER_S
    bound = communication_bound(recorded.recording, executed.plan, executed.timer, assisted=assisted, work_s=work_s)
    dense_sent, most_sent = int(executed_traffic(dense)[0].max()), int(sent.max())
    compared = scenario.compute_ps is not None or scenario.training is not None
    rounds, errors = count_rounds(recorded.recording), recorded.errors
    band, draws_s = (None, ()) if scenario.training or scenario.groups else band_of(executed)
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
        time_s=Times(
            encode=replay.encode_ps / PS_PER_S,
            communication=replay.communication_ps / PS_PER_S,
            decode=replay.decode_ps / PS_PER_S,
            total=replay.total_ps / PS_PER_S,
            iteration=executed.compared_ps / PS_PER_S if compared else None,
        ),
        encode_work_s=replay.encode_work_ps / PS_PER_S,
        decode_work_s=replay.decode_work_ps / PS_PER_S,
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
        lower_bound_s=bound.seconds / recorded.recording.steps,
        lower_bound_why=bound.derivation,
        speedup_vs_dense=_speedup(dense.compared_ps, executed.compared_ps),
        collectives=_collectives(recorded.recording, replay),
        bottleneck=bottleneck_text(replay, cluster, recorded.recording.steps),
        lowering=executed.lowering() if thorough else (),
        total_ideal_s=executed.ideal.total_ps / PS_PER_S if thorough else None,
        order_gap_s=executed.order_gap_s() if thorough else None,
        real_library=scenario.machines.real_library.option_string,
        total_real_s=executed.real.total_ps / PS_PER_S if thorough else None,
        bytes_sent_real_per_rank=mean_bytes(executed.sent_real(), recorded.recording),
        assumes=recorded.assumes,
        band=band,
        band_draws_s=draws_s,
    )


def _distance(error: Error) -> Distance:
    return Distance(error.relative_l2, error.cosine)


def _iteration(executed: ExecutedRecording) -> IterationRow | None:
    iterations, training = executed.iterations, executed.scenario.training
    if iterations is None or training is None:
        return None
    low_ps, high_ps = iterations.spread_ps
    return iteration_row(
        iterations.typical,
        spread_ps=high_ps - low_ps,
        iterations=len(iterations.activity.begun_ps) - 1,
        samples=training.samples * executed.recording.workers,
        discipline=training.discipline.text,
        buckets=len(executed.exchange) or 1,
        streams=training.streams,
        lower_bound_s=executed.iteration_bound_s,
        waiting_mean_ps=iterations.waiting_ps,
    )


def _collectives(recording: Recording, replay: Replay) -> tuple[CollectiveRow, ...]:
    """Return a row a launch of a call; those of several groups of ranks that are alike are one."""
    ran = [(launch, recording.calls[number], step) for launch in replay.launches for number, step in launch.parts]
    posted = [(launch.ranks, (call.label, step.what, step.demands[0].kind)) for launch, call, step in ran]
    rows = []
    for group in group_identical_collectives(posted):
        launch, call, step = ran[group[0]]
        together = [ran[place] for place in group]
        rows.append(
            CollectiveRow(
                kind=step.demands[0].kind,
                algorithm=launch.timed.schedule.algorithm,
                label=f"{call.label}: {step.what}" if step.what else call.label,
                bytes=max(demand.handed_in_bytes for _, _, each in together for demand in each.demands),
                time_s=max(each.end_ps - each.start_ps for each, _, _ in together) / PS_PER_S,
                size_from_data=call.size_from_data,
                why=launch.timed.why,
            )
        )
    return tuple(rows)


def _speedup(dense_ps: int, own_ps: int) -> float:
    """Return the speed-up; 1 where neither takes time, as on one rank without compute."""
    if own_ps == 0:
        return 1.0 if dense_ps == 0 else float("inf")
    return dense_ps / own_ps
