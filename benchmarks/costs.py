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
from scipy.optimize import nnls

from s2sim.experiment.cluster_spec import command_of
from s2sim.experiment.costs import collective_features, cost_of, import_features, run_features
from s2sim.experiment.run import resolve_named
from s2sim.experiment.spec import RunSpec
from s2sim.sweeps.compute import Job, compute_jobs, job_features
from s2sim.traffic.spec import CollectiveSpec

FILE = Path(__file__).parents[1] / "s2sim" / "experiment" / "costs.toml"
RUNS = [
    *(
        ("fat-tree", workers, {"trace": "ncf", "reducers": names})
        for workers in (8, 64, 256, 1024, 4096)
        for names in (("union",), ("fp16", "topk:density=0.01"))
    ),
    *(("fat-tree", workers, {"reducers": ("s2-exact", "union", "fp16")}) for workers in (16, 64, 256)),
    *(("dgx-a100", workers, {"profile": name}) for workers in (8, 64) for name in ("gpt2", "resnet-50")),
    ("dgx-h100", 256, {"profile": "gpt2", "reducers": ("powersgd", "fp8")}),
    ("dgx-h100", 1024, {"profile": "resnet-50", "reducers": ("fp16",)}),
    ("leaf-spine", 32, {"model": "gnmt-8"}),
    ("fat-tree", 64, {"trace": "ncf", "scale_to": "350M", "reducers": ("union", "topk:density=0.01")}),
    ("single-switch", 64, {"trace": "synthetic:density=0.01,overlap=0.5,tail=2.5"}),
    ("single-switch", 512, {"trace": "synthetic:density=0.01,overlap=0.5", "reducers": ("union",)}),
    ("fat-tree", 64, {}),
    *(
        ("dgx-h100", workers, {"profile": name, "reducers": names, "compute_cv": 0.05})
        for workers, name in ((8, "resnet-50"), (16, "resnet-50"), (8, "bert-base"), (16, "bert-base"))
        for names in (("fp16",), ("fp16", "topk:density=0.01", "powersgd", "int8"))
    ),
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
            words += [f"--{name.removesuffix('s').replace('_', '-')}", str(each)]
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
    """Return coefficients by name that minimise relative errors."""
    names = list(features[0])
    matrix = np.array([[row[name] for name in names] for row in features])
    found, _ = nnls(matrix / np.array(figures)[:, None], np.ones(len(figures)))
    return dict(zip(names, found.tolist(), strict=True))


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
