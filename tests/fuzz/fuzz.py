"""Changed files for every reader: what is not read ends in one line, within 10 seconds and 2 GB.

    python tests/fuzz/fuzz.py --seconds 20                    # every reader in turn; the seed of the day
    python tests/fuzz/fuzz.py --cases 1000000                 # a night
    python tests/fuzz/fuzz.py --reader topology --seed 7 --case 41    # one of them again

A case that fails, by a traceback, a signal, more than 10 seconds or more than 2 GB, is printed with what makes it
again, and its files are kept in --keep. The exit code is 1 if any did.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from mutate import mutate_archive, mutate_bytes, mutate_json, mutate_safetensors, mutate_text

from s2sim.errors import S2SimError

ROOT = Path(__file__).parents[2]
INPUT = ROOT / "tests" / "golden" / "input"
SECONDS, BYTES = 10, 2 << 30
# Cases that one process runs before a new one: what one leaks does not fail another.
BATCH = 250
MUTATE = {".json": mutate_json, ".safetensors": mutate_safetensors, ".npz": mutate_archive, ".pt": mutate_archive}
MUTATE |= dict.fromkeys((".npy", ".sqlite", ".et"), mutate_bytes)


_WAY = {"time": 10.5, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": 0.0}
NCCL_JSON = json.dumps(
    {
        "version": 3,
        "args": ["all_reduce_perf", "-b", "8"],
        "nccl_version": 22705,
        "config": {"nthreads": 1, "ngpus": 2, "devices": [{"rank": 0, "hostname": "a", "device_info": "H100"}]},
        "results": [{"size": size, "out_of_place": _WAY, "in_place": _WAY} for size in (8, 1024)],
    }
)
_OF_RCCL = {"name": "AllReduce", "ranks": 8, "ranksPerNode": 4, "gpusPerRank": 1, "size": 8, "inPlace": 0, "time": 10.5}
RCCL_JSON = json.dumps([{**_OF_RCCL, "wrong": "0"}, {**_OF_RCCL, "size": 1024, "wrong": "N/A"}])
RECORDER_JSON = (
    '{"version": "2.10", "comm_lib_version": "2.27.5", "pg_config": {"0": {"name": "0", "ranks": "[0, 1]"}}, '
    '"entries": [{"profiling_name": "nccl:all_reduce", "process_group": ["0", "all"], "input_sizes": [[1024, 4]], '
    '"input_dtypes": ["Float"], "output_sizes": [[1024, 4]], "output_dtypes": ["Float"], "duration_ms": 0.5}]}'
)
# An all-reduce of 4 KiB in 50 us: type 7, field 7, and the attributes comm_type and comm_size.
CHAKRA = b"\x07\x0a\x050.0.4\x23\x18\x07\x38\x32\x52\x0d\x0a\x09comm_type\x48\x00\x52\x0e\x0a\x09comm_size\x48\x80\x20"
OSU_TABLE = "# OSU MPI-CUDA Allreduce Latency Test v7.0\n# Size       Avg Latency(us)\n4    8.30\n1048576   95.2\n"
RCCL_CSV = "numCycle,collective,ranks,ranksPerNode,gpusPerRank,size,inplace,time,#wrong\n0,AllReduce,8,4,1,8,0,10.5,0\n"


NODE_XML = (
    '<system version="1"><cpu numaid="0"><pci busid="1" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">'
    '<gpu sm="90"><nvlink target="2" count="4" tclass="0x030200"/></gpu></pci><pci busid="2"><gpu sm="90"/></pci>'
    '<nic><net name="mlx5_0" speed="400000"/></nic></cpu></system>'
)
NODE_MATRIX = (
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV18\tPIX\t0-7\nGPU1\tNV18\t X \tSYS\t0-7\n\n  NIC0: mlx5_0\n"
)


SIMGRID_XML = (
    '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1"><zone id="w" routing="Floyd">'
    '<cluster id="c" prefix="n" radical="0-3,9" speed="1Gf" bw="125MBps" lat="5us" bb_bw="2GBps" bb_lat="9us"/>'
    '<host id="a" speed="1Gf"/><link id="l" bandwidth="1GBps" latency="1us" sharing_policy="SPLITDUPLEX"/>'
    '<route src="a" dst="nc_router"><link_ctn id="l" direction="UP"/></route></zone></platform>'
)
ASTRA_YML = (
    "topology: [ Ring, FullyConnected, Switch ]  # blocks\nnpus_count: [ 2, 3, 2 ]\n"
    "bandwidth: [ 200.0, 100.0, 50.0 ]\nlatency: [ 50, 500, 2000.0 ]\n"
)
SIMAI_LINKS = (
    "7 2 2 1 8 A100\n4 5 6 \n0 4 2400Gbps 25ps 0\n1 4 2400Gbps 25ps 0\n2 5 2400Gbps 25ps 0\n3 5 2400Gbps 25ps 0\n"
    + "".join(f"{gpu} 6 100Gbps 0.0005ms 0\n" for gpu in range(4))
)
_STEP = '<step s="{}" type="{}" srcbuf="i" srcoff="{}" dstbuf="i" dstoff="{}" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
MSCCL_XML = '<algo name="a" nchunksperloop="2" nchannels="1" proto="LL" ngpus="2" coll="allreduce" inplace="1">'
for _rank in (0, 1):
    MSCCL_XML += f'<gpu id="{_rank}" i_chunks="2" o_chunks="0" s_chunks="0"><tb id="0" send="{1 - _rank}" '
    MSCCL_XML += f'recv="{1 - _rank}" chan="0">{_STEP.format(0, "s", 1 - _rank, 1 - _rank)}'
    MSCCL_XML += f"{_STEP.format(1, 'rrcs', _rank, _rank)}{_STEP.format(2, 'r', 1 - _rank, 1 - _rank)}</tb></gpu>"
MSCCL_XML += "</algo>"


def graphs() -> dict[str, bytes]:
    """Return a graph of four hosts in every form, and the whole graph of a cluster."""
    import networkx as nx

    from s2sim.topology.cluster import build_cluster
    from s2sim.topology.read_file import load_shape

    graph = nx.Graph([("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("x", "y")], **{"node.gpus": 1})
    graph.add_edges_from(list(graph.edges), rate="25Gbps", latency_us=2)
    whole = build_cluster(load_shape("fat-tree", ["fabric.hosts_per_leaf=1"]), 8).to_networkx()
    forms = {
        "net.xml": SIMGRID_XML,
        "net.yml": ASTRA_YML,
        "net.topo": SIMAI_LINKS,
        "net.graphml": "\n".join(nx.generate_graphml(graph)),
        "whole.graphml": "\n".join(nx.generate_graphml(whole)),
        "net.json": json.dumps(nx.node_link_data(graph, edges="links")),
        "net.edges": "\n".join(f"{one} {other} 25Gbps 2us" for one, other in graph.edges),
    }
    return {name: text.encode() for name, text in forms.items()}


@dataclass(frozen=True)
class Reader:
    """What reads files: their content by name, and the function that is given their folder."""

    files: Callable[[], dict[str, bytes]]
    read: Callable[[Path], object]


def shipped(*paths: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


def folder(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def saved(name: str, save: Callable[[io.BytesIO], object]) -> dict[str, bytes]:
    buffer = io.BytesIO()
    save(buffer)
    return {name: buffer.getvalue()}


def small_trace() -> dict[str, bytes]:
    from s2sim.gradients.import_trace import import_trace

    with tempfile.TemporaryDirectory() as made:
        import_trace([INPUT / "rank0.npy", INPUT / "rank1.npy"], Path(made) / "trace", model="small")
        return folder(Path(made) / "trace")


def profiler_trace() -> dict[str, bytes]:
    """Return two steps of PyTorch's profiler, made by hand."""
    events = []
    for number in range(3):
        at = 1e9 + 10_000 * number
        for name, kind, start, lasts, more in (
            (f"ProfilerStep#{number}", "user_annotation", 0, 1000, {}),
            ("aten::addmm", "cpu_op", 100, 50, {"Sequence number": number, "Input Dims": [[4, 3], [3, 7]]}),
            ("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", 300, 40, {"Sequence number": number}),
            ("torch::autograd::AccumulateGrad", "cpu_op", 350, 10, {"Input Dims": [[7, 3]]}),
            ("Optimizer.step#SGD.step", "user_annotation", 700, 80, {}),
        ):
            events.append({"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": at + start, "dur": lasts})
            events[-1]["args"] = more
    return {"trace.json": json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}).encode()}


