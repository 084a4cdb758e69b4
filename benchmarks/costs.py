"""CPU time and memory of commands, fitted by features of what they compute: writes s2sim/experiment/costs.toml.

Figures are of one machine; what counts is how they grow. ``--write`` replaces the file; without it what the file
predicts is compared with what is measured.
"""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import SMALL
from scipy.optimize import least_squares, nnls

from s2sim.experiment.cluster_spec import command_of
from s2sim.experiment.costs import collective_features, cost_of, import_features, run_features
from s2sim.experiment.run import resolve_named
from s2sim.experiment.spec import RunSpec
from s2sim.sweeps.compute import Job, compute_jobs, job_features
from s2sim.traffic.spec import CollectiveSpec

FILE = Path(__file__).parents[1] / "s2sim" / "experiment" / "costs.toml"
RUNS: list[tuple[str, int, dict[str, Any]]] = [
    ("single-switch", 8, {"trace": "ncf"}),
    ("fat-tree", 8, {"profile": "deeplight", "reducers": ("s2",)}),
    ("dgx-h100", 64, {"profile": "llama-7b", "discipline": "fsdp", "reducers": ("qgz",)}),
    ("dgx-h100", 128, {"profile": "llama-7b", "discipline": "fsdp", "reducers": ("fp16", "qgz", "powersgd")}),
    ("tcp-10g", 8, {"profile": "resnet-18", "reducers": ("all",)}),
    ("dgx-h100", 32, {"profile": "llama-7b", "discipline": "fsdp", "reducers": ("fp16",)}),
    ("dgx-h100", 32, {"profile": "llama-7b", "discipline": "fsdp", "reducers": ("qgz",)}),
    ("dgx-a100", 16, {"profile": "llama-7b", "discipline": "fsdp", "reducers": ("fp8", "powersgd")}),
    ("dgx-a100", 32, {"profile": "gpt2", "discipline": "fsdp:shard=node"}),
    ("dgx-a100", 16, {"profile": "bert-large", "discipline": "zero2", "reducers": ("fp16",)}),
    ("aws-p4d", 64, {"profile": "bert-large", "discipline": "zero2", "reducers": ("qgz",)}),
    ("tcp-10g", 16, {"profile": "resnet-50"}),
    ("tcp-10g", 8, {"profile": "vgg-16", "reducers": ("topk:density=0.01", "powersgd")}),
    ("tcp-10g", 4, {"profile": "resnet-50", "reducers": ("all",)}),
    ("single-switch", 16, {"trace": "cnn", "reducers": ("all",)}),
    ("single-switch", 64, {"trace": "cnn"}),
    ("fat-tree", 128, {"trace": "ncf", "reducers": ("union", "s2-exact")}),
    ("fat-tree", 16, {"profile": "ncf"}),
    ("fat-tree", 64, {"profile": "ncf", "reducers": ("union",)}),
    ("fat-tree", 32, {"profile": "dlrm", "reducers": ("union", "owner-reduce")}),
    ("leaf-spine", 16, {"profile": "lstm"}),
    ("leaf-spine", 64, {"profile": "gnmt-8", "reducers": ("union",)}),
    ("dgx-h100", 512, {"profile": "gpt2", "reducers": ("fp8",)}),
    ("dgx-h100", 256, {"profile": "resnet-50", "reducers": ("powersgd", "topk:density=0.001")}),
    ("perlmutter", 128, {"profile": "bert-large"}),
    ("frontier", 64, {"profile": "gpt2"}),
    ("lumi", 256, {"profile": "resnet-152", "reducers": ("powersgd",)}),
    ("aws-p3dn", 32, {"profile": "bert-large"}),
    ("aws-g5", 16, {"profile": "vgg-19", "reducers": ("fp16", "dgc")}),
    ("dgx-h100", 16, {"profile": "bert-base", "compute_cv": 0.1, "reducers": ("fp16",)}),
    ("dgx-a100", 16, {"profile": "gpt2", "faults": ("slow-rank:rank=1,factor=2",), "reducers": ("fp16",)}),
    ("dgx-a100", 8, {"profile": "vgg-16", "discipline": "ddp:bucket=5MB"}),
    ("dgx-h100", 64, {"profile": "bert-large", "discipline": "ddp:bucket=1MB", "reducers": ("fp16", "int8")}),
    ("dgx-h100", 64, {"profile": "bert-large", "discipline": "per-tensor", "reducers": ("fp16",)}),
    ("tcp-10g", 16, {"profile": "resnet-101", "discipline": "mg-wfbp"}),
    ("dgx-h100", 64, {"profile": "llama-3.1-8b", "groups": "tp=8", "reducers": ("fp16",)}),
    (
        "dgx-h100",
        128,
        {"profile": "llama-70b", "groups": "tp=8,pp=4", "accumulate": 8, "reducers": ("fp16", "powersgd")},
    ),
    ("dgx-h100", 64, {"profile": "bert-large", "accumulate": 4, "reducers": ("powersgd",)}),
    ("dgx-a100", 64, {"profile": "bert-large", "reducers": ("hierarchical-topk", "fp16")}),
    ("dgx-a100", 32, {"profile": "gpt2", "reducers": ("qgz",)}),
    ("dgx-a100", 32, {"profile": "ncf", "reducers": ("node-union", "union")}),
    ("fat-tree", 64, {"model": "bert-large", "reducers": ("topk", "powersgd")}),
    ("fat-tree", 16, {"model": "dlrm", "reducers": ("union",)}),
    ("fat-tree", 256, {"trace": "ncf", "scale_to": "1B", "reducers": ("union",)}),
    ("dragonfly", 64, {"trace": "ncf", "reducers": ("all",)}),
    ("torus", 64, {"profile": "resnet-50", "reducers": ("fp16",)}),
    ("nvl72", 72, {"profile": "llama-3.1-8b", "reducers": ("fp8",)}),
    ("single-switch", 32, {"trace": "synthetic:density=0.05,overlap=0.3", "reducers": ("union", "s2", "owner-reduce")}),
    ("tcp-10g", 8, {"profile": "resnet-50", "reducers": ("ok-topk", "gtopk", "spardl")}),
    ("tcp-10g", 8, {"profile": "resnet-18", "reducers": ("signsgd-vote", "terngrad", "qsgd")}),
    ("tcp-10g", 8, {"profile": "gpt2", "reducers": ("local-sgd", "diloco")}),
    ("rtx-4090-8", 8, {"profile": "gpt2"}),
    ("dgx-h100", 64, {"profile": "bert-large", "discipline": "fsdp", "reducers": ("fp16",)}),
    ("fat-tree", 64, {"trace": "ncf", "reducers": ("union",)}),
    ("fat-tree", 1024, {"trace": "ncf", "reducers": ("union",)}),
    ("fat-tree", 4096, {"trace": "ncf", "reducers": ("union",)}),
    ("fat-tree", 1024, {"trace": "ncf", "reducers": ("fp16", "topk:density=0.01")}),
    ("fat-tree", 256, {"reducers": ("s2-exact", "union", "fp16")}),
    ("fat-tree", 64, {}),
    ("fat-tree", 128, {}),
    ("fat-tree", 256, {}),
    ("fat-tree", 16, {"reducers": ("all",)}),
    ("leaf-spine", 16, {"trace": "ncf"}),
    ("dgx-h100", 64, {"profile": "llama-7b", "discipline": "fsdp"}),
    ("dgx-a100", 64, {"profile": "gpt2"}),
    ("dgx-a100", 8, {"profile": "resnet-50"}),
    ("dgx-h100", 1024, {"profile": "resnet-50", "reducers": ("fp16",)}),
    ("leaf-spine", 32, {"model": "gnmt-8"}),
    ("single-switch", 512, {"trace": "synthetic:density=0.01,overlap=0.5", "reducers": ("union",)}),
    ("dgx-h100", 8, {"profile": "resnet-50", "compute_cv": 0.05, "reducers": ("fp16",)}),
    (
        "dgx-h100",
        16,
        {"profile": "bert-base", "compute_cv": 0.05, "reducers": ("fp16", "topk:density=0.01", "powersgd", "int8")},
    ),
    ("dgx-h100", 16, {"profile": "llama-7b", "discipline": "fsdp", "reducers": ("qgz",)}),
    ("dgx-h100", 32, {"profile": "llama-7b", "discipline": "fsdp:shard=node", "reducers": ("powersgd",)}),
]
COLLECTIVES = [
    ("all_reduce", algorithm, workers)
    for algorithm in ("ring", "double-binary-tree", "auto")
    for workers in (16, 256, 1024, 4096)
] + [("all_to_all", algorithm, workers) for algorithm in ("pairwise", "auto") for workers in (16, 128, 512, 1024)]

