"""Times that stand in the notes of a row."""

from __future__ import annotations

import math
import re

_MOST_MS = 1e9


def noted_ms(notes: str, name: str) -> float | None:
    """Return the time that notes give under a name; None where they give none.

    >>> noted_ms("2 GPU; step_ms=12.4; norm_exchange_ms=", "step_ms"), noted_ms("norm_exchange_ms=", "norm_exchange_ms")
    (12.4, None)
    """
    found = re.search(rf"\b{name}\s*=\s*([-+.\deE]+)", notes)
    if found is None:
        return None
    try:
        value = float(found[1])
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= _MOST_MS else None
