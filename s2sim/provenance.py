"""The run record: the inputs of a result, to reproduce it."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import s2sim
from s2sim.files import data_directory

_PACKAGES = ("numpy", "scipy", "simpy", "safetensors", "pydantic")


def content_hash(value: Any) -> str:
    """Return the SHA-256 of ``value`` as canonical JSON.

    >>> content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@lru_cache(maxsize=1)
def package_version() -> str:
    """Return the hash of the program and its data, but for gradients, of which the hashes in manifests count."""
    hashed = hashlib.sha256(s2sim.__version__.encode())
    folders = [Path(s2sim.__file__).parent, *map(data_directory, ("topologies", "libraries", "profiles", "models"))]
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".toml")):
            hashed.update(path.read_bytes())
    for path in sorted(data_directory("traces").glob("*/manifest.json")):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def run_record(*, spec: Any, inputs: dict[str, Any], measured: list[str], assumed: list[str]) -> dict[str, Any]:
    """Return the record of a result: its inputs with origin and hash, and which figures are measured or modelled."""
    return {
        "s2sim": s2sim.__version__,
        "spec_sha256": content_hash(spec),
        "inputs": inputs,
        "measured": measured,
        "assumed": assumed,
        "environment": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            **{package: _version(package) for package in _PACKAGES},
            "kernels": f"numba {_version('numba')}" if find_spec("numba") else "numpy",
        },
    }
