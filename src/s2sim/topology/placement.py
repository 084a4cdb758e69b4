"""Which GPU each rank runs on."""

from __future__ import annotations

import os.path
import re
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError, unknown_name
from s2sim.text_files import read_text, user_path

if TYPE_CHECKING:
    from pathlib import Path

    from s2sim.arrays import Ints
    from s2sim.topology.kinds.layout import Dimensions

PLACEMENTS = ("linear", "round-robin", "random")

_FILE_ENDINGS = (".txt", ".csv", ".json")
# A GPU number, or a node and the number of a GPU on it; more digits than this name no GPU of any cluster.
_LINE = re.compile(r"([0-9]{1,12})(?:(?:\s*,\s*|\s+)([0-9]{1,12}))?")


def place(dims: Dimensions, placement: str, *, seed: int = 0) -> Ints:
    """Return the GPU of each rank, a permutation of the GPUs in use as an int64 array of shape (workers,).

    ``linear``: rank r on GPU r, so nodes fill in order. ``round-robin``: the same GPUs, dealt to the leaves in turn,
    inside a leaf to its nodes in turn, inside a node in order; whatever is full drops out. ``random``: the same GPUs,
    shuffled. A text with a slash, or one that ends in ``.txt``, ``.csv`` or ``.json``, is the path of a text file with
    a line a rank: ``node gpu``, ``node,gpu`` or the number of the GPU in the cluster.

    `UnknownNameError` for a placement that does not exist, `TopologyError` for a file that does not name every GPU in
    use once.
    """
    gpus = np.arange(dims.workers, dtype=np.int64)
    if placement == "linear":
        return gpus
    if placement == "round-robin":
        return _dealt(dims, gpus)
    if placement == "random":
        # Sorting raw draws, not Generator.permutation: NumPy promises that the raw stream stays what it is.
        draws = np.random.PCG64(np.random.SeedSequence([seed, *b"placement"])).random_raw(dims.workers)
        return np.argsort(draws, kind="stable").astype(np.int64)
    return _read(_path_of(placement), dims)


def _dealt(dims: Dimensions, gpus: Ints) -> Ints:
    node, local = dims.node_set.node_of_gpu, dims.node_set.local_gpu(gpus)
    leaf = node // dims.hosts_per_leaf
    # Each leaf's GPUs in the order in which it deals them, and which of its turns each one gets.
    dealt = np.lexsort((node, local, leaf))
    first_of_leaf = np.searchsorted(leaf, np.arange(dims.leaves))
    turn = np.empty_like(gpus)
    turn[dealt] = gpus - first_of_leaf[leaf[dealt]]
    return np.lexsort((leaf, turn)).astype(np.int64)


def _path_of(placement: str) -> Path:
    if "/" in placement or placement.endswith(_FILE_ENDINGS):
        return user_path(placement, TopologyError)
    # A name wins over what happens to lie in the working directory.
    if placement and os.path.lexists(placement):
        raise TopologyError(f"{placement} is a path and not a placement: give a text file as ./FILE")
    raise unknown_name("placement", placement, [*PLACEMENTS, "./FILE"])


def _read(path: Path, dims: Dimensions) -> Ints:
    """Return the GPU that each line of a placement file names; ``#`` starts a comment, empty lines do not count."""
    text = read_text(path, error=TopologyError)
    line_of_gpu: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        asked = line.partition("#")[0].strip()
        if not asked:
            continue
        gpu = _gpu_of_line(asked, f"{path}, line {number}", dims)
        if gpu in line_of_gpu:
            raise TopologyError(
                f"{path}, line {number}: {asked!r} is the GPU of line {line_of_gpu[gpu]}: a GPU runs one rank"
            )
        line_of_gpu[gpu] = number
    if len(line_of_gpu) != dims.workers:
        raise TopologyError(
            f"{path} places {len(line_of_gpu)} ranks, there are {dims.workers}: write {dims.workers} lines, one a rank"
        )
    return np.array(list(line_of_gpu), dtype=np.int64)


def _gpu_of_line(asked: str, where: str, dims: Dimensions) -> int:
    match = _LINE.fullmatch(asked)
    if match is None:
        raise TopologyError(f"{where}: {asked[:40]!r} is no place: write 'node gpu' or a GPU number, for example '3 0'")
    first, second = match.groups()
    first_gpu = dims.node_set.first_gpu
    if second is None:
        gpu = int(first)
        exists = gpu < dims.workers
    else:
        node = min(int(first), dims.nodes)
        gpu = int(first_gpu[node]) + int(second)
        exists = node < dims.nodes and gpu < first_gpu[node + 1]
    if not exists:
        last = dims.workers - first_gpu[-2]
        raise TopologyError(
            f"{where}: {asked!r} is not in use: {dims.workers} workers fill nodes in order, GPUs 0 to "
            f"{dims.workers - 1}, that is node 0 gpu 0 to node {dims.nodes - 1} gpu {last - 1}"
        )
    return gpu
