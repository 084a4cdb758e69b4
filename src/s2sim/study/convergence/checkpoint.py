"""Trainings on disk, to go on from: one file a reducer and seed, replaced only as a whole."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from pathlib import Path

_STRUCTURE, _ARRAY, _SCALAR = "structure", "array", "scalar"
_VERSION = 1


def checkpoint_path(folder: Path, reducer: str, seed: int) -> Path:
    """Return the file of one reducer with one seed."""
    name = "".join(letter if letter.isalnum() or letter in "-_=." else "-" for letter in reducer)[:60]
    digest = hashlib.sha256(reducer.encode()).hexdigest()[:8]
    return folder / f"{name}-{digest}-seed{seed}.npz"


def save(path: Path, content: dict[str, Any], key: Any) -> None:
    """Write arrays and numbers in dicts and lists; ``key`` says of what training they are."""
    arrays: list[Any] = []
    structure = json.dumps({"version": _VERSION, "key": key, "content": _without_arrays(content, arrays)})
    partial = path.with_name(f".{path.name}.partial")
    try:
        try:
            with partial.open("wb") as file:
                named = {f"{_ARRAY}{number}": array for number, array in enumerate(arrays)}
                np.savez(file, **{_STRUCTURE: np.array(structure), **named})
            partial.replace(path)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise S2SimError(
            f"the checkpoint {path} cannot be written: {error.strerror or error}; free space or give another --out, "
            "and go on with --resume"
        ) from error


def load(path: Path, key: Any) -> dict[str, Any] | None:
    """Return what was saved; None where there is no file. `S2SimError` for what is of another training, or damaged."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            structure = json.loads(str(file[_STRUCTURE]))
            version, of = structure["version"], dict(structure["key"])
            content: dict[str, Any] = _with_arrays(structure["content"], file) if version == _VERSION else {}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, AttributeError) as error:
        raise S2SimError(
            f"the checkpoint {path} cannot be read ({type(error).__name__}): delete it, and --resume trains this one "
            "anew"
        ) from error
    if version != _VERSION:
        raise S2SimError(f"the checkpoint {path} is of another version of s2sim: train anew in another --out")
    wanted = json.loads(json.dumps(key))
    if of != wanted:
        other = sorted(name for name in {*of, *wanted} if of.get(name) != wanted.get(name))
        raise S2SimError(
            f"the checkpoint {path} is of a training with another {', '.join(other)}: resume with the options that it "
            "was started with, or train in another --out"
        )
    return content


def _without_arrays(value: Any, arrays: list[Any]) -> Any:
    """Return a value as JSON has it, its arrays by their numbers."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, np.generic):
        # Its type says in which precision the next step computes.
        arrays.append(np.asarray(value))
        return {_SCALAR: len(arrays) - 1}
    if isinstance(value, dict):
        # Keys may be numbers.
        return {"items": [[key, _without_arrays(item, arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_without_arrays(item, arrays) for item in value]
    return value


def _with_arrays(value: Any, file: Any) -> Any:
    if isinstance(value, list):
        return [_with_arrays(item, file) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return file[f"{_ARRAY}{value[_ARRAY]}"]
    if _SCALAR in value:
        return file[f"{_ARRAY}{value[_SCALAR]}"][()]
    return {key: _with_arrays(item, file) for key, item in value["items"]}
