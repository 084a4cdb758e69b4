"""The band around a predicted time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.fidelity.band import Band
from s2sim.study.fidelity.bands import shipped_bands
from s2sim.study.fidelity.run_class import run_class

if TYPE_CHECKING:
    from s2sim.collectives.libraries.profile import Profile
    from s2sim.topology.cluster import Cluster


def band_around(time_s: float, cluster: Cluster, profile: Profile, kind: str, size_bytes: float) -> Band | None:
    """Return the band around the time of a collective; None where no library's measured constants made that."""
    run = run_class(cluster, profile, kind)
    if run is None:
        return None
    bands = shipped_bands()
    low, high = bands.around(run, size_bytes)
    of = f"errors of {len(bands.curves)} measured curves of {len(bands.sources)} sources that were left out of the fit"
    return Band(time_s * low, time_s * high, of)
