"""The band around a row's time, and what the time were with other constants that measured curves allow."""

from __future__ import annotations

import numpy as np

from s2sim.arrays import Floats
from s2sim.collectives.timing.terms import schedule_terms
from s2sim.collectives.timing.timer import TimedSchedule
from s2sim.experiment.execute import ExecutedRecording
from s2sim.libraries.nccl import NcclProfile
from s2sim.simulation.communicator import Launch
from s2sim.topology.cluster import Cluster
from s2sim.uncertainty.constant_fit import qualified_name
from s2sim.uncertainty.interval import Band, interval_at, shipped_error_model
from s2sim.units import PS_PER_S


def band_of(executed: ExecutedRecording) -> tuple[Band | None, tuple[float, ...]]:
    """Return the band around the total of a replay, and by how many seconds it were longer with each draw.

    The draws of the constants are the same for all replays. None and nothing where no library's measured constants made
    the time.

    Communication takes longer as its launches do: all that waits for them waits so much longer. With the constants of a
    draw a launch takes its terms at these.
    """
    profile, replay = executed.scenario.library.profile, executed.replay
    launches = [launch for launch in replay.launches if launch.end_ps > max(launch.start_ps, 0)]
    if not isinstance(profile, NcclProfile) or executed.scenario.faults or not launches:
        return None, ()
    drawn: dict[int, Floats] = {}
    lengths, bands, draws = [], [], []
    for launch in launches:
        cluster = executed.timer.within(launch.ranks).cluster
        length_s = (launch.end_ps - launch.start_ps) / PS_PER_S
        around = interval_at(length_s, cluster, profile, *_launch_key(launch))
        if around is None:
            return None, ()
        if id(launch.timed) not in drawn:
            drawn[id(launch.timed)] = _draw_factors(launch.timed, cluster, profile.library)
        lengths.append(length_s)
        bands.append(around)
        draws.append(length_s * drawn[id(launch.timed)])
    communication_s, total_s = replay.communication_ps / PS_PER_S, replay.total_ps / PS_PER_S
    longer = communication_s / sum(lengths)
    rest_s = total_s - communication_s
    low_s, high_s = rest_s + longer * sum(b.low_s for b in bands), rest_s + longer * sum(b.high_s for b in bands)
    more_s = longer * np.sum(draws, axis=0) - communication_s
    return Band(low_s, high_s, bands[0].of), tuple(more_s.tolist())


def _launch_key(launch: Launch) -> tuple[str, int]:
    demand = launch.timed.schedule.demand
    return demand.kind, demand.buffer_bytes


def _draw_factors(timed: TimedSchedule, cluster: Cluster, library: str) -> Floats:
    """Return by what a schedule's time is multiplied with each draw of the constants."""
    bands = shipped_error_model()
    logs = np.array(bands.draws)
    column = {name: number for number, name in enumerate(bands.constants)}
    times_ps = np.zeros(len(logs))
    for term in schedule_terms(timed, cluster):
        grown = np.zeros(len(logs))
        for name, power in term.constants:
            if (number := column.get(qualified_name(library, name))) is not None:
                grown += power * logs[:, number]
        times_ps += term.ps * np.exp(grown)
    return times_ps / max(timed.duration_ps, 1)
