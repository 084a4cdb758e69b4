"""What flows in flight cost: CPU time beyond ``s2sim --version``, memory, and flows looked at on links.

- 4,000 random flows, all in flight together on a leaf-spine of 64 ranks, and 16,000 on a 2:1 fat tree of 1,024 ranks
  whose uplinks they load to 0.8 on average.
- An all-to-all of 64 ranks with unequal sizes, all partners at once.
- A ring all-reduce of 64 ranks on a 2:1 tree beside background traffic, message by message.

Run with ``python benchmarks/engine.py`` where s2sim is installed; with numba the first run compiles.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from measure import SMALL, measure

from s2sim.network.active_flows import SOLVER_EFFORT, has_numba
from s2sim.network.fluid import solve_batch_ps
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.units import PS_PER_S

NIC_BPS = 12.5e9
TREE = ("fabric.uplinks_per_leaf=2",)  # 4 hosts a leaf: 2:1


def random_flows(flows: int, ranks: int, span_s: float, mean_bytes: float) -> tuple[np.ndarray, ...]:
    """Return starts in seconds, sources, targets and bytes."""
    generator = np.random.default_rng(9)
    src = generator.integers(0, ranks, flows)
    dst = (src + generator.integers(1, ranks, flows)) % ranks
    sizes = np.ceil(generator.exponential(mean_bytes, flows))
    return np.sort(generator.uniform(0, span_s, flows)), src, dst, sizes


def all_to_all(ranks: int) -> tuple[np.ndarray, ...]:
    """Return the same for messages from everyone to everyone."""
    src, dst = np.nonzero(~np.eye(ranks, dtype=bool))
    return np.zeros(len(src)), src, dst, np.random.default_rng(9).integers(1, 2**20, len(src)).astype(float)


def solve(topology: str, fields: tuple[str, ...], ranks: int, flows: tuple[np.ndarray, ...]) -> tuple[float, int]:
    """Return the CPU seconds of the solution alone, and the flows looked at on links."""
    cluster = build_cluster(load_shape(topology, fields), ranks)
    start_s, src, dst, sizes = flows
    routes = cluster.routes(src, dst)
    capacity, start_ps = cluster.fabric.rate_Bps / PS_PER_S, np.rint(start_s * PS_PER_S).astype(np.int64)
    if has_numba():
        # Once before, so that neither loading nor compiling is counted.
        SOLVER_EFFORT.visits = 10**9
        solve_batch_ps(routes, start_ps, sizes, capacity)
    before, begin = SOLVER_EFFORT.visits, time.process_time()
    solve_batch_ps(routes, start_ps, sizes, capacity)
    return time.process_time() - begin, SOLVER_EFFORT.visits - before


def show(name: str, topology: str, fields: tuple[str, ...], ranks: int, flows: tuple[np.ndarray, ...]) -> None:
    """Print one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flows.csv"
        lines = [",".join(map(repr, row)) for row in zip(*(column.tolist() for column in flows), strict=True)]
        path.write_text("\n".join(["start_s,src,dst,bytes", *lines]) + "\n")
        sets = [f"--set={field}" for field in fields]
        arguments = ["flows", str(path), "--topology", topology, "--workers", str(ranks), *sets, "--quiet"]
        cpu, _, peak, _ = measure(*arguments, "--json", str(Path(folder) / "out.json"), repeats=1)
    seconds, looks = solve(topology, fields, ranks, flows)
    print(f"{name:40}  {cpu:8.2f}  {peak:7.0f}  {seconds:8.2f}  {2 * len(flows[0]):7,}  {looks:10,}", flush=True)


def main() -> None:
    """Print the figures."""
    base, _, _, _ = measure("--version")
    print(f"s2sim --version: {base:.2f} s CPU; {'with' if has_numba() else 'without'} numba")
    print(f"{'flows':40}  {'CPU s':>8}  {'peak MB':>7}  {'solving':>8}  {'events':>7}  {'looks':>10}")
    few, many, ranks, most = (40, 160, 8, 64) if SMALL else (4000, 16_000, 64, 1024)
    show(f"{few:,} at once, leaf-spine of {ranks}", "leaf-spine", (), ranks, random_flows(few, ranks, 1e-3, 2e7))
    # Four hosts share two uplinks; nearly all traffic leaves its leaf.
    span_s = many * 1e6 / (0.8 * most / 4 / 2 * NIC_BPS)
    show(f"{many:,} at load 0.8, 2:1 tree of {most:,}", "fat-tree", TREE, most, random_flows(many, most, span_s, 1e6))
    show(f"uneven all-to-all, fat-tree of {ranks}", "fat-tree", (), ranks, all_to_all(ranks))
    show(f"uneven all-to-all, leaf-spine of {ranks}", "leaf-spine", (), ranks, all_to_all(ranks))
    arguments = [
        "--topology",
        "fat-tree",
        "--workers",
        str(ranks),
        "--size",
        "256MiB",
        "--algorithm",
        "ring",
        "--quiet",
    ]
    beside = ["--set", TREE[0], "--fault", "background:load=0.3"]
    cpu, _, peak, _ = measure("collective", "all_reduce", *arguments, *beside, repeats=1)
    print(f"{'ring beside background:load=0.3':40}  {cpu:8.2f}  {peak:7.0f}")


if __name__ == "__main__":
    main()
