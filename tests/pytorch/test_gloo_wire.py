"""Gloo's messages: counted on real connections (torch 2.13.0, Linux 6), and by what collectives must carry."""

import numpy as np
import pytest

from s2sim.collectives.schedules.demand import Demand, all_to_all_demand
from s2sim.errors import S2SimError
from s2sim.pytorch.gloo_messages import barrier_bytes, gloo_messages


def sent(demand, **how):
    return np.sum(gloo_messages(demand, **how).sent(demand.ranks), axis=0).tolist()


@pytest.mark.parametrize(
    ("demand", "measured"),
    [
        (Demand("all_gather", (1,) * 3, 8), [592] * 3),
        (Demand("all_gather", (1,) * 5, 1), [1156] * 5),
        (Demand("all_to_all", (3,) * 3, 8), [304] * 3),
        (all_to_all_demand(np.add.outer(np.arange(5), np.arange(5)), 1), [586, 589, 592, 595, 598]),
        (Demand("all_reduce", (1166,) * 5, 1), [4172, 4168, 4168, 4168, 4172]),
        (Demand("all_reduce", (1,) * 5, 4), [148, 196, 296, 296, 248]),
        # Segments of at most 1 MiB.
        (Demand("all_reduce", (5_432_123,) * 3, 4), [28975368, 28975328, 28975368]),
        (Demand("reduce", (7,) * 3, 4, 2), [412, 508, 604]),
        (Demand("reduce", (100_000,) * 5, 4, 4), [401248, 401248, 401248, 401248, 321344]),
        (Demand("broadcast", (1000,) * 5, 4, 4), [4144, 48, 48, 48, 12288]),
    ],
)
def test_messages_are_those_that_were_counted(demand, measured):
    assert sent(demand) == measured


def test_a_long_reduce_sums_on_after_it_has_ended():
    """Gloo's loop does not stop where sums are complete once a rank has more than two segments."""
    measured = [21481496, 21481544, 16779568]
    found = sent(Demand("reduce", (4_321_234,) * 3, 4, 2))
    assert found == measured


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("size", [0, 1, 5, 1000, 3 << 20])
def test_data_are_what_the_collective_moves(ranks, size):
    for demand, each in (
        (Demand("all_reduce", (size,) * ranks, 4), 2 * (ranks - 1) * 4),
        (Demand("all_gather", (size,) * ranks, 4), ranks * (ranks - 1) * 4),
        (Demand("broadcast", (size,) * ranks, 4, ranks - 1), (ranks - 1) * 4),
    ):
        data, headers = gloo_messages(demand).sent(ranks)
        assert data.sum() == each * size
        assert headers.sum() == 3 * 48 * len(gloo_messages(demand).size)


def test_peers_send_where_there_is_something_to_send():
    sizes = np.array([[9, 2, 0], [0, 9, 0], [0, 4, 9]])
    assert sent(all_to_all_demand(sizes, 1), pairs_alone=True) == [96 + 2, 2 * 48, 96 + 4]


def test_one_rank_sends_nothing_and_barriers_double():
    assert sent(Demand("all_reduce", (5,), 4)) == [0]
    assert [barrier_bytes(ranks) for ranks in (1, 2, 3, 4, 5, 8, 9)] == [0, 144, 288, 288, 432, 432, 576]


def test_what_gloo_has_not_is_refused():
    with pytest.raises(S2SimError, match="Gloo has no reduce_scatter"):
        gloo_messages(Demand("reduce_scatter", (5, 5), 4))
