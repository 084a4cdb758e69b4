"""What all answers share: a version of their JSON, and that they show as their first screen."""

from __future__ import annotations

from typing import Any, ClassVar

from s2sim.registry import Registry
from s2sim.study.json_form import JsonForm

SCHEMA_VERSION = 1
"""Of the JSON of all results; raised when a key goes or comes to mean something else, not when one is added."""

_SCREENS = "s2sim.report.tables.screens"
# Notebooks look for a method on the class, while what draws it stands above.
_VIEWS = Registry(
    "view",
    "s2sim.views",
    {
        "run as text": "s2sim.report.tables.screen:result_text",
        "run as html": "s2sim.report.tables.html:result_html",
        "collective as text": f"{_SCREENS}:collective_text",
        "collective as html": f"{_SCREENS}:collective_html",
        "flows as text": f"{_SCREENS}:flows_text",
        "flows as html": f"{_SCREENS}:flows_html",
        "regimes as text": f"{_SCREENS}:regimes_text",
        "regimes as html": f"{_SCREENS}:regimes_html",
    },
)


class ResultForm(JsonForm):
    """Gives an answer its JSON form and its first screen, which ``answers`` names."""

    __slots__ = ()
    answers: ClassVar[str]
    schema_version: ClassVar[int] = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the answer with the keys that other programs rely on, and the version of these."""
        return {"schema_version": self.schema_version, **JsonForm.to_json(self)}

    def __repr__(self) -> str:
        """Return the first screen as text of 80 columns."""
        return str(_VIEWS.get(f"{self.answers} as text")(self))

    def _repr_html_(self) -> str:
        """Return the first screen for notebooks."""
        return str(_VIEWS.get(f"{self.answers} as html")(self))
