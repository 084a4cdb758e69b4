"""The band around a row's time, and what the time were with other constants that measured curves allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.software import Software
from s2sim.collectives.terms.of_schedule import terms_of
from s2sim.study.fidelity.around import band_around
from s2sim.study.fidelity.band import Band
from s2sim.study.fidelity.bands import shipped_bands
from s2sim.study.fidelity.constants import owned
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Floats
    from s2sim.collectives.timing.timer import Timed
    from s2sim.replay.communicator import Launch
    from s2sim.study.measuring.executed import Executed
    from s2sim.topology.cluster import Cluster


def band_of(executed: Executed) -> tuple[Band | None, tuple[float, ...]]:
    """Return the band around the total of a replay, and by how many seconds it were longer with each draw.

    The draws of the constants are the same for all replays. None and nothing where no library's measured constants made
    the time.

    Communication takes longer as its launches do: all that waits for them waits so much longer. With the constants of a
    draw a launch takes its terms at these.
    """
    profile, replay = executed.scenario.library.profile, executed.replay
    launches = [launch for launch in replay.launches if launch.end_ps > max(launch.start_ps, 0)]
    if not isinstance(profile, Software) or executed.scenario.faults or not launches:
        return None, ()
    drawn: dict[int, Floats] = {}
    lengths, bands, draws = [], [], []
    for launch in launches:
        cluster = executed.timer.within(launch.ranks).cluster
        length_s = (launch.end_ps - launch.start_ps) / PS_PER_S
        around = band_around(length_s, cluster, profile, *_asked(launch))
        if around is None:
            return None, ()
        if id(launch.timed) not in drawn:
            drawn[id(launch.timed)] = _drawn(launch.timed, cluster, profile.library)
        lengths.append(length_s)
        bands.append(around)
        draws.append(length_s * drawn[id(launch.timed)])
    communication_s, total_s = replay.communication_ps / PS_PER_S, replay.total_ps / PS_PER_S
    longer = communication_s / sum(lengths)
    rest_s = total_s - communication_s
    low_s, high_s = rest_s + longer * sum(b.low_s for b in bands), rest_s + longer * sum(b.high_s for b in bands)
    more_s = longer * np.sum(draws, axis=0) - communication_s
    return Band(low_s, high_s, bands[0].of), tuple(more_s.tolist())


def _asked(launch: Launch) -> tuple[str, int]:
    """Return the kind of a launch and its bytes."""
    demand = launch.timed.schedule.demand
    return demand.kind, demand.buffer_bytes


def _drawn(timed: Timed, cluster: Cluster, library: str) -> Floats:
    """Return by what a schedule's time is multiplied with each draw of the constants."""
    bands = shipped_bands()
    logs = np.array(bands.draws)
    column = {name: number for number, name in enumerate(bands.constants)}
    times_ps = np.zeros(len(logs))
    for term in terms_of(timed, cluster):
        grown = np.zeros(len(logs))
        for name, power in term.constants:
            if (number := column.get(owned(library, name))) is not None:
                grown += power * logs[:, number]
        times_ps += term.ps * np.exp(grown)
    return times_ps / max(timed.duration_ps, 1)
