"""What a reader must know of the communication library behind a result."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.library import OF_TIMING, TIMING
from s2sim.collectives.libraries.profile import PLAIN
from s2sim.collectives.libraries.tables import IDEAL
from s2sim.errors import S2SimWarning
from s2sim.replay.plan import make_plan
from s2sim.study.measuring.record import names_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.libraries.library import Library
    from s2sim.reducers.scripts.script import Recording
    from s2sim.study.measuring.record import Recorded
    from s2sim.topology.shape import ClusterShape


def library_notes(library: Library, shape: ClusterShape, recorded: Sequence[Recorded]) -> list[str]:
    """Return what differs from the ideal library, and what of the library is not counted."""
    if library.name == IDEAL.name:
        packed = [item for item in recorded if any(call.op == "or" for call in item.recording.calls)]
        if not packed:
            return []
        return [f"{names_of(packed)}: bits are all-reduced with OR, which MPI has and NCCL has not; there, bitmap=byte"]
    name = library.option_string
    differing = [item for item in recorded if _sends_other(item.recording, library)]
    notes = []
    if differing:
        notes.append(
            f"{names_of(differing)}: {name} sends something else than is asked; s2sim run --show lowering tells what"
        )
    if library.through_host:
        copies = (
            f"copies to and from it take no time here, because {shape.name} has no pcie.rate"
            if shape.pcie is None
            else "buffers are copied out and back over each GPU's PCIe"
        )
        adding = ", and what CPUs take to add is not counted" if library.profile == PLAIN else ""
        notes.append(f"{name} works in host memory: {copies}; messages take the ways of GPU memory{adding}")
    return notes


def wire_note(library: Library, shape: ClusterShape) -> str | None:
    """Return that times leave out what a library adds, and why, where nobody asked for it; None where they do not."""
    why = None if library.name == IDEAL.name else library.untold(shape)
    return None if why is None else f"{library.option_string}: times are those of the wire alone, because {why}"


def _sends_other(recording: Recording, library: Library) -> bool:
    plan, ideal = make_plan(recording, library), make_plan(recording)
    return any(own.demands != asked.demands for own, asked in zip(plan.lowered, ideal.lowered, strict=True))


def warn_of_idle_library_options(text: str | None, library: Library, recorded: Sequence[Recorded]) -> None:
    """Warn of each option that was given for the library and decided nothing; of those of a topology (None) not."""
    if text is None:
        return
    used = {
        option
        for item in recorded
        for lowered in make_plan(item.recording, library).lowered
        for option in lowered.options
    }
    for option in library.given:
        why = "no reducer asks for what it decides"
        if option in OF_TIMING:
            # What a library adds counts in every collective.
            if option == TIMING or library.profile != PLAIN:
                continue
            why = "times are those of the wire alone"
        if option not in used:
            warnings.warn(f"--library {text}: {option} changes nothing here: {why}", S2SimWarning, stacklevel=2)