def result_json() -> dict[str, bytes]:
    import s2sim

    found = s2sim.run(topology="ring", workers=2, trace="ncf", reducers=["fp16"])
    return {"result.json": json.dumps(found.to_json()).encode()}


def checkpoint() -> dict[str, bytes]:
    from s2sim.training.run import save

    with tempfile.TemporaryDirectory() as made:
        save(Path(made) / "c.npz", {"weights": np.arange(6.0), "curve": [{"loss": 0.5, "step": 1}]}, {"seed": 0})
        return folder(Path(made))


def sweep_store() -> dict[str, bytes]:
    import s2sim

    with tempfile.TemporaryDirectory() as made:
        base = {"topology": "ring", "kind": "all_reduce", "size": "1MB"}
        s2sim.sweep({"what": "collective", "base": base, "axes": {"workers": [2, 3]}}, out=made)
        return {path.name: path.read_bytes() for path in Path(made).iterdir()}


def torch_file() -> dict[str, bytes]:
    import torch

    layers = {"table": torch.ones(4, 2).to_sparse(1), "weight": torch.ones(3)}
    return saved("grad.pt", lambda file: torch.save(layers, file))


def option_strings() -> dict[str, bytes]:
    words = ["topk:density=0.01,ef=true", "powersgd:rank=4", "s2:rows=3,cells=4", "per-layer:dense=fp16,sparse=union"]
    words += ["nccl:or=owners", "synthetic:density=0.01,overlap=0.5", "gpt2:precision=bf16", "hierarchical:inner=ring"]
    return {"words.txt": "\n".join(words).encode()}


