"""Laws that every answer keeps, on scenarios drawn at random from all that can be named.

    python tests/fuzz/laws.py --seconds 60                # the seed of the day
    python tests/fuzz/laws.py --cases 2000                # a night
    python tests/fuzz/laws.py --seed 7 --case 41          # one of them again

A scenario is a run or a collective. What it is refused for is one line, and counts as refused. Otherwise: no time is
below its lower bound, parts add up to totals, speed-ups are ratios of the times shown, the best is no slower than what
could be named instead, no link carries more than it can, more bytes and slower links take no less time, and the same
question has the same answer, which is read back from its JSON as it was. The exit code is 1 if a law was broken.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from math import isclose
from typing import Any

os.environ.setdefault("S2SIM_CACHE", "off")

import s2sim
from s2sim import S2SimError
from s2sim.collectives import KINDS
from s2sim.collectives.algorithms.registry import ALGORITHMS
from s2sim.gradients.read_trace import shipped_traces
from s2sim.profiles.read import profile_names
from s2sim.reducers.registry import REDUCERS
from s2sim.topology.read_file import list_topologies

# Roundings of whole picoseconds and of sums.
_REL, _PS = 1e-6, 1e-11
_WORKERS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 64, 65)
_RATES = ("100Mbps", "1Gbps", "7Gbps", "25Gbps", "100Gbps", "400Gbps", "1.6Tbps")
# Fabrics without a second tier: a faster NIC takes nothing away from anybody.
_ONE_TIER = ("ring", "single-switch", "torus")


class LawBrokenError(Exception):
    """An answer that contradicts itself."""


def law(holds: object, said: str) -> None:
    if not holds:
        raise LawBrokenError(said)


def no_less(longer: float, shorter: float) -> bool:
    return longer >= shorter * (1 - _REL) - _PS


def topologies() -> list[str]:
    return [name for name, *_ in list_topologies()]


def draw_collective(rng: random.Random) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "topology": rng.choice(topologies()),
        "kind": rng.choice(KINDS),
        "workers": rng.choice(_WORKERS),
        "size_bytes": int(10 ** rng.uniform(0, 9)),
    }
    if rng.random() < 0.5:
        asked["library"] = rng.choice(("ideal", "nccl", "rccl", "gloo", "mpi"))
    if rng.random() < 0.4:
        able = [name for name in ALGORITHMS.names() if asked["kind"] in ALGORITHMS.get(name).kinds]
        asked["algorithm"] = rng.choice(able or ["auto"])
    if rng.random() < 0.4:
        asked["overrides"] = (f"nic.rate={rng.choice(_RATES)}",)
    if rng.random() < 0.3:
        asked |= {"placement": "random", "seed": rng.randrange(5)}
    return asked


def draw_run(rng: random.Random) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "topology": rng.choice(topologies()),
        "workers": rng.choice([count for count in _WORKERS if count <= 24]),
        "reducers": rng.sample(REDUCERS.names(), rng.randrange(1, 4)),
    }
    if rng.random() < 0.3:
        # Those of more than a billion parameters take minutes.
        asked["profile"] = rng.choice([name for name in profile_names() if "llama" not in name])
        asked["discipline"] = rng.choice(("after-backward", "ddp"))
    else:
        asked["trace"] = rng.choice([name for name, *_ in shipped_traces()] + ["synthetic:density=0.05,overlap=0.4"])
        if rng.random() < 0.3:
            asked["compute"] = rng.choice(("100us", "5ms", "80ms"))
    if rng.random() < 0.4:
        asked["overrides"] = (f"nic.rate={rng.choice(_RATES)}",)
    if rng.random() < 0.3:
        asked["library"] = rng.choice(("ideal", "nccl", "rccl", "gloo", "mpi"))
    if rng.random() < 0.2:
        asked["max_error"] = rng.choice((1e-6, 0.01, 0.5))
    return asked


def comparable(result: Any) -> dict[str, Any]:
    return {key: value for key, value in result.to_json().items() if key != "provenance"}


def check_collective(asked: dict[str, Any]) -> None:
    result = s2sim.run_collective(**asked)
    law(no_less(result.time_s, result.lower_bound_s), f"{result.time_s} s is below {result.lower_bound_s} s")
    if result.rank_finish_s:
        law(isclose(max(result.rank_finish_s), result.time_s, rel_tol=_REL, abs_tol=_PS), "no rank is the last")
    for link in result.bottlenecks:
        law(link.utilisation <= 1 + 1e-6, f"{link.link} carries {link.utilisation:.4%} of what it can")
    if result.closed_form_s is not None:
        law(no_less(result.closed_form_s, result.lower_bound_s), "the closed form is below the bound")
    if result.faster is not None:
        named = s2sim.run_collective(**asked | {"algorithm": result.faster.algorithm}).time_s
        law(isclose(named, result.faster.time_s, rel_tol=_REL), f"{result.faster} takes {named} s")
    law(comparable(type(result).load(json.dumps(result.to_json()))) == comparable(result), "read back it is another")
    law(comparable(s2sim.run_collective(**asked)) == comparable(result), "asked again it is another")
    if asked.get("library") == "ideal":
        fixed = {**asked, "algorithm": result.algorithm}
        own = s2sim.run_collective(**fixed).time_s
        larger = s2sim.run_collective(**{**fixed, "size_bytes": 2 * asked["size_bytes"]}).time_s
        law(no_less(larger, own), f"twice the bytes take {larger} s, these {own} s")
        if asked["topology"] in _ONE_TIER:
            times = [s2sim.run_collective(**{**fixed, "overrides": (f"nic.rate={rate}",)}).time_s for rate in _RATES]
            law(all(itertools.starmap(no_less, itertools.pairwise(times))), f"a faster NIC takes longer: {times}")


def check_rows(result: Any) -> None:
    for row in result.results:
        time_s, iteration = row.time_s, row.iteration
        parts = time_s.encode + time_s.communication + time_s.decode
        law(isclose(parts, time_s.total, rel_tol=_REL, abs_tol=_PS), f"{row.option_string}: parts are {parts} s")
        law(no_less(time_s.total, row.lower_bound_s), f"{row.option_string}: {time_s.total} s is below its bound")
        if iteration is not None:
            parts = iteration.forward + iteration.backward + iteration.codec + iteration.exposed_communication
            parts += iteration.optimizer + iteration.waiting
            law(
                isclose(parts, row.iteration_s, rel_tol=_REL, abs_tol=_PS),
                f"{row.option_string}: the iteration's parts",
            )
            law(no_less(row.iteration_s, iteration.lower_bound), f"{row.option_string}: an iteration below its bound")
        if row.lossless:
            law(row.error.relative_l2 < 1e-4, f"{row.option_string} is lossless with {row.error.relative_l2}")
    compared = [row.time_s.total if row.iteration_s is None else row.iteration_s for row in result.results]
    dense = next((each for row, each in zip(result.results, compared, strict=True) if row.baseline), None)
    law(dense is not None, "there is no row of dense")
    for row, own in zip(result.results, compared, strict=True):
        expected = dense / own if own else 1.0
        law(isclose(row.speedup_vs_dense, expected, rel_tol=1e-3), f"{row.option_string}: {row.speedup_vs_dense}")


def check_run(asked: dict[str, Any]) -> None:
    result = s2sim.run(**asked)
    check_rows(result)
    names = [row.option_string for row in result.results]
    verdict = result.verdict
    law(verdict.best is None or verdict.best in names, f"the best is {verdict.best}, which is no row")
    if verdict.best is not None and verdict.decision == "use":
        rows = {row.option_string: row for row in result.results}
        best = rows[verdict.best].judgement
        law(best.rejected is None, f"the best is rejected: {best.rejected}")
        faster = [
            name
            for name, row in rows.items()
            if row.judgement.rejected is None and row.judgement.time_s < best.time_s * 0.9 and row.lossless
        ]
        law(not faster, f"{faster} are exact and faster than {verdict.best}")
    law(comparable(type(result).load(json.dumps(result.to_json()))) == comparable(result), "read back it is another")
    law(comparable(s2sim.run(**asked)) == comparable(result), "asked again it is another")


def scenarios(seed: int, first: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield numbers, what is asked for, and its keywords."""
    for number in itertools.count(first):
        rng = random.Random(f"{seed}:{number}")
        what = rng.choice(("run", "collective", "collective"))
        yield number, what, draw_run(rng) if what == "run" else draw_collective(rng)


