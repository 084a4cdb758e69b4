"""What a library adds to a pattern is found once for all sizes and rates, and is what it would be alone."""

import pytest

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.routes import RouteTable
from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.message_latency import message_overheads
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.topology.shape import with_rate

KINDS = ("all_reduce", "all_gather", "broadcast", "all_to_all")
SIZES = (1 << 10, 1 << 18, 1 << 24)


def demands(workers):
    for kind in KINDS:
        for size in SIZES:
            yield Demand(kind, (size if kind in ("all_reduce", "broadcast") else size // workers,) * workers, 4)


@pytest.mark.parametrize(
    ("topology", "workers", "field", "rates_Bps"),
    [
        ("a100-pcie-8", 8, "pcie.rate", (1e9, 30e9)),
        pytest.param("dgx-a100", 16, "nic.rate", (1e9, 25e9), marks=pytest.mark.slow),
        pytest.param("summit", 12, "nic.rate", (1e9, 12e9), marks=pytest.mark.slow),
    ],
)
def test_other_sizes_and_rates_take_what_is_kept_and_the_same_time(topology, workers, field, rates_Bps):
    clusters = [build_cluster(with_rate(load_shape(topology), field, rate), workers) for rate in rates_Bps]
    ways = RouteTable(clusters[0])
    for cluster in clusters:
        together = Timer(cluster, ways=ways, profile=NcclProfile("nccl"))
        for demand in demands(workers):
            alone = Timer(cluster, profile=NcclProfile("nccl")).time(demand)
            kept = together.time(demand)
            assert (kept.duration_ps, kept.schedule.text) == (alone.duration_ps, alone.schedule.text)
            for own, other in zip(kept.schedule.steps, alone.schedule.steps, strict=True):
                assert own.round.pattern.key == other.round.pattern.key
                assert own.round.bytes.tolist() == other.round.bytes.tolist()


def test_nothing_is_found_twice(monkeypatch):
    """Below 25 GB/s, from which on an interface has two channels."""
    found = []
    monkeypatch.setattr(
        "s2sim.libraries.message_latency.message_overheads",
        lambda *a, **k: found.append(1) or message_overheads(*a, **k),
    )
    shape = load_shape("dgx-a100")
    ways, counts = None, []
    for rate_Bps in (12e9, 18e9, 24e9):
        cluster = build_cluster(with_rate(shape, "nic.rate", rate_Bps), 32)
        ways = ways or RouteTable(cluster)
        timer = Timer(cluster, ways=ways, profile=NcclProfile("nccl"))
        for elements in (1 << 18, 3 << 18):
            timer.time(Demand("all_gather", (elements,) * 32, 4))
        counts.append(len(found))
    assert counts[0] > 0
    assert counts == counts[:1] * 3
