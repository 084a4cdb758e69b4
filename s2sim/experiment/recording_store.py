"""A store of recordings in the user's cache folder: a reducer runs once on the same gradients.

An entry is a file named by the hash of all that its content follows from. It holds a SHA-256 and a packed pickle, which
is read only if the hash is right; a damaged one is recorded anew.
"""

import hashlib
import os
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from s2sim.errors import hold_warnings
from s2sim.experiment.scenario.content_hash import gradients_content
from s2sim.experiment.scenario.reducers import ReducerScenario, ReducerSpec
from s2sim.files import replace_file
from s2sim.provenance import content_hash, named_files, package_version
from s2sim.reducers.registry import option_string

T = TypeVar("T")

VARIABLE = "S2SIM_CACHE"
"""Names the folder of the store instead of the user's cache folder; ``off`` for no store."""

LIMIT_BYTES = 10**9
"""Least recently used entries go where the store has more."""

_SUFFIX, _HASH_BYTES = ".recording", 32


@dataclass(frozen=True, slots=True)
class RecordingStore:
    """Recordings by key in a folder, which several processes may use at once."""

    folder: Path

    def get(self, key: str) -> Any:
        """Return the value of a key; None if there is none, or a damaged one."""
        path = self.folder / f"{key}{_SUFFIX}"
        try:
            data = path.read_bytes()
            if hashlib.sha256(data[_HASH_BYTES:]).digest() != data[:_HASH_BYTES]:
                return None
            with suppress(OSError):
                os.utime(path)
            return pickle.loads(zlib.decompress(data[_HASH_BYTES:]))  # noqa: S301 # what this program wrote
        except (AttributeError, ImportError, OSError, TypeError, ValueError, pickle.UnpicklingError, zlib.error):
            return None

    def put(self, key: str, value: Any) -> None:
        """Store a value; one that cannot be pickled, or for which there is no room, is left out."""
        try:
            packed = zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), 1)
        except (AttributeError, TypeError, pickle.PicklingError):
            return
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / f"{key}{_SUFFIX}", hashlib.sha256(packed).digest() + packed)

    def entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the file of each entry, with its size and the time of its last use."""
        for path in self.folder.glob(f"*{_SUFFIX}"):
            # Another process may have removed it.
            with suppress(OSError):
                yield path, path.stat()

    def trim(self, limit_bytes: int = LIMIT_BYTES) -> int:
        """Remove least recently used entries until the others have at most so many bytes; return how many went."""
        files = sorted(self.entries(), key=lambda item: item[1].st_mtime)
        surplus = sum(found.st_size for _, found in files) - limit_bytes
        removed = 0
        for path, found in files:
            if surplus <= 0:
                break
            with suppress(OSError):
                path.unlink()
            surplus -= found.st_size
            removed += 1
        return removed


def recording_store() -> RecordingStore | None:
    """Return the store of the user; None if the environment turns it off."""
    named = os.environ.get(VARIABLE, "")
    if named.lower() == "off":
        return None
    if named:
        return RecordingStore(Path(named))
    from platformdirs import user_cache_path

    return RecordingStore(user_cache_path("s2sim") / "recordings")


def through_store(
    scenario: ReducerScenario,
    reducers: Sequence[ReducerSpec],
    what: Sequence[Any],
    compute: Callable[[Sequence[ReducerSpec]], Mapping[str, T]],
) -> dict[str, T]:
    """Return a value for each reducer by option string: from the store, else computed and stored.

    Values follow from the scenario's gradients and seed, the reducers as placed on the nodes of the ranks, and
    ``what``, JSON values with their kind first. Reducers for which ``compute`` has no value, and all if there was a
    warning, which has to be shown the next time too, are not stored.
    """
    if (store := recording_store()) is None:
        return dict(compute(reducers))
    shared = [package_version(), np.__version__, gradients_content(scenario), scenario.seed, *what]
    keys = {item.option_string: content_hash([*shared, reducer_content(item)]) for item in reducers}
    found = {name: value for name, key in keys.items() if (value := store.get(key)) is not None}
    missing = [item for item in reducers if item.option_string not in found]
    if missing:
        with hold_warnings() as warned:
            computed = compute(missing)
        if not warned:
            for name, value in computed.items():
                store.put(keys[name], value)
            store.trim()
        found |= computed
    return found


def recordings_content(scenario: ReducerScenario, ranks: int) -> list[Any]:
    """Return all that the recordings of a scenario on some ranks follow from: equal content, equal recordings."""
    tensors = () if scenario.training is None else scenario.training.profile.tensors
    layers = [[each.name, each.shape, each.sparse] for each in tensors]
    buckets = [each.tensors for each in scenario.buckets(ranks)]
    reducers = [reducer_content(item) for item in scenario.reducers_on(ranks)]
    return [gradients_content(scenario), scenario.seed, ranks, layers, buckets, reducers]


def reducer_content(item: ReducerSpec) -> list[Any]:
    """Return what a reducer computes by: options, feedback, the nodes that it was told, and files that they name."""
    reducer, text = item.reducer, option_string(item.reducer)
    placed = hashlib.sha256(pickle.dumps(reducer)).hexdigest() if reducer.placed((0,)) is not reducer else ""
    return [text, item.bare, reducer.options(), reducer.held, placed, named_files(text)]
