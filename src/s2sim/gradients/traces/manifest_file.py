"""Reads and writes ``manifest.json``: the one place where a trace's description is checked."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from typing import TYPE_CHECKING

from s2sim.errors import TraceError, problems_of
from s2sim.gradients.traces.manifest import SCHEMA_VERSION, Manifest, gradient_file_name
from s2sim.text_files import MOST_BYTES, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST_NAME = "manifest.json"
# Problems named in one message; a file with more is another kind of file.
_MOST_PROBLEMS = 5


def read_inside(directory: Path, name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of the regular file ``name`` inside ``directory``; `OSError` where it is something else.

    Through a link that leads out of the directory a trace that somebody sends could read other files.
    """
    path = directory / name
    if os.path.commonpath([os.path.realpath(directory), os.path.realpath(path)]) != os.path.realpath(directory):
        raise OSError(errno.EINVAL, "it is a link that leads out of the trace")
    return read_bytes(path, most_bytes)


def _first_name(names: set[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{min(names)}{more}"


def read_manifest(directory: Path) -> Manifest:
    """Return the checked manifest of the trace in ``directory``; `TraceError` names all problems in one line."""
    from pydantic import TypeAdapter, ValidationError

    path = directory / MANIFEST_NAME
    try:
        text = read_inside(directory, MANIFEST_NAME)
        content = json.loads(text)
    except FileNotFoundError:
        raise TraceError(
            f"{directory} holds no {MANIFEST_NAME}: a trace is a directory written by 's2sim trace record' or "
            "'s2sim trace import'"
        ) from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise TraceError(f"{path} is not JSON: record or copy the trace again") from None
    if not isinstance(content, dict):
        raise TraceError(f"{path} is not a JSON object: record or copy the trace again")
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        shown = repr(version) if isinstance(version, int | None) and abs(version or 0) < 10**9 else "of another kind"
        raise TraceError(f"{path} has schema_version {shown}; this s2sim reads {SCHEMA_VERSION}")
    try:
        manifest = TypeAdapter(Manifest).validate_json(text, strict=True)
    except ValidationError as error:
        problems = problems_of(error.errors(include_url=False), "manifest", _MOST_PROBLEMS)
        raise TraceError(f"{path} is not a valid manifest: {problems}") from error
    if manifest.steps * manifest.world_size != len(manifest.files):
        raise TraceError(
            f"{path} lists {len(manifest.files)} files for {manifest.steps} steps of {manifest.world_size} ranks: "
            "record or copy the trace again"
        )
    needed = {gradient_file_name(step, rank) for step in range(manifest.steps) for rank in range(manifest.world_size)}
    if missing := needed - set(manifest.files):
        raise TraceError(f"{path} lists no checksum for {_first_name(missing)}: record or copy the trace again")
    if unused := set(manifest.files) - needed:
        raise TraceError(
            f"{path} lists {_first_name(unused)}, which none of its {manifest.steps} steps and "
            f"{manifest.world_size} ranks uses: record or copy the trace again"
        )
    return manifest


def write_manifest(manifest: Manifest, directory: Path) -> None:
    """Write ``manifest`` into ``directory``, ending with a newline, keys in the order of its fields."""
    text = json.dumps(dataclasses.asdict(manifest), indent=1, allow_nan=False, ensure_ascii=False)
    (directory / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")
