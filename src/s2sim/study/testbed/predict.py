"""Predicts collectives between the workers of a testbed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast, get_args

from s2sim.collectives.kinds import Kind
from s2sim.collectives.libraries.host_software import HostSoftware
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError, nearest
from s2sim.study.collective.sizes import make_demand
from s2sim.study.testbed.cluster import setting_shape
from s2sim.topology.cluster import build_cluster
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.libraries.constants import Own
    from s2sim.testbed.measured import Setting

LIBRARY = "gloo"


@cache
def _timer(setting: Setting) -> Timer:
    return Timer(build_cluster(setting_shape(setting), setting.workers), profile=HostSoftware(LIBRARY))


def timer_of(setting: Setting, own: Own) -> Timer:
    """Return what times collectives of a setting's workers, with constants in place of the library's shipped ones."""
    return _timer(setting).with_profile(HostSoftware(LIBRARY, own))


def collective_s(setting: Setting, what: str, payload_bytes: int, own: Own = ()) -> float:
    """Return the predicted seconds of a collective whose buffer nccl-tests would count so large."""
    if what not in get_args(Kind):
        raise S2SimError(f"{what!r} was measured, which is no collective{nearest(what, get_args(Kind))}")
    demand = make_demand(cast("Kind", what), payload_bytes, setting.workers)
    return timer_of(setting, own).time(demand).duration_ps / PS_PER_S
