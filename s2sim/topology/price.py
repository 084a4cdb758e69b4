"""What a cluster costs: rent of GPUs or nodes by the hour, or nodes that were bought."""

from __future__ import annotations

import re
from dataclasses import dataclass

from s2sim.errors import TopologyError
from s2sim.topology.quantity import FieldReader

PRICE_FIELDS = ("price.gpu_hour", "price.node_hour", "price.node", "price.years")
_HOURS_PER_YEAR = 8766
_S_PER_HOUR = 3600
_MONEY = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ?([A-Z]{3})")


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """What the workers of a cluster cost for an hour."""

    workers: int
    nodes: int  # All that they run on; without a price for each GPU all are paid for whole
    per_hour: float  # In ``currency``
    currency: str  # Three letters such as ``USD``

    def of(self, time_s: float) -> float:
        """Return what a number of seconds costs, in ``currency``."""
        return self.per_hour * time_s / _S_PER_HOUR

    def of_steps(self, step_s: float) -> float:
        """Return what 1,000 steps of so many seconds cost, in ``currency``: one costs less than a cent."""
        return 1000 * self.of(step_s)


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an hour, of a GPU or of a node; of nodes that were bought the share of their years."""

    amount: float
    currency: str
    of_gpus: bool

    def cost(self, workers: int, nodes: int) -> HourlyCost:
        """Return the cost of ``workers`` GPUs on so many nodes."""
        return HourlyCost(workers, nodes, self.amount * (workers if self.of_gpus else nodes), self.currency)


def parse_money(text: str) -> tuple[float, str] | None:
    """Return an amount and its currency; None for another text.

    >>> parse_money("98.32 USD")
    (98.32, 'USD')
    """
    match = _MONEY.fullmatch(text.strip())
    return None if match is None else (float(match[1]), match[2])


def read_price(fields: FieldReader) -> Price | None:
    """Return the price that a description states; None without one."""
    given = [field for field in PRICE_FIELDS if field in fields.quantities]
    if not given:
        return None
    field, *more = given
    if field == "price.years" or more != ["price.years"] * (field == "price.node"):
        raise TopologyError(
            f"{fields.origin}: {' and '.join(given)}: write price.gpu_hour or price.node_hour, or price.node with "
            "price.years"
        )
    money = parse_money(text := fields.text(field, None))
    if money is None:
        raise TopologyError(f"{fields.origin}: {field} = {text!r} is no price: write for example '98.32 USD'")
    hours = _HOURS_PER_YEAR * fields.required_count("price.years") if more else 1
    amount, currency = money
    return Price(amount / hours, currency, of_gpus=field == "price.gpu_hour")