# Megabytes of a file, files, share of values that are not zero.
IMPORTS = [(size, files, density) for size in (1, 25, 100) for files in (1, 4) for density in (1.0, 0.1)]


# A child has its parent's ru_maxrss; the peak of its own memory stands in /proc.
PROGRAM = """
import re, sys
from pathlib import Path
from s2sim.cli.main import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
sys.exit(code)
"""


def measured(arguments: list[str]) -> tuple[float, float]:
    """Return CPU seconds and the largest memory of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"S2SIM_CACHE": "off", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, 1024.0 * int(ran.stderr.split()[-1])


def run_case(topology: str, workers: int, options: dict[str, Any]) -> tuple[dict[str, float], list[str]]:
    """Return the features and the arguments of a run."""
    spec = RunSpec.of(topology, workers=(workers,), **options)
    scenario, _ = resolve_named(spec)
    words = ["run", "--topology", topology, "--workers", str(workers), "-q"]
    for name, value in options.items():
        for each in value if isinstance(value, tuple) else (value,):
            flag = name if name == "groups" else name.removesuffix("s").replace("_", "-")
            words += [f"--{flag}", str(each)]
    return run_features(scenario, [scenario.ranks_of(workers)], search=True), words


def cell_case(spec: RunSpec | CollectiveSpec) -> tuple[dict[str, float], float]:
    """Return the features of a cell of a sweep, and its CPU seconds in a process that has computed one like it."""
    times_s = []
    for rate in ("10Gbps", "25Gbps", "40Gbps"):
        job = Job((("", replace(spec, overrides=(f"nic.rate={rate}",))),))
        begun = time.process_time()
        compute_jobs([job])
        times_s.append(time.process_time() - begun)
    return job_features(job), min(times_s[1:])


def import_case(folder: Path, size_MB: int, files: int, density: float) -> tuple[dict[str, float], list[str]]:
    """Write files of gradients; return the features and the arguments of their import."""
    rng = np.random.default_rng(0)
    paths = []
    for number in range(files):
        values = rng.standard_normal(size_MB * 250_000, dtype=np.float32)
        values[rng.random(len(values)) >= density] = 0
        paths.append(str(folder / f"{size_MB}-{files}-{density}-rank{number}.npy"))
        np.save(paths[-1], values)
    return import_features(paths), ["trace", "import", *paths, "--out", str(folder / "trace"), "--overwrite", "-q"]


def cell_lines(write: bool) -> list[str]:
    """Return the tables of cells, or print what the file predicts over what is measured."""
    specs = {
        "run": [RunSpec.of(where, workers=(workers,), **options) for where, workers, options in RUNS],
        "collective": [
            CollectiveSpec.of(where, kind=kind, algorithm=algorithm, workers=workers, size_bytes=2**24)
            for where in ("fat-tree", "dgx-h100")
            for kind, algorithm, workers in COLLECTIVES
        ],
    }
    lines = []
    for what, several in specs.items():
        found = [cell_case(spec) for spec in several[: 2 if SMALL else None]]
        table = fitted([features for features, _ in found], [seconds for _, seconds in found])
        lines += [f"\n[{what}.cell_s]", *(f"{name} = {value:.4g}" for name, value in table.items())]
        for spec, (features, seconds) in zip(several, found, strict=False):
            if not write:
                predicted = cost_of(what, features, "cell_s").seconds
                print(f"cell_s {predicted / seconds:.2f} of {seconds:.3g}: {command_of(spec)}")
    return lines


def fitted(features: list[dict[str, float]], figures: list[float]) -> dict[str, float]:
    """Return coefficients by name that minimise factors between figures and their estimates, few large ones aside."""
    names = [name for name in features[0] if any(row[name] for row in features)]
    matrix = np.array([[row[name] for name in names] for row in features])
    matrix /= (most := matrix.max(axis=0))
    begun, _ = nnls(matrix / np.array(figures)[:, None], np.ones(len(figures)))

    def factors(coefficients: Any) -> Any:
        return np.log(matrix @ coefficients / figures)

    found = least_squares(factors, begun + 1e-6 * max(figures), bounds=(0, np.inf), loss="soft_l1").x / most
    return dict.fromkeys(features[0], 0.0) | dict(zip(names, found.tolist(), strict=True))


def main(folder: Path) -> None:
    """Measure, fit, and write or compare; ``folder`` takes files to import."""
    lines = [
        "# Made by benchmarks/costs.py: CPU seconds and bytes for one unit of each feature of s2sim.experiment.costs."
    ]
    cases = {
        "run": [run_case(*case) for case in RUNS[: 2 if SMALL else None]],
        "collective": [
            (
                collective_features(kind, algorithm, workers),
                shlex.split(
                    f"collective {kind} --algorithm {algorithm} --topology fat-tree --workers {workers} --size 16MiB -q"
                ),
            )
            for kind, algorithm, workers in COLLECTIVES[: 2 if SMALL else None]
        ],
        "import": [import_case(folder, *case) for case in IMPORTS[: 2 if SMALL else None]],
    }
    for what, several in cases.items():
        figures = [measured(words) for _, words in several]
        for each, column in (("cpu_s", 0), ("bytes", 1)):
            found = fitted([features for features, _ in several], [figure[column] for figure in figures])
            lines += [f"\n[{what}.{each}]", *(f"{name} = {value:.4g}" for name, value in found.items())]
            if "--write" in sys.argv:
                continue
            for (features, words), figure in zip(several, figures, strict=True):
                predicted = cost_of(what, features)[column]
                print(f"{each} {predicted / figure[column]:.2f} of {figure[column]:.3g}: s2sim {shlex.join(words)}")
    os.environ["S2SIM_CACHE"] = str(folder)
    lines += cell_lines("--write" in sys.argv)
    if "--write" in sys.argv:
        FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
