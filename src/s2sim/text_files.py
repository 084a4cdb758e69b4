"""Text files of the user: where they are, one reader, one message for those that cannot be read."""

from __future__ import annotations

from pathlib import Path

from s2sim.errors import S2SimError


def user_path(text: str, error: type[S2SimError]) -> Path:
    """Return the path that a person wrote, ``~`` being a home directory; ``error`` is raised where there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError as found:
        raise error(f"there is no file {text}: {found}") from found


def read_text(path: Path, *, noun: str = "", error: type[S2SimError] = S2SimError) -> str:
    """Return the text of a UTF-8 file, with or without a byte-order mark.

    Parameters
    ----------
    path : Path
        The file.
    noun : str
        For the message, such as ``"the spec"``; empty for none.
    error : type
        Raised where the file is missing, is no file, or is not text.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as found:
        reason = getattr(found, "strerror", None) or "it is not text"
        raise error(f"cannot read {noun}{' ' * bool(noun)}{path}: {reason}") from None
