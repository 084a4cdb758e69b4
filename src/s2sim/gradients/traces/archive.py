"""Archives that expand to more than their size promises."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import ZipFile

from s2sim.errors import TraceError
from s2sim.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

# What an archive may expand to in bytes, or in times its own size if that is more.
_ROOM_BYTES = 2**31
_MOST_TIMES = 20


def refuse_bomb(path: Path) -> None:
    """Refuse a small archive that would fill the memory; `zipfile.BadZipFile` for what is no archive."""
    with ZipFile(path) as archive:
        # No member is read beyond the size that is told here.
        expanded = sum(member.file_size for member in archive.infolist())
    if expanded > max(_ROOM_BYTES, _MOST_TIMES * path.stat().st_size):
        raise TraceError(f"{path} expands to {format_bytes(expanded)}: save it without compression")
