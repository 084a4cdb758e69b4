"""A communication library as a value: what it executes for what is asked of it, and how many at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from s2sim.collectives.libraries.profile import PLAIN, Profile
from s2sim.options import join_option_string


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a library's table.

    Attributes
    ----------
    kinds, ops, dtypes : tuple of str
        What is asked for: collectives; operations, with a ``v`` where sizes differ from rank to rank, or are known only
        from data, and the other ranks do not know them; NumPy names of types, empty for any.
    does, why : str
        What is executed, a key of `s2sim.collectives.libraries.lowering.EXECUTIONS`, and why, for people, with its
        source.
    when : (str, str) or None
        The option and the value of it for which the line holds; None for always.
    carrier : str
        Type that stands in for one that the library lacks.
    """

    kinds: tuple[str, ...]
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    does: str
    why: str
    when: tuple[str, str] | None = None
    carrier: str = ""


@dataclass(frozen=True, slots=True)
class Library:
    """One communication library, with the options that were chosen.

    Attributes
    ----------
    table : tuple of Entry
        What it executes.
    groups : bool
        Whether collectives of one kind that are posted at once are one launch: bytes add, latency is paid once.
    in_flight : int or None
        Collectives of one communicator that run at once, in the order in which they were posted; None for any number.
    options : tuple of (str, tuple of str)
        Each option and its values, the default first.
    staged : bool
        Whether buffers go through host memory, unless the option ``buffers`` says otherwise.
    chosen : tuple of (str, str)
        Every option and its value.
    profile : Profile
        How it runs what it executes.
    given : tuple of str
        The options that somebody named.
    """

    name: str
    summary: str
    source: str
    table: tuple[Entry, ...]
    groups: bool
    in_flight: int | None
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    staged: bool = False
    chosen: tuple[tuple[str, str], ...] = ()
    profile: Profile = PLAIN
    given: tuple[str, ...] = field(default=(), compare=False)

    @property
    def option_string(self) -> str:
        """The text that `s2sim.collectives.libraries.tables.choose_library` reads back."""
        defaults = {key: values[0] for key, values in self.options}
        return join_option_string(self.name, {key: value for key, value in self.chosen if value != defaults[key]})

    @property
    def through_host(self) -> bool:
        """Whether buffers are copied to host memory and back."""
        return self.staged and ("buffers", "device") not in self.chosen
