"""From the name or file of a compute profile to the profile, on any GPU and for any mini-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import S2SimError, UnknownNameError
from s2sim.gradients.extrapolation.models import load_model
from s2sim.profiles.computed import computed_profile
from s2sim.profiles.measured import measured_profile
from s2sim.profiles.opened import Opened, Options, open_profile, profile_names
from s2sim.profiles.precision import reached
from s2sim.profiles.rescale import on_gpu, with_batch
from s2sim.topology.files.hardware import load_gpu
from s2sim.units import PS_PER_S, format_seconds

if TYPE_CHECKING:
    from s2sim.profiles.profile import Profile

_MOST_PS = 10**6 * PS_PER_S


def load_profile(name_or_path: str, *, gpu: str | None = None, batch: int | None = None) -> Profile:
    """Return a compute profile on a GPU and for a mini-batch.

    Parameters
    ----------
    name_or_path : str
        Name of a shipped profile, or the path of a TOML file: a text with a slash, or one that ends in ``.toml``.
        Behind it may stand ``:precision=fp32|tf32|fp16|bf16`` and, of a computed profile, ``:efficiency=0.4``.
    gpu : str, optional
        GPU of the hardware catalogue, or a file with one; that of the profile without one.
    batch : int, optional
        Samples of one GPU's mini-batch; those of the profile without one.

    Returns
    -------
    Profile
        A computed profile is computed for what is asked; a measured one is scaled to it, and then an estimate.

    Raises
    ------
    S2SimError
        In one line, where there is no such profile or its file is none. `UnknownNameError` names the nearest.
    """
    opened, options = open_profile(name_or_path)
    try:
        return _checked(_profile(opened, options, gpu, batch))
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


def _profile(opened: Opened, options: Options, gpu: str | None, batch: int | None) -> Profile:
    file = opened.file
    if batch is not None and batch < 1:
        raise S2SimError(f"a mini-batch of {batch} is none: ask for at least 1")
    precision = options.precision or file.precision
    if file.efficiency is not None:
        stated = float(file.efficiency.value) * reached(precision, file.precision)
        return computed_profile(
            load_model(file.model),
            load_gpu(gpu or file.gpu),
            batch or int(file.batch.value),
            stated if options.efficiency is None else options.efficiency,
            precision=precision,
            rule=file.optimizer.rule or "sgd-momentum",
            name=opened.name,
        )
    if options.efficiency is not None:
        raise S2SimError("it is measured, so that an efficiency changes nothing: leave it out")
    profile = measured_profile(opened.name, file)
    if batch is not None:
        profile = with_batch(profile, batch)
    if gpu is None and precision == file.precision:
        return profile
    try:
        here = load_gpu(file.gpu)
    except UnknownNameError:
        raise S2SimError(
            f"it was measured on {file.gpu}, which is no GPU of the catalogue, so that its times cannot be carried to "
            "another: record it on the GPU that you ask about, or let its gpu name a TOML file with one"
        ) from None
    return on_gpu(profile, (here, file.precision), (here if gpu is None else load_gpu(gpu), precision))


def list_profiles() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary with units, source) of every shipped profile."""
    rows = []
    for name in profile_names():
        opened, options = open_profile(name)
        file, profile = opened.file, _profile(opened, options, None, None)
        times = ", ".join(
            f"{what} {format_seconds(time_ps / PS_PER_S)}"
            for what, time_ps in (("forward", profile.forward_ps), ("backward", profile.backward_ps))
        )
        on = f"{profile.gpu}, {profile.batch} x {profile.sample}"
        rows.append((name, f"{file.description}; {on}: {times}; {file.kind}", file.source))
    return rows
