"""Writes compute profiles as files that load again as they were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.text_files import is_toml_path

if TYPE_CHECKING:
    from s2sim.profiles.form import Precision
    from s2sim.profiles.profile import Profile, Ready

_PS_PER_US = 10**6


def profile_text(
    profile: Profile, *, description: str, batch_source: str, memory_bound_source: str, precision: Precision = "fp32"
) -> str:
    """Return the TOML of a profile with measured times; loaded from a file of its name it is the same profile.

    Parameters
    ----------
    profile : Profile
        Every tensor is written with its shape and times, the optimizer with its time.
    description : str
        One line.
    batch_source, memory_bound_source : str
        What the mini-batch and the share of time in which the memory is busy rest on.
    precision : {"fp32", "tf32", "fp16", "bf16"}
        Of matrix products.
    """
    check_model_words(profile.model)
    stated = {
        "batch": (profile.batch, "user", batch_source),
        "memory_bound": (profile.memory_bound, "estimated", memory_bound_source),
    }
    lines = [
        "# Compute profile. backward: from when the gradient before was ready, or backward began, until this one is.",
        f"description = {_quoted(description)}",
        f"model = {_quoted(profile.model)}",
        f"gpu = {_quoted(profile.gpu)}",
        f"precision = {_quoted(precision)}",
        f"sample = {_quoted(profile.sample)}",
        f"kind = {_quoted(profile.kind)}",
        f"source = {_quoted(profile.source)}",
        "tensors = [",
        *(f"  {_tensor_line(tensor)}," for tensor in profile.tensors),
        "]",
    ]
    for name, (value, kind, source) in stated.items():
        lines += ["", f"[{name}]", f"value = {value!r}", f"kind = {_quoted(kind)}", f"source = {_quoted(source)}"]
    lines += ["", "[optimizer]", f"time = {_quoted(_time(profile.optimizer_ps))}", f"kind = {_quoted(profile.kind)}"]
    return "\n".join([*lines, f"source = {_quoted(profile.source)}", ""])


def check_model_words(model: str) -> None:
    """Refuse to call a model by what a profile's reader takes for the path of a layer table."""
    if is_toml_path(model):
        raise S2SimError(f"model {model!r} is a path: call it by a name or a few words without a slash")


def _tensor_line(tensor: Ready) -> str:
    shape = ", ".join(map(str, tensor.shape))
    times = f"forward = {_quoted(_time(tensor.forward_ps))}, backward = {_quoted(_time(tensor.backward_ps))}"
    sparse = "sparse = true, " if tensor.sparse else ""
    return f"{{ name = {_quoted(tensor.name)}, shape = [{shape}], {sparse}{times} }}"


def _quoted(text: str) -> str:
    """Return a text as TOML has it: as JSON, but that DEL is escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _time(time_ps: int) -> str:
    """Return a time to the picosecond.

    >>> _time(1_250_000), _time(3_000_000)
    ('1.25us', '3us')
    """
    whole, rest = divmod(time_ps, _PS_PER_US)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + "us"
