"""Reads the tensors that ``torch.save`` wrote, and nothing else: no code in the file is executed."""

from __future__ import annotations

import warnings
import zipfile
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from s2sim.codecs.bfloat16 import BFLOAT16
from s2sim.errors import TraceError
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.traces.archive import refuse_bomb

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from s2sim.gradients.gradient import Layer

# Before, a file could run code even where only tensors were asked for (CVE-2025-32434).
_OLDEST = (2, 6)
_MOST_ROWS = 2**31
_SAVE = "save a dictionary of layer name to gradient, or one tensor"


def read_tensors(path: Path, single: str) -> dict[str, Layer]:
    """Return the tensors of a file as arrays of their own type; one alone gets the name ``single``.

    A tensor that is sparse in its rows becomes rows + values. Needs the extra ``torch``; `TraceError` if it is missing,
    or the file holds anything but tensors that it holds in full.
    """
    try:
        import torch
    except ImportError:
        raise TraceError(
            f"{path} is read by PyTorch: pip install 's2sim[torch]', or save .npz or .safetensors"
        ) from None
    if tuple(map(int, torch.__version__.split(".")[:2])) < _OLDEST:
        raise TraceError(f"{path} could run code in PyTorch {torch.__version__}: pip install --upgrade torch")
    size = path.stat().st_size
    # What torch.save wrote before 1.6, and plain pickles, allocate what they claim before it is read.
    if not zipfile.is_zipfile(path):
        raise TraceError(f"{path} is empty, truncated, damaged or not written by torch.save: save it again")
    refuse_bomb(path)
    try:
        loaded = _load(path)
    except UnpicklingError:
        # Its own message tells how to run the code all the same.
        raise TraceError(
            f"{path} holds something else than tensors, which could run code, and is not loaded: {_SAVE}"
        ) from None
    tensors = {single: loaded} if isinstance(loaded, torch.Tensor) else loaded
    if not isinstance(tensors, dict):
        raise TraceError(f"{path} holds a {type(loaded).__name__}: {_SAVE}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise TraceError(f"{path}: {name!r} is of type {type(tensor).__name__}: {_SAVE}")
    return {name: _to_layer(tensor, f"{path}: layer {name!r}", size) for name, tensor in tensors.items()}


def _load(path: Path) -> Any:
    """Return what the file holds, if that is tensors and plain containers, with the indices of sparse ones checked."""
    import torch

    with warnings.catch_warnings():
        # Some kinds of tensors warn that PyTorch may change them; what is none of ours is refused later.
        warnings.simplefilter("ignore")
        checked: Any = torch.sparse.check_sparse_tensor_invariants  # has no types of its own
        with checked():
            return torch.load(path, map_location="cpu", weights_only=True)


def _to_layer(tensor: Any, label: str, file_bytes: int) -> Layer:
    """Return a tensor as NumPy has it; ``label`` names it in errors."""
    import torch

    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise TraceError(f"{label} has the type {tensor.dtype}; gradients are float16, bfloat16, 32 or 64")
    if tensor.is_nested or tensor.device.type != "cpu" or tensor.layout not in (torch.strided, torch.sparse_coo):
        raise TraceError(f"{label} is no plain tensor and no sparse_coo one: save it with .to_dense().cpu()")
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_coo:
        if tensor.sparse_dim() != 1 or tensor.shape[0] >= _MOST_ROWS:
            raise TraceError(f"{label} is sparse in more than its rows, or has too many: save it with .to_dense()")
        tensor = tensor.coalesce()
        values = _to_array(tensor.values(), label, file_bytes)
        return RowSparse(tensor.indices()[0].numpy(), values, tuple(tensor.shape))
    return _to_array(tensor, label, file_bytes)


def _to_array(tensor: Any, label: str, file_bytes: int) -> NDArray[Any]:
    import torch

    # An expanded tensor of a few bytes may claim more elements than there is memory.
    if tensor.numel() * tensor.element_size() > file_bytes:
        raise TraceError(f"{label} claims more elements than the file holds: save it with .contiguous()")
    if tensor.dtype == torch.bfloat16:
        bits: NDArray[Any] = tensor.contiguous().view(torch.int16).numpy()
        return bits.view(BFLOAT16)
    array: NDArray[Any] = tensor.numpy()
    return array
