"""Files of compute profiles: where they are, what may stand behind their name, and what stands in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from s2sim.data import data_directory
from s2sim.errors import S2SimError, problems_of, unknown_name
from s2sim.options import build, split_option_string
from s2sim.profiles.form import Precision  # noqa: TC001  (options are built from annotations at run time)
from s2sim.text_files import is_toml_path, read_toml, user_path

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import TypeAdapter

    from s2sim.profiles.form import ProfileFile

_SUFFIX = ".toml"
# Problems that one line still tells.
_MOST_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What may stand behind a profile's name, as in ``resnet-50:precision=tf32``.

    Attributes
    ----------
    precision : str or None
        Of matrix products and activations; that of the profile without one.
    efficiency : float or None
        Share of the peak that matrix products reach, of a computed profile.
    """

    precision: Precision | None = None
    efficiency: float | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """What stands in the file of a profile, and the options behind its name, as in ``text``."""

    text: str
    name: str
    file: ProfileFile
    options: Options

    @property
    def precision(self) -> Precision:
        """Precision of matrix products and activations."""
        return self.options.precision or self.file.precision


def open_profile(name_or_path: str) -> Opened:
    """Return what stands in the file of a profile, and the options behind its name."""
    name, given = split_option_string(name_or_path)
    options = build(Options, given, f"profile {name}")
    shipped = _shipped()
    if name in shipped:
        return Opened(name_or_path, name, _read(shipped[name]), options)
    if not is_toml_path(name):
        raise unknown_name("profile", name, shipped)
    path = user_path(name, S2SimError)
    return Opened(name_or_path, path.stem, _read(path), options)


def profile_names() -> list[str]:
    """Return the names of all shipped profiles."""
    return list(_shipped())


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
