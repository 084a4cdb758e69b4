"""What all answers share: a version of their JSON, names that it has, and that they show as their first screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from s2sim.errors import S2SimError
from s2sim.registry import Registry
from s2sim.study.json_form import JsonForm
from s2sim.text_files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    def to_json(self) -> dict[str, Any]:
        """Return the answer with the keys that other programs rely on, and the version of these."""
        return {"schema_version": self.schema_version, **JsonForm.to_json(self)}

    @classmethod
    def load(cls, source: Path | str) -> Self:
        """Return the result that `to_json`, or ``--json``, wrote: from a path, or a text that begins with a brace.

        `S2SimError` says where that is no such result.
        """
        from s2sim.study.schema.results import load_result

        is_text = str(source).lstrip().startswith("{")
        text = str(source) if is_text else read_text(Path(source), noun="the result")
        try:
            return load_result(cls, json.loads(text))
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            origin = "the text" if is_text else source
            raise S2SimError(f"{origin} is no result of s2sim {cls.answers}: {type(error).__name__} {error}") from None

    def __repr__(self) -> str:
        """Return the first screen as text of 80 columns."""
        return str(_VIEWS.get(f"{self.answers} as text")(self))

    def _repr_html_(self) -> str:
        """Return the first screen for notebooks."""
        return str(_VIEWS.get(f"{self.answers} as html")(self))


def load_effects(result: Mapping[str, Any]) -> tuple[Effect, ...]:
    """Return what faults did from the two keys of a result that say so."""
    from s2sim.replay.faults.fault import Effect

    return tuple(map(Effect, result.get("faults", ()), result.get("fault_effects", ())))


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