def read_words(given: Path) -> None:
    """Read each line as what it could be: a reducer, an algorithm, a library, a profile, gradients."""
    from s2sim.collectives.algorithms.registry import read_algorithm
    from s2sim.gradients.synthetic import load_trace
    from s2sim.libraries.lowering import choose_library
    from s2sim.profiles.read import load_profile
    from s2sim.reducers.registry import make_reducer

    readers = (make_reducer, read_algorithm, choose_library, load_profile, partial(load_trace, workers=2))
    for line in (given / "words.txt").read_text("utf-8", "replace").split("\n"):
        for read in readers:
            try:
                read(line)
            except S2SimError:
                continue


def readers() -> dict[str, Reader]:
    """Return every reader by name."""
    from s2sim.advice.search import Changes
    from s2sim.collectives.schedules.demand import make_demand, read_sizes
    from s2sim.collectives.timing.timer import Timer
    from s2sim.experiment.rows import Result
    from s2sim.experiment.scenario.reducers import resolve_run
    from s2sim.experiment.scenario.training import read_compute_times
    from s2sim.experiment.spec import RunSpec
    from s2sim.gradients.import_trace import read_arrays
    from s2sim.gradients.models import load_model
    from s2sim.gradients.synthetic import load_trace
    from s2sim.libraries.constants import read_constants
    from s2sim.libraries.library import read_calibration
    from s2sim.profiles.kineto import import_profile
    from s2sim.profiles.read import load_profile
    from s2sim.reducers.systems.model_averaging import read_weights
    from s2sim.sweeps.store import SweepResult
    from s2sim.sweeps.study import Study
    from s2sim.topology.cluster import build_cluster
    from s2sim.topology.hardware import load_gpu
    from s2sim.topology.read_file import load_shape
    from s2sim.traffic.flows import read_transfers
    from s2sim.traffic.measured_files import read_measured
    from s2sim.validation.curve import read_folder
    from s2sim.validation.import_machine import import_machine
    from s2sim.validation.iteration_result import read_iterations

    single, two = build_cluster(load_shape("single-switch"), 2), make_demand("all_reduce", 4096, 2)

    def arrays() -> dict[str, np.ndarray]:
        return {"weight": np.ones((3, 2), np.float32), "bias": np.zeros(3, np.float32)}

    def safetensors() -> dict[str, bytes]:
        from safetensors.numpy import save

        return {"grad.safetensors": save(arrays())}

    def text(name: str, content: str) -> Callable[[], dict[str, bytes]]:
        return lambda: {name: content.encode()}

    study = (
        'what = "run"\n[base]\ntrace = "ncf"\nreducers = ["union", "topk:density=0.01"]\n[axes]\nworkers = [8, 16]\n'
        '"nic.rate" = { geometric = ["10Gbps", "100Gbps", 3] }\n[where]\nkeep = "workers % 8 == 0"\n[sample]\n'
        'method = "sobol"\ncells = 4\n'
    )
    changes = '[[change]]\nname = "faster"\noptions = [{ "nic.rate" = "25Gbps", price = "4 USD" }, { batch = 32 }]'
    calibration = (
        'name = "mine"\nbase = "nccl"\nsource = "a log"\n[fitted]\ntopology = "dgx-h100"\n'
        'collectives = ["all_reduce"]\n'
        "workers = [8, 16]\nnodes = [1, 2]\nsmallest_bytes = 1024\nlargest_bytes = 1048576\npoints = 3\n"
        'median_error_before = 0.2\nmedian_error_after = 0.1\nversions = ["2.20"]\nlogs = ["a.log"]\n'
    )
    clusters = [*(ROOT / "topologies").glob("*.toml"), *(ROOT / "topologies" / "clusters").glob("*.toml")]
    clusters = [path for path in clusters if path.name != "hardware.toml"]
    hardware = (
        '[gpu.mine]\ndescription = "mine"\nkind = "datasheet"\nsource = "its maker"\nmemory = "80GB"\n'
        'memory_bandwidth = "2TB/s"\nfp32_flops = "19.5TFLOP/s"\nsms = 108\nmemory_efficiency = 0.8\npcie = "gen4"\n'
        'kernel_launch = "4us"\nhost_sync = "10us"\ndense_encode_passes = 3\ndense_decode_passes = 3\n'
    )
    return {
        "trace": Reader(small_trace, lambda at: load_trace(at, workers=2).gradient(0, 0)),
        "npy": Reader(lambda: shipped(INPUT / "rank0.npy"), lambda at: read_arrays(at / "rank0.npy")),
        "npz": Reader(lambda: saved("g.npz", lambda f: np.savez(f, **arrays())), lambda at: read_arrays(at / "g.npz")),
        "safetensors": Reader(safetensors, lambda at: read_arrays(at / "grad.safetensors")),
        "pt": Reader(torch_file, lambda at: read_arrays(at / "grad.pt")),
        "profile": Reader(lambda: shipped(ROOT / "profiles" / "ncf.toml"), lambda at: load_profile(f"{at}/ncf.toml")),
        "kineto": Reader(profiler_trace, lambda at: import_profile(at / "trace.json", name="mine")),
        "model": Reader(lambda: shipped(ROOT / "models" / "ncf.toml"), lambda at: load_model(f"{at}/ncf.toml").layers),
        "topology": Reader(
            lambda: shipped(*clusters), lambda at: [build_cluster(load_shape(path), 4).cuts() for path in at.iterdir()]
        ),
        "graph": Reader(graphs, lambda at: [read_network(path) for path in at.iterdir()]),
        "msccl": Reader(text("a.xml", MSCCL_XML), lambda at: Timer(single, f"{at}/a.xml").time(two)),
        "gpu": Reader(text("gpu.toml", hardware), lambda at: load_gpu(f"{at}/gpu.toml")),
        "placement": Reader(
            text("place.txt", "0 0\n0 2  # the third\n\n1\n"),
            lambda at: build_cluster(load_shape("fat-tree"), 3, placement=f"{at}/place.txt"),
        ),
        "library": Reader(
            lambda: shipped(ROOT / "libraries" / "nccl.toml"), lambda at: read_constants(at / "nccl.toml")
        ),
        "host-library": Reader(
            lambda: shipped(ROOT / "libraries" / "gloo.toml"), lambda at: read_constants(at / "gloo.toml", (), "gloo")
        ),
        "calibration": Reader(text("mine.toml", calibration), lambda at: read_calibration(f"{at}/mine.toml")),
        "nccl-tests": Reader(lambda: shipped(INPUT / "measured.log"), lambda at: read_measured(at / "measured.log")),
        "nccl-tests-json": Reader(text("m.json", NCCL_JSON), lambda at: read_measured(at / "m.json")),
        "rccl-tests-json": Reader(text("m.json", RCCL_JSON), lambda at: read_measured(at / "m.json")),
        "rccl-tests-csv": Reader(text("m.csv", RCCL_CSV), lambda at: read_measured(at / "m.csv")),
        "flight-recorder": Reader(text("f.json", RECORDER_JSON), lambda at: read_measured(at / "f.json")),
        "flight-recorder-pickle": Reader(
            lambda: {"f": pickle.dumps(json.loads(RECORDER_JSON), 2)}, lambda at: read_measured(at / "f")
        ),
        "chakra": Reader(lambda: {"t.et": CHAKRA}, lambda at: read_measured(at / "t.et")),
        "osu": Reader(text("o.txt", OSU_TABLE), lambda at: read_measured(at / "o.txt")),
        "nccl-topology": Reader(text("n.xml", NODE_XML), lambda at: import_machine(at / "n.xml").text),
        "nvidia-smi-topo": Reader(
            text("n.txt", NODE_MATRIX), lambda at: import_machine(at / "n.txt", gpu="h100", nic_rate="1Gbps").text
        ),
        "transfers": Reader(lambda: shipped(INPUT / "transfers.csv"), lambda at: read_transfers(at / "transfers.csv")),
        "sizes": Reader(lambda: shipped(INPUT / "sizes.txt"), lambda at: read_sizes(at / "sizes.txt")),
        "weights": Reader(
            text("w.csv", "0.5,0.5,0\n0.5,0.25,0.25\n0,0.25,0.75\n"), lambda at: read_weights(f"{at}/w.csv")
        ),
        "compute-times": Reader(lambda: shipped(INPUT / "times.csv"), lambda at: read_compute_times(f"{at}/times.csv")),
        "curves": Reader(lambda: folder(INPUT / "my-curves"), read_folder),
        "iterations": Reader(lambda: folder(INPUT / "my-iterations"), read_iterations),
        "spec": Reader(lambda: shipped(INPUT / "spec.json"), lambda at: resolve_run(RunSpec.load(at / "spec.json"))),
        "result": Reader(result_json, lambda at: Result.load(at / "result.json")),
        "study": Reader(text("study.toml", study), lambda at: Study.load(at / "study.toml").cells()),
        "changes": Reader(text("changes.toml", changes), lambda at: Changes.load(at / "changes.toml", 2, 8)),
        "sweep": Reader(sweep_store, lambda at: SweepResult.load(at).rows),
        "checkpoint": Reader(checkpoint, read_checkpoint),
        "options": Reader(option_strings, read_words),
    }


