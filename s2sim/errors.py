"""One root for every mistake a user can make; the command line prints its text in one line and exits with 2."""

import difflib
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

_MOST_LETTERS = 2_000


class S2SimError(ValueError):
    """Something that was asked for cannot be done; the text says what was asked, what was found, what to do.

    Of a text that quotes thousands of letters of a damaged file, the middle is left out.
    """

    def __str__(self) -> str:
        text, half = super().__str__(), _MOST_LETTERS // 2
        return text if len(text) <= _MOST_LETTERS else f"{text[:half]} ... {text[-half:]}"


class UnitError(S2SimError):
    """A quantity without a unit, or with one that does not fit."""


class UnknownNameError(S2SimError):
    """A name that nothing answers to."""


class OptionError(S2SimError):
    """An option that does not exist, has a bad value, or would change nothing."""


class CodecError(S2SimError):
    """Bytes that are not a payload of this codec."""


class TraceError(S2SimError):
    """A gradient trace that is missing, damaged or does not fit what was asked."""


class TopologyError(S2SimError):
    """A cluster description that is missing, incomplete or contradicts itself."""


class ContendedError(S2SimError):
    """A closed form was asked for a fabric on which messages share a link direction."""


class S2SimWarning(UserWarning):
    """Something was done differently from what one might assume; the text says what and why."""

    reducer: str | None = None  # Option string of the only one that it is about, if it is about one


def warn(text: str, *, stacklevel: int = 2, reducer: str | None = None) -> None:
    """Give a `S2SimWarning`; ``stacklevel`` is that of `warnings.warn`, by default who called the one that warns."""
    warning = S2SimWarning(text)
    warning.reducer = reducer
    warnings.warn(warning, stacklevel=stacklevel + 1)


@contextmanager
def hold_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Give the warnings of a block once it is over."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield warned
    for each in warned:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


@contextmanager
def warnings_about(reducer: str) -> Iterator[None]:
    """Name the reducer, by its option string, that the warnings of a block are about."""
    with hold_warnings() as warned:
        yield
        for each in warned:
            if isinstance(each.message, S2SimWarning):
                each.message.reducer = reducer


_MAX_LISTED = 16


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for a close name, and what there is: all of a few, else those that are closest.

    >>> suggest_nearest("rnig", ["ring", "tree"])
    " (did you mean 'ring'? known: ring, tree)"
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    more = len(names) - _MAX_LISTED
    shown = names if more <= 0 else sorted(difflib.get_close_matches(name, names, _MAX_LISTED, cutoff=0))
    listed = f"known: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}" if names else "none is known"
    return f" (did you mean {close[0]!r}? {listed})" if close else f" ({listed})"


def check_known(name: object, known: Collection[str], refusal: str, error: type[S2SimError] = OptionError) -> None:
    """Raise ``error`` with a refusal and `suggest_nearest` for what is none of ``known``."""
    if name not in known:
        raise error(f"{refusal}{suggest_nearest(str(name), known)}")


def describe_problems(found: Sequence[Mapping[str, Any]], whole: str, most: int | None = None) -> str:
    """Return the problems that pydantic found, each with its place, in one line; ``whole`` names the value.

    >>> found = [{"loc": ("layers", 0), "msg": "is no text"}, {"loc": (), "msg": "lacks a name"}]
    >>> describe_problems(found, "file", most=1)
    'layers.0: is no text; and 1 more'
    >>> describe_problems([{"loc": ("width",), "msg": "Value error, -3 is negative"}], "file")
    'width: -3 is negative'
    """
    parts = [f"{'.'.join(map(str, each['loc'])) or whole}: {strip_error_kind(each['msg'])}" for each in found]
    more = [f"and {len(parts) - most} more"] if most is not None and len(parts) > most else []
    return "; ".join([*parts[:most], *more])


def strip_error_kind(found: str) -> str:
    """Return a message of pydantic without the kind of error that it adds to our own messages.

    >>> strip_error_kind("Value error, -3 is negative")
    '-3 is negative'
    """
    return found.removeprefix("Value error, ")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown ``kind`` called ``name``, naming the nearest known one."""
    return UnknownNameError(f"unknown {kind} {name!r}{suggest_nearest(name, known)}")
