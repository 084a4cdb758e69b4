"""The run record: the inputs of a result, to reproduce it; and the cores and memory of this machine."""

import hashlib
import json
import os
import platform
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISREG
from typing import Any

import s2sim
from s2sim.files import data_directory

# Suffixes of code and of tables that decide what a run answers.
_HASHED = (".py", ".toml", ".csv")


def content_hash(value: Any) -> str:
    """Return the SHA-256 of ``value`` as canonical JSON.

    >>> content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@lru_cache(maxsize=1)
def package_version() -> str:
    """Return the hash of the program, its data and its plug-ins; of gradients, the hashes in manifests count."""
    hashed = hashlib.sha256(s2sim.__version__.encode())
    folders = [Path(s2sim.__file__).parent, *map(data_directory, ("topologies", "libraries", "profiles", "models"))]
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.suffix in _HASHED):
            hashed.update(path.read_bytes())
    for path in [*sorted(data_directory("traces").glob("*/manifest.json")), *_plugin_files()]:
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def _plugin_files() -> Iterator[Path]:
    """Yield the code and the tables of each installed package that adds to s2sim."""
    points = [point for found in distributions() for point in found.entry_points if point.group.startswith("s2sim.")]
    for package in sorted({point.module.partition(".")[0] for point in points} - {s2sim.__name__}):
        found = find_spec(package)
        for place in found.submodule_search_locations or () if found else ():
            yield from sorted(path for path in Path(place).rglob("*") if path.suffix in _HASHED)
        if found and found.origin and not found.submodule_search_locations:
            yield Path(found.origin)


def named_files(value: Any, folder: Path = Path(), *, follow: bool = True) -> dict[str, str]:
    """Return the hashes, by path, of files named in a JSON value, in options too; of TOML also of what it names."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return {path: found for item in value for path, found in named_files(item, folder, follow=follow).items()}
    names = dict.fromkeys((value, *re.split("[=:,;]", value))) if isinstance(value, str) else ()
    return {path: found for name in names for path, found in _file_hashes(name, folder, follow).items()}


def _file_hashes(name: str, folder: Path, follow: bool) -> dict[str, str]:
    hashes: dict[str, str] = {}
    # A folder has a manifest where it is a trace, and a job where it is that of a recorded job.
    for file in (name, f"{name}/manifest.json", f"{name}/job.json") if name else ():
        with suppress(OSError, ValueError, RuntimeError):
            path = folder / Path(file).expanduser()
            found = path.stat()
            if S_ISREG(found.st_mode):
                named = named_files(_toml(path), path.parent, follow=False) if follow and path.suffix == ".toml" else {}
                hashes |= {str(folder / file): _hash_of(path, found.st_mtime_ns, found.st_size), **named}
    return hashes


@lru_cache(maxsize=4096)
def _hash_of(path: Path, _changed_ns: int, _size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except ValueError:
        return {}


@lru_cache(maxsize=16)
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def run_record(
    *, spec: Any, inputs: dict[str, Any], named: Any = None, measured: list[str], assumed: list[str]
) -> dict[str, Any]:
    """Return the record of a result: inputs with origin and hash, files ``named`` in JSON, and what is measured."""
    return {
        "s2sim": s2sim.__version__,
        "spec_sha256": content_hash(spec),
        "inputs": {**inputs, "files": named_files(named)},
        "measured": measured,
        "assumed": assumed,
        "environment": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            **{package: _version(package) for package in ("numpy", "scipy", "simpy", "safetensors", "pydantic")},
            "kernels": f"numba {_version('numba')}" if find_spec("numba") else "numpy",
        },
    }


_CGROUP_FILES = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int | None:
    """Return the memory limit of this process, or None if it is not known."""
    sizes: list[int] = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        # The word "max" stands for none.
        sizes.append(int(_CGROUP_FILES.read_text(encoding="ascii")))
    return min(sizes, default=None)


def free_memory_bytes() -> int | None:
    """Return the memory that this process can still have, or None if it is not known."""
    limit = memory_bytes()
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
        return free if limit is None else min(free, limit)
    return limit


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
