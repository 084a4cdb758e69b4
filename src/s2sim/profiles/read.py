"""From the name or file of a compute profile to the profile, on any GPU and for any mini-batch."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from s2sim.data import data_directory
from s2sim.errors import S2SimError, problems_of, unknown_name
from s2sim.gradients.extrapolation.models import load_model
from s2sim.profiles.computed import computed_profile
from s2sim.profiles.measured import measured_profile
from s2sim.profiles.rescale import on_gpu, with_batch
from s2sim.text_files import is_toml_path, read_toml, user_path
from s2sim.topology.files.hardware import load_gpu
from s2sim.units import PS_PER_S, format_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import TypeAdapter

    from s2sim.profiles.form import ProfileFile
    from s2sim.profiles.profile import Profile

_SUFFIX = ".toml"
# Problems that one line still tells.
_MOST_PROBLEMS = 3
_MOST_PS = 10**6 * PS_PER_S


def load_profile(name_or_path: str, *, gpu: str | None = None, batch: int | None = None) -> Profile:
    """Return a compute profile on a GPU and for a mini-batch.

    Parameters
    ----------
    name_or_path : str
        Name of a shipped profile, or the path of a TOML file: a text with a slash, or one that ends in ``.toml``.
    gpu : str, optional
        GPU of the hardware catalogue, or a file with one; that of the profile without one.
    batch : int, optional
        Samples of one GPU's mini-batch; those of the profile without one.

    Returns
    -------
    Profile
        A computed profile is computed for that GPU and mini-batch; a measured one is scaled to them, an estimate.

    Raises
    ------
    S2SimError
        In one line, where there is no such profile or its file is none. `UnknownNameError` names the nearest.
    """
    name, file = read_profile_file(name_or_path)
    try:
        return _checked(_profile(name, file, gpu, batch))
    except S2SimError as error:
        raise type(error)(f"profile {name_or_path}: {error}") from None


def _checked(profile: Profile) -> Profile:
    """Return a profile unless it takes longer than any iteration does, so that times overflow nowhere."""
    if profile.forward_ps + profile.backward_ps + profile.optimizer_ps > _MOST_PS:
        raise S2SimError(
            f"a mini-batch of {profile.batch} computes for more than {format_seconds(_MOST_PS / PS_PER_S)} on "
            f"{profile.gpu}: ask for a smaller one"
        )
    return profile


def _profile(name: str, file: ProfileFile, gpu: str | None, batch: int | None) -> Profile:
    if batch is not None and batch < 1:
        raise S2SimError(f"a mini-batch of {batch} is none: ask for at least 1")
    if file.efficiency is not None:
        return computed_profile(
            load_model(file.model),
            load_gpu(gpu or file.gpu),
            batch or int(file.batch.value),
            float(file.efficiency.value),
            precision=file.precision,
            rule=file.optimizer.rule or "sgd-momentum",
            name=name,
        )
    profile = measured_profile(name, file)
    if batch is not None:
        profile = with_batch(profile, batch)
    return profile if gpu is None else on_gpu(profile, load_gpu(file.gpu), load_gpu(gpu), file.precision)


def read_profile_file(name_or_path: str) -> tuple[str, ProfileFile]:
    """Return the name of a profile and what stands in its file."""
    shipped = _shipped()
    if name_or_path in shipped:
        return name_or_path, _read(shipped[name_or_path])
    if not is_toml_path(name_or_path):
        raise unknown_name("profile", name_or_path, shipped)
    path = user_path(name_or_path, S2SimError)
    return path.stem, _read(path)


def profile_names() -> list[str]:
    """Return the names of all shipped profiles."""
    return list(_shipped())


def list_profiles() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary with units, source) of every shipped profile."""
    rows = []
    for name, path in _shipped().items():
        file = _read(path)
        profile = _profile(name, file, None, None)
        times = ", ".join(
            f"{what} {format_seconds(time_ps / PS_PER_S)}"
            for what, time_ps in (("forward", profile.forward_ps), ("backward", profile.backward_ps))
        )
        on = f"{profile.gpu}, {profile.batch} x {profile.sample}"
        rows.append((name, f"{file.description}; {on}: {times}; {file.kind}", file.source))
    return rows


def _shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(data_directory("profiles").glob(f"*{_SUFFIX}"))}


@cache
def _form() -> TypeAdapter[ProfileFile]:
    from pydantic import TypeAdapter

    from s2sim.profiles.form import ProfileFile

    return TypeAdapter(ProfileFile)


def _read(path: Path) -> ProfileFile:
    from pydantic import ValidationError

    content = read_toml(path, S2SimError)
    if not content:
        raise S2SimError(f"{path} is empty: a profile says model, gpu, batch and times (s2sim profile show --help)")
    try:
        # By way of JSON, whose strict reading takes lists for tuples and nothing else for numbers.
        return _form().validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        found = problems_of(error.errors(include_url=False), "profile", _MOST_PROBLEMS)
        raise S2SimError(f"{path} is not a compute profile: {found}") from None
