"""What a row has that the model lacks: as much as it tells of why a prediction is off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.study.validate.iterations.result import IterationError
    from s2sim.study.validate.iterations.row import IterationRow

# Errors below this are what models of this kind leave anyway.
_OFF = 0.1
# Of the whole: a first message of few bytes that takes more than this waits.
_WAITS = 0.02
# Of what is missing: a part of about that size explains it.
_LEAST_SHARE, _MOST_SHARE = 0.5, 2


def likely_why(row: IterationRow, found: IterationError, waited_ms: float = 0.0) -> str | None:
    """Return why an iteration is predicted wrongly, as far as its row tells; None where it is not.

    ``waited_ms`` is what a message of few bytes took in rows of the same set-up.
    """
    error = found.log_error
    if error is None or abs(error) < _OFF:
        return None
    if found.reason is not None:
        return found.reason
    first_ms = row.first_message_ms or 0.0
    if error < 0 and first_ms > _WAITS * row.iteration_ms:
        return f"{first_ms:.0f} ms of it are a message of few bytes: ranks wait for slower ones"
    if error < 0 and waited_ms > _WAITS * row.iteration_ms:
        return f"a message of few bytes takes up to {waited_ms:.0f} ms in this set-up: ranks wait for slower ones"
    if row.computing_ms is None:
        return "its row does not say what it computes, and that of the model's profile was taken"
    if found.codec_s is not None and found.measured_codec_s:
        missed_s = found.measured_codec_s - found.codec_s
        whole_s = (found.measured_iteration_s or 0.0) - (found.iteration_s or 0.0)
        if whole_s and _LEAST_SHARE < missed_s / whole_s < _MOST_SHARE:
            return "its codec starts more kernels, or passes over more memory, than was counted"
    communication = found.communication_log_error
    if communication is not None and abs(communication) > abs(error):
        how = "slower" if communication < 0 else "faster"
        return f"its network or host memory is {how} than those of its class"
    if row.nodes > 1 and error < 0 and row.overlap_kind == "wfbp":
        return "each tensor starts later than the model has it: frameworks agree on it among ranks first"
    return f"it overlaps {'less' if error < 0 else 'more'} than its discipline and compute allow"
