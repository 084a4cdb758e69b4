"""One run reads each file once, splits each option string once and builds each cluster once."""

import importlib
import sys
from collections import Counter

import pytest

import s2sim
from s2sim.collectives.algorithms import registry
from s2sim.experiment.prediction import predict, record
from s2sim.experiment.run import compare, resolve_checked
from s2sim.experiment.run_state import RunState
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.models import Model
from s2sim.topology.hardware import shipped_tables

COUNTED = (
    "s2sim.files.read_bytes",
    "s2sim.options.split_option_string",
    "s2sim.topology.hardware.load_gpu",
    "s2sim.topology.cluster.build_cluster",
    "s2sim.profiles.read.open_profile",
)
FAULTS = ("slow-rank:rank=3,factor=2",)


@pytest.fixture
def counts(monkeypatch):
    """Return the calls of functions that read or build something, by function and what they are called with."""
    found = {path.rpartition(".")[2]: Counter() for path in COUNTED}
    # The catalogue of hardware is read once in a process, whichever test is the first.
    shipped_tables()
    for path in COUNTED:
        module, _, name = path.rpartition(".")
        real = getattr(importlib.import_module(module), name)

        def counted(*arguments, _real=real, _found=found[name], **options):
            _found[(*map(str, arguments), *map(str, options.values()))[:4]] += 1
            return _real(*arguments, **options)

        for each in [each for key, each in sys.modules.items() if key.startswith("s2sim")]:
            if getattr(each, name, None) is real:
                monkeypatch.setattr(each, name, counted)
    registry._read_options.cache_clear()
    return found


ITERATIONS = {"workers": 4, "profile": "resnet-18", "reducers": ("topk",), "faults": FAULTS}
STEPS = {"workers": (2, 4), "trace": "lstm-lm-steps", "reducers": ("fp16", "topk"), "steps": 2}
SCALED = {"topology": "dgx-a100", "workers": 16, "model": "gnmt-8", "reducers": ("union",), "library": "nccl"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [ITERATIONS, STEPS, SCALED])
def test_a_run_reads_each_file_once(counts, options):
    s2sim.run(**{"topology": "leaf-spine"} | options)
    for name in ("read_bytes", "split_option_string", "build_cluster", "open_profile"):
        assert {what: count for what, count in counts[name].items() if count > 1} == {}, name
    # Of the topology, and of the profile, which names the same one.
    assert counts["load_gpu"].total() == 1
    assert sum(count for (path, *_), count in counts["read_bytes"].items() if path.endswith(".toml")) <= 5
    # One cluster at its own rate, and one at each rate that break-even was looked for at.
    assert counts["build_cluster"].total() <= 40


def test_what_is_recorded_is_predicted_on_other_clusters():
    spec = RunSpec("leaf-spine", (4,), ("dense", "fp16", "topk"), "lstm-lm")
    here = resolve_checked(spec)
    recorded, refused = record(here, 4)
    assert refused == []
    rows = [each.row for each in predict(here, recorded)]
    assert rows == [each.row for each in predict(here, recorded)]
    elsewhere = resolve_checked(RunSpec("ring", (4,), spec.reducers, spec.trace, overrides=("nic.rate=1Gbps",)))
    slower = [each.row for each in predict(elsewhere, recorded, thorough=False)]
    for own, other in zip(rows, slower, strict=True):
        assert other.time_s.total > own.time_s.total
        assert (other.error, other.payload_bytes_per_rank) == (own.error, own.payload_bytes_per_rank)


def test_record_predict_and_compare_are_a_run():
    spec = RunSpec("leaf-spine", (4,), ("dense", "fp16", "topk"), "lstm-lm")
    scenario = resolve_checked(spec)
    recorded, _ = record(scenario, 4)
    result = compare(spec, scenario, RunState({4: predict(scenario, recorded)}))
    assert result.to_json() == s2sim.run(spec=spec, break_even=False).to_json()


def test_a_scenario_keeps_its_target_as_a_value():
    assert isinstance(resolve_checked(RunSpec("leaf-spine", (2,), profile="resnet-50")).target, Model)
