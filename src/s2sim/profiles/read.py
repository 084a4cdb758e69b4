"""From the name or file of a compute profile to the profile, on any GPU and for any mini-batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError, UnknownNameError
from s2sim.gradients.extrapolation.models import load_model
from s2sim.profiles.computed import computed_profile
from s2sim.profiles.measured import measured_profile
from s2sim.profiles.opened import Opened, open_profile, profile_names
from s2sim.profiles.precision import reached
from s2sim.profiles.rescale import on_gpu, with_batch
from s2sim.topology.files.hardware import load_gpu
from s2sim.units import PS_PER_S, format_seconds

if TYPE_CHECKING:
    from s2sim.gradients.extrapolation.models import Model
    from s2sim.profiles.profile import Profile
    from s2sim.topology.files.hardware import Gpu

_MOST_PS = 10**6 * PS_PER_S


@dataclass(frozen=True)
class ProfileSource:
    """The file of a compute profile with the layer table and the GPU that it names, each read once."""

    opened: Opened

    @cached_property
    def model(self) -> Model:
        """The layer table of a computed profile."""
        return load_model(self.opened.file.model)

    @cached_property
    def gpu(self) -> Gpu:
        """What the profile was measured on, or is computed for unless another is given."""
        return load_gpu(self.opened.file.gpu)

    @cached_property
    def as_measured(self) -> Profile:
        """A measured profile as it stands in the file."""
        file = self.opened.file
        return measured_profile(self.opened.name, file, None if file.optimizer.rule is None else self.gpu)

    def on(self, gpu: Gpu | None = None, batch: int | None = None) -> Profile:
        """Return the profile on a GPU and for a mini-batch, those of the file where None is given.

        A computed profile is computed for what is asked; a measured one is scaled to it, and then an estimate.
        """
        try:
            return _checked(self._on(gpu, batch))
        except S2SimError as error:
            raise type(error)(f"profile {self.opened.text}: {error}") from None

    def _on(self, gpu: Gpu | None, batch: int | None) -> Profile:
        opened, file, options, precision = self.opened, self.opened.file, self.opened.options, self.opened.precision
        if batch is not None and batch < 1:
            raise S2SimError(f"a mini-batch of {batch} is none: ask for at least 1")
        if file.efficiency is not None:
            stated = float(file.efficiency.value) * reached(precision, file.precision)
            return computed_profile(
                self.model,
                gpu or self.gpu,
                batch or int(file.batch.value),
                stated if options.efficiency is None else options.efficiency,
                precision=precision,
                rule=file.optimizer.rule or "sgd-momentum",
                name=opened.name,
            )
        if options.efficiency is not None:
            raise S2SimError("it is measured, so that an efficiency changes nothing: leave it out")
        profile = self.as_measured if batch is None else with_batch(self.as_measured, batch)
        if gpu is None and precision == file.precision:
            return profile
        try:
            here = self.gpu
        except UnknownNameError:
            raise S2SimError(
                f"it was measured on {file.gpu}, which is no GPU of the catalogue, so that its times cannot be carried "
                "to another: record it on the GPU that you ask about, or let its gpu name a TOML file with one"
            ) from None
        return on_gpu(profile, (here, file.precision), (gpu or here, precision))


def read_profile(name_or_path: str) -> ProfileSource:
    """Return what a shipped profile, or a file of its form, says of any GPU and mini-batch; see `load_profile`."""
    return ProfileSource(open_profile(name_or_path))


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
    try:
        asked = None if gpu is None else load_gpu(gpu)
    except S2SimError as error:
        raise type(error)(f"profile {name_or_path}: {error}") from None
    return read_profile(name_or_path).on(asked, batch)


def _checked(profile: Profile) -> Profile:
    """Return a profile unless it takes longer than any iteration does, so that times overflow nowhere."""
    if profile.forward_ps + profile.backward_ps + profile.optimizer_ps > _MOST_PS:
        raise S2SimError(
            f"a mini-batch of {profile.batch} computes for more than {format_seconds(_MOST_PS / PS_PER_S)} on "
            f"{profile.gpu}: ask for a smaller one"
        )
    return profile


def list_profiles() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary with units, source) of every shipped profile."""
    rows = []
    for name in profile_names():
        source = read_profile(name)
        file, profile = source.opened.file, source.on()
        times = ", ".join(
            f"{what} {format_seconds(time_ps / PS_PER_S)}"
            for what, time_ps in (("forward", profile.forward_ps), ("backward", profile.backward_ps))
        )
        on = f"{profile.gpu}, {profile.batch} x {profile.sample}"
        rows.append((name, f"{file.description}; {on}: {times}; {file.kind}", file.source))
    return rows
