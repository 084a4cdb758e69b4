"""The reason why a curve is not predicted."""

from __future__ import annotations

from s2sim.errors import S2SimError


class NotPredictedError(S2SimError):
    """Metadata or catalogue do not say enough; the text is the reason."""
