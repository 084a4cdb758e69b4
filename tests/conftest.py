"""How many examples properties are tried on, and cluster files that many tests write for themselves."""

import fcntl
import gc
import hashlib
import os
import pickle
from functools import cache

import pytest
import typer.main
from hypothesis import settings

from s2sim.cli import output
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

# The same examples at every run, so that whoever sees a failure can see it again; no deadline: how fast depends on who
# else uses the cores.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick"))

RATE = "50GiB/s"
RATE_BPS = 50 * 2**30


@pytest.fixture(autouse=True, scope="session")
def no_log():
    """How far a command is after ten seconds depends on who else uses the cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "LOG_EVERY_S", float("inf"))
        yield


def pytest_configure():
    """Give each worker, and each process that a test starts, one thread: the workers fill the cores."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # Every test records for itself; those of the store have one of their own.
    os.environ["S2SIM_CACHE"] = "off"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what runs only with an extra: all of three folders, and tests skipped without one; the longest first."""
    for item in items:
        reasons = [mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")]
        if {"pytorch", "compiled", "notebooks"} & set(item.path.parts) or any("the extra" in why for why in reasons):
            item.add_marker("extra")
    # It takes two minutes: begun first, it does not run alone at the end.
    items.sort(key=lambda item: "[s2sim dev validate]" not in item.name)


def pytest_collection():
    """Collect no garbage while tests are found: hardly any of what is made then goes."""
    gc.disable()


def pytest_collection_finish():
    """Leave tests, modules and classes, which stay to the end, out of searches for garbage, and search less often.

    Together that is a tenth of the CPU time.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(scope="session", autouse=True)
def one_tree_of_commands():
    """Make the tree of commands once: a process of a user's own makes it at its one call, and that takes 30 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


def pytest_runtest_setup():
    """Leave what commands print as it is in a pipe, whatever a library has told the environment of a terminal."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture
def cluster_file(tmp_path):
    """Write a topology file from its fabric table; hosts have one GPU and one port of 50 GiB/s."""

    def write(fabric, *, node="gpus = 1", extra="", nic=f'rate = "{RATE}"', routing=""):
        path = tmp_path / f"cluster{len(list(tmp_path.iterdir()))}.toml"
        path.write_text(f"{routing}\n[node]\n{node}\n{extra}\n[nic]\n{nic}\n[fabric]\n{fabric}\n")
        return str(path)

    return write


@pytest.fixture
def make_cluster(cluster_file):
    """Build a cluster from the same arguments."""

    def build(workers, fabric, *, placement="linear", **tables):
        return build_cluster(load_shape(cluster_file(fabric, **tables)), workers, placement=placement)

    return build


@pytest.fixture
def one_validation(monkeypatch, tmp_path_factory, worker_id):
    """Let all workers together predict the public curves and iterations, a minute each, once.

    Returns what validates the curves, and what validates the iterations.
    """
    from s2sim.validation import validate_curves, validate_iterations

    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent

    def once(name, compute):
        kept = shared / f"{name}.pickle"
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_bytes(pickle.dumps(compute()))
            return pickle.loads(kept.read_bytes())

    predict, curves, iterations = (
        validate_curves._predict_curve,
        validate_curves.run_validation,
        validate_iterations.validate_iterations,
    )

    def predict_once(curve, predictor, *, tell):
        name = hashlib.sha256(pickle.dumps((curve, tell))).hexdigest()
        return once(name, lambda: predict(curve, predictor, tell=tell))

    def curves_once(folder=None, *progress, fit=True):
        if folder is not None or not fit:
            return curves(folder, *progress, fit=fit)
        return once("curves", lambda: curves(None, *progress))

    def iterations_once(folder=None, *progress):
        return iterations(folder, *progress) if folder else once("iterations", lambda: iterations(None, *progress))

    monkeypatch.setattr(validate_curves, "_predict_curve", predict_once)
    monkeypatch.setattr(validate_curves, "run_validation", curves_once)
    monkeypatch.setattr(validate_iterations, "validate_iterations", iterations_once)
    return curves_once, iterations_once


@pytest.fixture
def switch_fabric():
    return 'kind = "single-switch"\n[fabric.link]\nlatency = "500ns"'


@pytest.fixture(scope="session")
def fair_rates():
    """Return the naive solver of max-min fair rates."""
    from .network.oracle import fair_rates

    return fair_rates


@pytest.fixture(scope="session")
def testbed_rows():
    """Return what makes rows of a testbed of known constants."""
    from .study import testbed_rows

    return testbed_rows


def _event(name, start, duration, category="cpu_op", **arguments):
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "args": arguments}


def _operation(name, start, duration, number, **more):
    return _event(name, start, duration, **{"Sequence number": number, "Fwd thread id": 0}, **more)


def _function(name, start, duration, number):
    name = f"autograd::engine::evaluate_function: {name}Backward0"
    return _event(name, start, duration, **{"Sequence number": number, "Fwd thread id": 1})


def _accumulated(start, shape):
    return _event("torch::autograd::AccumulateGrad", start, 10, **({} if shape is None else {"Input Dims": [shape]}))


@pytest.fixture
def profiler_step():
    """Return what makes the events of one step in PyTorch's profiler: a table of 90 rows, then a linear layer.

    Forward begins 100 us after the step, backward 300 us; gradients are there at 360, 440 and 570 us, all of them
    ``later``.
    """

    def step(number, later=0, shapes=((7,), (7, 3), (90, 3))):
        at, first = 1e9 + 10_000 * number, 3 * number
        return [
            _event(f"ProfilerStep#{number}", at, 1000 + later, category="user_annotation"),
            _event("aten::randint", at + 10, 5),
            _operation("aten::embedding", at + 100, 20, first, **{"Input Dims": [[90, 3], [4, 2]]}),
            _operation("aten::t", at + 150, 5, first + 1),
            _operation("aten::addmm", at + 160, 30, first + 2),
            _function("Addmm", at + 300, 40, first + 2),
            _accumulated(at + 350 + later, shapes[0]),
            _function("T", at + 420 + later, 5, first + 1),
            _accumulated(at + 430 + later, shapes[1]),
            _function("Embedding", at + 450 + later, 100, first),
            _accumulated(at + 560 + later, shapes[2]),
            _event("Optimizer.step#SGD.step", at + 700 + later, 80, category="user_annotation"),
        ]

    return step
