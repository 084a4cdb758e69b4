"""Sizes that the GPU work of all reducers is counted with, in bytes of memory traffic."""

from __future__ import annotations

VALUE_BYTES = 4
"""A float32 value."""

HALF_BYTES = 2
"""A float16 value."""

INDEX_BYTES = 4
"""A uint32 element index."""

ROW_ID_BYTES = 8
"""An int64 row number, as frameworks keep the coordinates of sparse tensors."""

GATHER_BYTES = 32
"""What reading one value at a random address moves: memory is read in sectors of 32 bytes (NVIDIA CUDA C++ Best
Practices Guide, "Coalesced Access to Global Memory"). Pessimistic where the array fits in the cache."""

SCATTER_BYTES = 64
"""What adding to one value at a random address moves: its sector is read and written back."""

SELECT_LAUNCHES = 2
"""Kernels of one stream compaction: set up, then a single pass (CUB ``DeviceSelect``; D. Merrill, M. Garland,
"Single-pass parallel prefix scan with decoupled look-back", NVIDIA NVR-2016-002)."""
