"""The price of a cluster, by the hour of a GPU or a node, or of nodes that were bought."""

import pytest

from s2sim.errors import TopologyError
from s2sim.topology.read_file import load_shape


@pytest.mark.parametrize(
    ("price", "per_hour"),
    [
        (["price.gpu_hour=2.5 USD"], 12 * 2.5),
        (["price.node_hour=98.32USD"], 3 * 98.32),
        (["price.node=175320 USD", "price.years=4"], 3 * 5.0),
    ],
)
def test_nodes_are_paid_for_whole_and_gpus_each(price, per_hour):
    cost = load_shape("fat-tree", price).price.cost(12, 3)
    assert (cost.workers, cost.nodes, cost.currency) == (12, 3, "USD")
    assert cost.per_hour == pytest.approx(per_hour)
    assert cost.of(1800.0) == pytest.approx(per_hour / 2)
    assert cost.of_steps(0.0036) == pytest.approx(per_hour / 1000)


def test_no_price_ships_and_none_is_assumed():
    assert load_shape("aws-p5").price is None


@pytest.mark.parametrize(
    ("price", "message"),
    [
        (["price.node=9000 USD"], "write price.gpu_hour or price.node_hour, or price.node with price.years"),
        (["price.years=3"], "or price.node with price.years"),
        (["price.gpu_hour=2 USD", "price.node_hour=9 USD"], "price.gpu_hour and price.node_hour: write"),
        (["price.gpu_hour=2 USD", "price.years=3"], "price.gpu_hour and price.years: write"),
        (["price.gpu_hour=$2"], r"'\$2' is no price: write for example '98.32 USD'"),
        (["price.node=9000 USD", "price.years=0"], "price.years = 0 must be at least 1"),
        (["price.gpu=2 USD"], "did you mean 'price.gpu_hour'"),
    ],
)
def test_a_price_that_says_too_little_or_too_much_is_refused(price, message):
    with pytest.raises(TopologyError, match=message):
        load_shape("fat-tree", price)
