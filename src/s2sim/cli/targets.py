"""Files that are asked for: refused before anything long is computed for what could not be written."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from s2sim.cli.output import STDOUT, partial_of
from s2sim.errors import S2SimError

# What can be the only thing on standard output.
_OF_STDOUT = ("json", "goal")
_PICTURES = ("png", "plot")


def check_targets(**targets: str | None) -> None:
    """Refuse files that cannot be written, and two of one path; names are those of options, None stands for no file."""
    taken: dict[Path | str, str] = {}
    for name, target in targets.items():
        if target is None:
            continue
        option = f"--{name}"
        if target == STDOUT and name in _OF_STDOUT:
            place: Path | str = STDOUT
        else:
            _check(option, target)
            place = Path(target).resolve()
        if name in _PICTURES:
            from s2sim.report.figures.figure_file import check_picture

            check_picture(target)
        if place in taken:
            what = "standard output takes one thing" if place == STDOUT else f"{target} would be written twice"
            raise S2SimError(f"{taken[place]} and {option}: {what}, name another file for one of them")
        taken[place] = option


def _check(option: str, target: str) -> None:
    if target == STDOUT:
        raise S2SimError(f"{option} - would mix with what is printed: name a file")
    if not target:
        raise S2SimError(f"{option} names no file: write {option} FILE")
    path = Path(target)
    if path.is_dir():
        raise S2SimError(f"{option} {target} is a directory: name a file in it")
    if not path.parent.is_dir():
        raise S2SimError(f"{option} {target}: there is no directory {path.parent}: create it first")
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            return
    # Only trying tells: permissions, file systems that are read-only or made up by the system, names that are too long.
    trial = partial_of(path)
    try:
        with suppress(FileNotFoundError), path.open("r+b"):
            pass
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise S2SimError(f"{option} {target} cannot be written: {error.strerror}") from None
