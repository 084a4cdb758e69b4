"""Functions that take the fields of a spec by name, and tell whoever gets a name wrong the right one."""

from __future__ import annotations

from dataclasses import fields
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from s2sim.errors import OptionError, nearest
from s2sim.study.spec_options import options_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.study.cluster_spec import ClusterSpec

P = ParamSpec("P")
R = TypeVar("R")


def takes_fields_of(spec: type[ClusterSpec]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for functions whose other keywords are fields of ``spec``.

    What comes of it shows these in its signature and documentation, raises `OptionError` for a keyword that is neither,
    naming the nearest, and for arguments that are missing or too many.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name, bound = f"s2sim.{function.__name__}", signature(function)
        own = [each.name for each in bound.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        known = dict.fromkeys([*own, *(field.name for field in fields(spec))])

        @wraps(function)
        def checked(*arguments: P.args, **named: P.kwargs) -> R:
            for wrong in named.keys() - known.keys():
                raise OptionError(f"{name} takes no {wrong!r}{nearest(wrong, known)}")
            try:
                bound.bind(*arguments, **named)
            except TypeError as error:
                raise OptionError(f"{name}: {error}; see help({name})") from None
            return function(*arguments, **named)

        others = {name: each for name, each in options_of(spec).items() if name not in own}
        keywords = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for name, (field, _) in others.items()
        ]
        checked.__dict__["__signature__"] = bound.replace(
            parameters=[*(bound.parameters[each] for each in own), *keywords]
        )
        texts = [f"    {name} : {field.type}\n        {option.text}" for name, (field, option) in others.items()]
        checked.__doc__ = "\n".join(
            [f"{(function.__doc__ or '').rstrip()}\n", "    Other Parameters", "    ----------------", *texts, ""]
        )
        return checked

    return decorate