def read_network(path: Path) -> object:
    from s2sim.topology.cluster import build_cluster
    from s2sim.topology.describe import describe_cluster
    from s2sim.topology.read_file import load_shape

    given = ["node.gpus=1"] if path.suffix in (".json", ".edges") else []
    return describe_cluster(build_cluster(load_shape(path, given), 4))


def read_checkpoint(at: Path) -> object:
    from s2sim.training.run import load

    return load(at / "c.npz", {"seed": 0})


def write_case(files: dict[str, bytes], rng: random.Random, at: Path) -> None:
    """Write the files of a case, one of them changed."""
    changed = rng.choice(sorted(files))
    mutate = MUTATE.get(Path(changed).suffix, mutate_text)
    write_files({**files, changed: mutate(files[changed], rng)}, at)


def write_files(files: dict[str, bytes], at: Path) -> None:
    for name, content in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(content)


def run_case(reader: Reader, files: dict[str, bytes], rng: random.Random, at: Path) -> None:
    """Read the files of one case; what is no `S2SimError` of one line is raised."""
    write_case(files, rng, at)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings(action="ignore"):
            reader.read(at)
    except S2SimError as error:
        if len(str(error)) > 5_000:
            raise AssertionError(f"an error of {len(str(error))} letters") from error
    finally:
        signal.alarm(0)
    if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 > BYTES:
        raise AssertionError("more than 2 GB")