def main() -> int:
    """Check scenarios and return 1 if any broke a law."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many seconds")
    parser.add_argument("--cases", type=int, default=2_000, help="stop after so many scenarios")
    parser.add_argument("--seed", type=int, default=datetime.now(UTC).date().toordinal(), help="default: the day")
    parser.add_argument("--case", type=int, help="this one alone")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    refused = broken = 0
    answered = {"run": 0, "collective": 0}
    first, cases = (0, options.cases) if options.case is None else (options.case, 1)
    for number, what, asked in itertools.islice(scenarios(options.seed, first), cases):
        try:
            with warnings.catch_warnings(action="ignore"):
                (check_run if what == "run" else check_collective)(asked)
            answered[what] += 1
        except S2SimError as error:
            refused += 1
            if "takes no" in str(error) or "missing a required" in str(error):
                raise
        except Exception:  # noqa: BLE001  (whatever it is, it is what is looked for)
            broken += 1
            words = ", ".join(f"{name}={value!r}" for name, value in asked.items())
            print(f"\nseed {options.seed}, case {number}: {what}({words})\n{traceback.format_exc(limit=-2)}")
        if time.monotonic() > end:
            break
    kept = ", ".join(f"{count} {what}s" for what, count in answered.items())
    print(f"seed {options.seed}: {kept} keep all laws, {refused} scenarios were refused, {broken} broke a law")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
