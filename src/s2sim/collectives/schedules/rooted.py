"""Ranks in the order in which a tree or a chain from a root takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.groups import group_of_all

if TYPE_CHECKING:
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.groups import Groups


def group_from_root(demand: Demand) -> Groups:
    """Return all ranks as one group, in rank order from the root on and round again."""
    groups = group_of_all(demand)
    return replace(groups, ranks=np.roll(groups.ranks, -demand.root, axis=1))
