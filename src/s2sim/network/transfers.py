"""Independent transfers with start times of their own, through one of the networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.durations import whole_ps
from s2sim.network.together import deliver_together_ps
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import simpy
    from numpy.typing import NDArray

    from s2sim.network.models import Network
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes


def deliver_ps(
    fabric: Fabric,
    routes: Routes,
    start_ps: NDArray[np.int64],
    sizes_bytes: NDArray[np.float64],
    on_delivered: Callable[[int], None] = lambda _: None,
    network: Callable[[simpy.Environment, Fabric], Network] | None = None,
) -> NDArray[np.int64]:
    """Return when each transfer is delivered, int64 picoseconds of shape (n,).

    Parameters
    ----------
    fabric : Fabric
        Links.
    routes : Routes
        One a transfer.
    start_ps : int64 array, shape (n,)
        When each starts.
    sizes_bytes : float64 array, shape (n,)
        Bytes of each.
    on_delivered : callable
        Told how many have been delivered each time some are.
    network : callable
        Makes the network that carries them; without it they are alone on the fluid network, which needs no simulation.
    """
    if network is None:
        return deliver_together_ps(routes, start_ps, sizes_bytes, fabric.rate_Bps / PS_PER_S, on_delivered)
    import simpy

    env = simpy.Environment(initial_time=0)
    carrier = network(env, fabric)
    numbers = carrier.add_routes(routes)
    finish = np.zeros(len(start_ps), np.int64)
    # A network may carry other things, which go on for ever.
    left, over = len(start_ps), env.event()

    def delivered(tags: NDArray[np.int64]) -> None:
        nonlocal left
        finish[tags] = env.now
        on_delivered(len(tags))
        left -= len(tags)
        if left == 0:
            over.succeed()

    owner = carrier.add_owner(delivered)

    def sender() -> Generator[simpy.Event, None, None]:
        order = np.argsort(start_ps, kind="stable")
        moments, first = np.unique(start_ps[order], return_index=True)
        for moment, members in zip(moments.tolist(), np.split(order, first[1:]), strict=True):
            yield env.timeout(moment - env.now)
            carrier.send(numbers[members], sizes_bytes[members], owner, members)

    if len(start_ps):
        env.process(sender())
        env.run(until=over)
    return finish


def idle_ps(fabric: Fabric, routes: Routes, sizes_bytes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how long each transfer takes with nothing else in flight, int64 picoseconds of shape (n,)."""
    return routes.latency_ps + whole_ps(sizes_bytes / routes.narrowest(fabric.rate_Bps / PS_PER_S))
