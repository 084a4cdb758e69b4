"""The busiest links of a simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.fabric import Fabric

_BUSIEST_LINKS = 8


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """What one link direction carried.

    Attributes
    ----------
    link : str
        Its name.
    bytes : float
        Bytes; a flow that is split over several links leaves a part on each.
    utilisation : float
        Bytes over what it could have carried in the whole time.
    """

    link: str
    bytes: float
    utilisation: float

    def to_json(self) -> dict[str, Any]:
        """Return the load with the keys that other programs rely on."""
        return {"link": self.link, "bytes": self.bytes, "utilisation": self.utilisation}


def busiest_links(fabric: Fabric, carried_bytes: NDArray[np.float64], seconds: float) -> tuple[LinkLoad, ...]:
    """Return the links that were busiest, the busiest first, links in order where they tie.

    Parameters
    ----------
    fabric : Fabric
        Links.
    carried_bytes : float64 array, shape (links,)
        What each carried.
    seconds : float
        In how long.
    """
    if seconds == 0:
        return ()
    utilisation = carried_bytes / (fabric.rate_Bps * seconds)
    order = np.lexsort((np.arange(len(utilisation)), -utilisation))[:_BUSIEST_LINKS]
    return tuple(
        LinkLoad(fabric.link_names[int(link)], float(carried_bytes[link]), float(utilisation[link]))
        for link in order
        if carried_bytes[link]
    )
