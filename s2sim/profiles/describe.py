"""What a compute profile says, as figures with units for people and for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from s2sim.profiles.profile import ComputeProfile, ProfileFile
from s2sim.units import PS_PER_S

GRADIENT_BYTES = 4
"""Of a gradient's element in float32."""

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)


def describe_profile(profile: ComputeProfile) -> dict[str, Any]:
    """Return all that a profile says: times in seconds, sizes as bytes of float32, tensors in order of readiness."""
    compute_ps = profile.forward_ps + profile.backward_ps + profile.optimizer_ps
    tensors: list[dict[str, Any]] = []
    ready_ps = sent = 0
    for tensor in profile.tensors:
        ready_ps += tensor.backward_ps
        sent += GRADIENT_BYTES * tensor.size
        tensors.append(
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "sparse": tensor.sparse,
                "bytes": GRADIENT_BYTES * tensor.size,
                "forward_s": tensor.forward_ps / PS_PER_S,
                "backward_s": tensor.backward_ps / PS_PER_S,
                "ready_s": ready_ps / PS_PER_S,
                "ready_bytes": sent,
            }
        )
    names = ("name", "model", "gpu", "precision", "batch", "sample", "parameters")
    return {
        **{name: getattr(profile, name) for name in names},
        "gradient_bytes": sent,
        **{f"{part}_s": getattr(profile, f"{part}_ps") / PS_PER_S for part in ("forward", "backward", "optimizer")},
        "compute_s": compute_ps / PS_PER_S,
        "samples_per_s": profile.batch * PS_PER_S / compute_ps if compute_ps else None,
        "memory_bound": profile.memory_bound,
        "ready": ready_after(tensors),
        "kind": profile.kind,
        "source": profile.source,
        "tensors": tensors,
    }


def ready_after(tensors: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return when in backward the first gradient, shares of all bytes, and the last gradient are ready."""
    whole = tensors[-1]["ready_bytes"]
    found = [{"share": tensors[0]["ready_bytes"] / whole, "ready_s": tensors[0]["ready_s"]}]
    for share in SHARES:
        first = next(tensor for tensor in tensors if tensor["ready_bytes"] >= share * whole)
        found.append({"share": share, "ready_s": first["ready_s"]})
    return [*found, {"share": 1.0, "ready_s": tensors[-1]["ready_s"]}]


def sourced_numbers(file: ProfileFile) -> list[dict[str, Any]]:
    """Return every number of a profile's file but the tensors' times, with its kind and source."""
    numbers: list[dict[str, Any]] = [
        {"field": field, **asdict(stated)}
        for field in ("batch", "efficiency", "forward", "memory_bound")
        if (stated := getattr(file, field)) is not None
    ]
    value, optimizer = file.optimizer.time or file.optimizer.rule, file.optimizer
    numbers.append({"field": "optimizer", "value": value, "kind": optimizer.kind, "source": optimizer.source})
    own: dict[tuple[str, str], list[str]] = {}
    for tensor in file.tensors:
        if tensor.kind is not None or tensor.source is not None:
            own.setdefault((tensor.kind or file.kind, tensor.source or file.source), []).append(tensor.name)
    for (kind, source), names in own.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        value = next(tensor.backward for tensor in file.tensors if tensor.name == names[0])
        numbers.append({"field": f"backward of {names[0]}{more}", "value": value, "kind": kind, "source": source})
    return numbers
