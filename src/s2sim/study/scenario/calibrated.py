"""Says where a library's constants are used outside of what somebody fitted them to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.calibration import machine_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from s2sim.collectives.libraries.library import Library
    from s2sim.study.scenario.cluster import Scenario


def outside_notes(
    library: Library | None, scenario: Scenario, workers: int, sent: Collection[tuple[str, int]]
) -> list[str]:
    """Return in what respects a use lies outside, as one note; none where it does not, or nothing was fitted.

    Parameters
    ----------
    library : Library or None
        What runs.
    scenario : Scenario
        Where.
    sent : collection of (str, int)
        Collectives with their sizes in bytes, as nccl-tests counts them.
    """
    if library is None or library.calibration is None or not sent:
        return []
    nodes = len(np.unique(scenario.cluster(workers).node_of_rank[:workers]))
    found = library.calibration.outside(
        machine_text(scenario.shape.name, scenario.overrides),
        {kind for kind, _ in sent},
        workers,
        nodes,
        {size_bytes for _, size_bytes in sent},
    )
    return [f"{library.calibration.path} is used outside of what it was fitted to: {'; '.join(found)}"] if found else []