def run_batch(name: str, reader: Reader, files: dict[str, bytes], seed: int, numbers: range, keep: Path) -> int:
    """Run some cases in a process of their own and return the number of the first one that was not begun."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES + (1 << 30),) * 2)
        for number in numbers:
            os.write(write_end, number.to_bytes(8, "little"))
            at = Path(tempfile.mkdtemp(dir=keep))
            try:
                run_case(reader, files, random.Random(f"{seed}:{name}:{number}"), at)
            except BaseException:  # noqa: BLE001  (whatever it is, it is what is looked for)
                lines = [line[:200] for line in traceback.format_exc().splitlines()]
                os.write(2, "\n".join(["", f"{name}, seed {seed}, case {number}: files in {at}", *lines, ""]).encode())
                os._exit(1)
            shutil.rmtree(at)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        begun = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        print(
            f"\n{name}, seed {seed}, case {int.from_bytes(begun[-8:], 'little')}: ended by signal {os.WTERMSIG(status)}"
        )
    return int.from_bytes(begun[-8:], "little") + 1 if status else -1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many seconds")
    parser.add_argument("--cases", type=int, default=10**12, help="stop after so many cases")
    parser.add_argument("--seed", type=int, default=datetime.now(UTC).date().toordinal(), help="default: the day")
    parser.add_argument("--reader", help="this one alone")
    parser.add_argument("--case", type=int, help="this case of --reader alone")
    parser.add_argument("--keep", type=Path, help="folder of the files of failing cases; default: a temporary one")
    options = parser.parse_args()
    options.keep = options.keep or Path(tempfile.mkdtemp(prefix="s2sim-fuzz-"))
    options.keep.mkdir(parents=True, exist_ok=True)
    return options


def seed_files(chosen: dict[str, Reader]) -> dict[str, dict[str, bytes]]:
    """Return the unchanged files of each reader, which it must accept; those of a missing extra are left out."""
    files = {}
    for name, reader in chosen.items():
        try:
            files[name] = reader.files()
        except ImportError as missing:
            print(f"{name} is left out: {missing}")
            continue
        with tempfile.TemporaryDirectory() as at:
            write_files(files[name], Path(at))
            reader.read(Path(at))
    return files


def main() -> int:
    """Run cases and return 1 if any failed."""
    options = parse_options()
    chosen = {name: each for name, each in readers().items() if options.reader in (None, name)}
    files = seed_files(chosen)
    end, cases, failures, first = time.monotonic() + options.seconds, 0, 0, options.case or 0
    batch = 1 if options.case is not None else 20 if options.seconds < 60 else BATCH
    while cases < (1 if options.case is not None else options.cases) and time.monotonic() < end:
        for name, content in files.items():
            numbers = range(first, first + batch)
            while numbers and time.monotonic() < end:
                after = run_batch(name, chosen[name], content, options.seed, numbers, options.keep)
                failures += after >= 0
                cases += (after if after >= 0 else numbers.stop) - numbers.start
                numbers = range(after if after >= 0 else numbers.stop, numbers.stop)
        first += batch
    print(f"seed {options.seed}: {cases:,} cases of {len(files)} readers, {failures} failed")
    if not failures:
        shutil.rmtree(options.keep, ignore_errors=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
