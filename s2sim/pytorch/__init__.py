"""Optional, needs PyTorch: recording, reducers between processes, and the DistributedDataParallel hook."""

from typing import Any

from s2sim.errors import suggest_nearest
from s2sim.pytorch.hook import HookState, hook
from s2sim.pytorch.job_recorder import JobRecorder

__all__ = ["HookState", "JobRecorder", "hook"]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 's2sim.pytorch' has no attribute {name!r}{suggest_nearest(name, __all__)}")
