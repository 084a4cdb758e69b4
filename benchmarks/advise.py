"""The cheapest change, against trying every combination: the same answer, and how many cells fewer.

Counts are those of any machine. With ``S2SIM_BENCHMARK_REPEATS=1`` two changes are combined.
"""

from __future__ import annotations

import warnings
from itertools import product

from measure import SMALL

import s2sim
from s2sim.advice.search import REDUCER, Changes, changed_spec
from s2sim.experiment.spec import RunSpec

JOB = {"topology": "tcp-10g", "workers": 8, "trace": "ncf", "compute": "1ms", "max_error": 0.6}
REDUCERS = (
    *("fp16", "bf16", "int8", "union", "s2-exact", "gather-rows", "owner-reduce"),
    *("topk:density=0.01", "topk:density=0.1", "qsgd"),
)
CHANGES = [
    {
        "name": "rate",
        "options": [
            {"nic.rate": f"{rate}Gbps", "price": f"{price} USD/node"}
            for rate, price in ((25, 400), (50, 700), (100, 1500), (200, 3000), (400, 7000))
        ],
    },
    {"name": "count", "options": [{"nic.count": count, "price": f"{900 * count} USD/node"} for count in (2, 4, 8)]},
    {
        "name": "compressor",
        "options": [{"reducer": name, "price": f"{100 * n} USD"} for n, name in enumerate(REDUCERS)],
    },
    {"name": "library", "options": [{"library": "nccl"}, {"library": "ideal"}]},
    {"name": "bus", "options": [{"pcie.rate": rate, "price": "50 USD/node"} for rate in ("24GB/s", "48GB/s")]},
]


def try_all(changes: list[dict[str, object]]) -> list[tuple[float, float]]:
    """Return the price and the time of every combination that can be used, that as it is first."""
    known = Changes.load({"change": changes}, nodes=8, workers=8).changes
    of_reducers = next(change for change in known if change.name == "compressor").options
    prices = {"dense": 0.0} | {str(option.fields[REDUCER]): option.price for option in of_reducers[1:]}
    base = RunSpec.of(**JOB | {"workers": (8,), "reducers": tuple(prices)})
    found = []
    for chosen in product(*(change.options for change in known if change.name != "compressor")):
        fields = {name: value for option in chosen for name, value in option.fields.items()}
        price = sum(option.price for option in chosen)
        for row in s2sim.run(spec=changed_spec(base, fields), break_even=False, thorough=False).rows:
            assert row.judgement is not None
            if row.baseline or row.judgement.rejected is None:
                found.append((price + prices[row.reducer], row.judgement.time_s * row.judgement.doubt))
    return found


def main() -> None:
    """Compare both at several targets."""
    warnings.simplefilter("ignore")
    changes = CHANGES[::2][:2] if SMALL else CHANGES
    every = try_all(changes)
    print("target  cells of all    cheapest  of all")
    for faster in (0.1, 0.3, 0.5, 0.7, 0.9):
        advice = s2sim.advise("cheapest", **JOB, changes={"change": changes}, faster=faster)
        able = [price for price, time_s in every if time_s <= every[0][1] * (1 - faster)]
        found = advice.cells[1].price if not advice.lines[0].startswith("Nothing") else None
        cheapest = min(able, default=None)
        assert found == cheapest, (faster, found, cheapest)
        print(f"{faster:6.0%}  {advice.runs:5} {advice.combinations:6}  {found!s:>10}  {cheapest}")


if __name__ == "__main__":
    main()
