"""One comparison of reducers, as parts of papers need it: rows by option string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.compare.run import run

if TYPE_CHECKING:
    from s2sim.study.measuring.result import Row
    from s2sim.study.progress import Progress
    from s2sim.study.spec import RunSpec


def rows_of(spec: RunSpec, progress: Progress) -> dict[str, Row]:
    """Return the row of each reducer of a run with one number of workers, without break-even and other libraries."""
    result = run(spec=spec, progress=progress, break_even=False, thorough=False)
    if result.interrupted:
        raise KeyboardInterrupt
    return {row.reducer: row for row in result.results}


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds.

    >>> milliseconds(0.0742)
    '74.2 ms'
    """
    return f"{1e3 * seconds:.1f} ms"
