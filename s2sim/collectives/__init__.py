"""Collective schedules as data, their closed forms, and the checker that runs them on values."""

from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv", "barrier"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
