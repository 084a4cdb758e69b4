"""What has been recorded, replayed in one cell of a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.replay.run import replay
from s2sim.study.regimes.map import Contender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.timing.timer import Timer
    from s2sim.study.regimes.scripts import Script
    from s2sim.topology.files.hardware import Gpu


def contend(scripts: Sequence[Script], timer: Timer, gpu: Gpu) -> tuple[Contender, ...]:
    """Return how long each takes on a cluster with a GPU, and whether it may win."""
    return tuple(
        Contender(
            reducer=script.recorded.option_string,
            total_ps=replay(script.recorded.recording, timer, gpu, script.plan).total_ps,
            error_relative_l2=script.recorded.errors.whole.relative_l2,
            bytes_sent_per_rank=script.bytes_sent,
            acceptable=script.acceptable,
        )
        for script in scripts
    )
