"""What all answers share: a version of their JSON, names that it has, and that they show as their first screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from s2sim.registry import Registry
from s2sim.study.json_form import JsonForm

if TYPE_CHECKING:
    from s2sim.replay.faults.fault import Effect

SCHEMA_VERSION = 1
"""Of the JSON of all results; raised when a key goes or comes to mean something else, not when one is added."""

_SCREENS = "s2sim.report.tables.screens"
_SCREENED = ("against", "calibrate", "collective", "flows", "iterations", "paper", "regimes", "train", "validate")
# Notebooks look for a method on the class, while what draws it stands above.
_VIEWS = Registry(
    "view",
    "s2sim.views",
    {
        "run as text": "s2sim.report.tables.screen:result_text",
        "run as html": "s2sim.report.tables.html:result_html",
        **{f"{answer} as text": f"{_SCREENS}:screen_text" for answer in _SCREENED},
        **{f"{answer} as html": f"{_SCREENS}:screen_html" for answer in _SCREENED},
    },
)


class ResultForm(JsonForm):
    """Gives an answer its JSON form and its first screen, which ``answers`` names."""

    __slots__ = ()
    answers: ClassVar[str]
    schema_version: ClassVar[int] = SCHEMA_VERSION
    headline: str

    @property
    def cluster(self) -> str:
        """``headline``, as JSON calls it."""
        return self.headline

    def to_json(self) -> dict[str, Any]:
        """Return the answer with the keys that other programs rely on, and the version of these."""
        return {"schema_version": self.schema_version, **JsonForm.to_json(self)}

    def __repr__(self) -> str:
        """Return the first screen as text of 80 columns."""
        return str(_VIEWS.get(f"{self.answers} as text")(self))

    def _repr_html_(self) -> str:
        """Return the first screen for notebooks."""
        return str(_VIEWS.get(f"{self.answers} as html")(self))


class FaultedForm(ResultForm):
    """An answer that says what ``effects`` faults had."""

    __slots__ = ()
    effects: tuple[Effect, ...]

    @property
    def faults(self) -> list[str]:
        """Option strings of the faults, as in JSON."""
        return [effect.fault for effect in self.effects]

    @property
    def fault_effects(self) -> list[str]:
        """What each of them did, in words, as in JSON."""
        return [effect.did for effect in self.effects]
