"""Whose gradients a result is about: where they come from, how large they are, and how sparse."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.units import format_bytes, format_count
from s2sim.words import number_of


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of a run as it reduces them.

    Attributes
    ----------
    trace, model, kind : str
        Name of the trace, one line on the model that it was taken from, and whether it is ``recorded``, ``imported`` or
        ``synthetic``.
    toy : bool
        Whether those of a small model stand for those of the one that the reader trains.
    recorded_ranks, recorded_steps, recorded_parameters : int
        Extent of the trace; of a synthetic one what is drawn.
    parameters, bytes : int
        Of one rank's dense gradient.
    dtype : {"fp32", "bf16"}
        Type that training holds it in.
    to_model : str or None
        Model to whose layers sizes were scaled, where one was asked for.
    drawn_ranks : int
        Ranks beyond the recorded ones, drawn by the law fitted to these.
    density : float
        Share of the elements that one rank holds: those of stored rows, and of dense layers those that are not zero;
        mean over ranks and steps.
    row_density : float or None
        Share of the rows of row-sparse layers that one rank holds; None where there is no such layer.
    """

    trace: str
    model: str
    kind: str
    toy: bool
    recorded_ranks: int
    recorded_steps: int
    recorded_parameters: int
    parameters: int
    bytes: int
    dtype: str
    to_model: str | None
    drawn_ranks: int
    density: float
    row_density: float | None

    @property
    def scaled(self) -> bool:
        """Whether sizes are others than those of the trace."""
        return self.to_model is not None or self.parameters != self.recorded_parameters

    def sentence(self) -> str:
        """Return all of it in one line for people."""
        whose = "Toy gradients" if self.toy else "Gradients"
        extent = f"{format_count(self.recorded_parameters)} parameters"
        if self.kind != "synthetic":
            extent += f", {number_of(self.recorded_ranks, 'rank')} {self.kind}"
        parts = [f"{whose}: {self.trace} ({self.model}; {extent})"]
        size = f"{format_bytes(self.bytes)} a rank{'' if self.dtype == 'fp32' else f' in {self.dtype}'}"
        if self.scaled:
            model = "" if self.to_model is None else f" of {self.to_model}"
            size = f"scaled to {format_count(self.parameters)} parameters{model}, {size}"
        parts.append(size)
        if self.drawn_ranks:
            parts.append(f"{number_of(self.drawn_ranks, 'rank')} more drawn by a law")
        held = f"a rank holds {_percent(self.density)} of the elements"
        if self.row_density is not None:
            held += f", {_percent(self.row_density)} of the rows of its tables"
        return "; ".join([*parts, held]) + "."


def _percent(share: float) -> str:
    """Return a share for reading, "all" only where nothing is missing.

    >>> _percent(0.03451), _percent(0.9999), _percent(1.0)
    ('3.5 %', '99.99 %', 'all')
    """
    if share == 1:
        return "all"
    return f"{100 * share:.{2 if share < 0.99 else 4}g} %"
