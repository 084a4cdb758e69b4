"""``s2sim cache``: what the store of recordings has, and how to empty it."""

from __future__ import annotations

from s2sim.cli.options import examples, switch
from s2sim.cli.output import show_line
from s2sim.units import format_bytes, format_number_of

EXAMPLES = examples("s2sim cache", "s2sim cache --empty", "S2SIM_CACHE=off s2sim run --topology fat-tree --workers 8")


def cache_command(empty: bool = switch("--empty", "Remove all recordings.")) -> None:
    """Show the store of recordings, from which reducers that ran on the same gradients are taken, or empty it.

    The environment variable S2SIM_CACHE names another folder; S2SIM_CACHE=off does without a store.
    """
    from s2sim.experiment.recording_store import LIMIT_BYTES, VARIABLE, recording_store

    store = recording_store()
    if store is None:
        show_line(f"No store: {VARIABLE} is off.")
        return
    if empty:
        show_line(f"{store.folder}: {format_number_of(store.trim(0), 'recording')} removed.")
        return
    sizes = [entry.st_size for _, entry in store.entries()]
    limit = f"at most {format_bytes(LIMIT_BYTES)}, least recently used ones go first"
    show_line(f"{store.folder}: {format_number_of(len(sizes), 'recording')}, {format_bytes(sum(sizes))} ({limit}).")
