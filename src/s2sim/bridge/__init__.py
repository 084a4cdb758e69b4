"""Optional: what needs PyTorch: recording traces and profiles, reducers between real processes, and in training.

``hook`` and ``HookState`` make any reducer a communication hook of DistributedDataParallel. They are imported when
first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from s2sim.errors import nearest

if TYPE_CHECKING:
    from s2sim.bridge.hooks.state import HookState, hook

__all__ = ["HookState", "hook"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 's2sim.bridge' has no attribute {name!r}{nearest(name, __all__)}")
    return getattr(import_module("s2sim.bridge.hooks.state"), name)
