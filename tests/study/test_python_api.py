"""What a caller in Python meets first: names, keywords, and what a wrong one says."""

import re
import tomllib
from dataclasses import fields
from importlib.resources import files
from inspect import getdoc, isclass, signature
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest

import s2sim
from s2sim.collectives import KINDS
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.cluster_spec import ClusterSpec, NetworkSpec, options_of
from s2sim.experiment.spec import CODEC_BASES, RunSpec
from s2sim.regimes.map import RegimeSpec
from s2sim.traffic.spec import CollectiveSpec, FlowsSpec
from s2sim.training.spec import TrainSpec
from s2sim.validation.calibrate_spec import CalibrateSpec

SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"


@pytest.fixture
def transfers(tmp_path):
    path = tmp_path / "transfers.csv"
    path.write_text("start_s,src,dst,bytes\n0,0,4,1000000\n0,1,5,1000000\n")
    return path


def test_dir_shows_the_api_and_each_of_it_is_there():
    assert dir(s2sim) == sorted(s2sim.__all__)
    assert {"run", "run_collective", "run_flows", "reduce_once", "S2SimError"} <= set(dir(s2sim))
    assert all(getattr(s2sim, name) is not None for name in dir(s2sim))


def test_another_name_is_told_the_nearest():
    with pytest.raises(AttributeError, match=r"has no attribute 'run_collectiv' .*did you mean 'run_collective'"):
        _ = s2sim.run_collectiv


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in s2sim.__all__ if name.startswith(("run", "reduce", "Run"))),
        "experiment.prediction.predict",
        "experiment.prediction.record",
        "regimes.map.RegimeSpec",
        "traffic.spec.CollectiveSpec",
        "traffic.spec.FlowsSpec",
        "train",
        "training.spec.TrainSpec",
        "validation.calibrate_spec.CalibrateSpec",
        "validation.validate_iterations.validate_iterations",
    ],
)
def test_help_has_all_parameters_within_120_columns(name):
    called = resolve_name(f"s2sim.{name}")
    text = getdoc(called)
    names = options_of(called) if isclass(called) else signature(called).parameters
    assert [each for each in names if not re.search(rf"^{each} : ", text, re.MULTILINE)] == []
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"topologie": "fat-tree", "workers": 4}, "takes no 'topologie' .did you mean 'topology'?"),
        ({"topology": "fat-tree", "nworkers": 4}, "takes no 'nworkers' .did you mean 'workers'?"),
        ({"topology": "fat-tree", "workers": 4, "reducer": "union"}, "takes no 'reducer' .did you mean 'reducers'?"),
        ({"topology": "fat-tree", "workers": "a"}, r"workers = \('a',\): input should be a valid integer"),
        ({"topology": "fat-tree", "workers": 4.0}, "workers = .*valid integer"),
        ({"topology": "fat-tree", "workers": True}, "workers = .*valid integer"),
        ({"topology": 5, "workers": 4}, "topology = 5: input should be a valid string"),
        ({"topology": "fat-tree", "workers": 4, "max_error": "small"}, "max_error = 'small': .*valid number"),
        ({"topology": "fat-tree", "workers": 4, "reducers": 5}, "reducers = 5"),
        ({"topology": "fat-tree", "workers": 4, "steps": "2"}, "steps = '2'"),
        ({"spec": {"workers": 4}}, "spec is a dict: give a RunSpec"),
        ({"spec": s2sim.RunSpec("fat-tree", (4,)), "seed": 1}, "spec holds the whole experiment, so seed cannot"),
        ({"topology": "fat-tree"}, "needs a topology and a number of workers"),
    ],
)
def test_a_wrong_argument_of_run_is_one_error_that_names_the_right_one(named, said):
    with pytest.raises(OptionError, match=said) as raised:
        s2sim.run(**named)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"nworkers": 4, "size_bytes": 10}, "run_collective takes no 'nworkers' .did you mean 'workers'?"),
        ({"size_bytes": 10}, "missing a required argument: 'workers'"),
        ({"workers": 4, "size_bytes": "10MiB"}, "size_bytes = '10MiB': .*valid integer"),
        ({"workers": "x", "size_bytes": 10}, "workers = 'x'"),
    ],
)
def test_so_it_is_with_one_collective(named, said):
    with pytest.raises(OptionError, match=said):
        s2sim.run_collective("all_reduce", "fat-tree", **named)


def test_more_arguments_than_there_are_are_an_error_of_one_line():
    with pytest.raises(OptionError, match=r"s2sim\.run: too many positional arguments; see help\(s2sim\.run\)"):
        s2sim.run("fat-tree", 64)


def test_flows_are_sent_from_python(transfers):
    result = s2sim.run_flows(transfers, "fat-tree", network="fluid")
    assert result.finish_s.shape == (2,)
    assert result.spec.file == str(transfers)
    with pytest.raises(OptionError, match=r"takes no 'netwrok' .did you mean 'network'?"):
        s2sim.run_flows(transfers, "fat-tree", netwrok="packet")


def test_what_numpy_and_pathlib_give_is_taken():
    one = s2sim.run_collective("all_gather", "fat-tree", workers=np.int64(2), size_bytes=np.array([1024, 2048]))
    assert one.spec.size_bytes == (1024, 2048)
    shipped = Path(__file__).parents[2] / "topologies" / "fat-tree.toml"
    found = s2sim.run(shipped, workers=np.array([2]), reducers="union", trace=SMALL, break_even=False)
    assert found.spec.topology == str(shipped)
    assert found.spec.workers == (2,)


def test_training_and_calibration_take_keywords_or_a_spec():
    calls = (
        (s2sim.train, TrainSpec("fat-tree", model="cnn")),
        (s2sim.run_calibration, CalibrateSpec("dgx-h100", logs=("a",))),
    )
    for call, spec in calls:
        with pytest.raises(OptionError, match="spec holds all of it, so seed cannot"):
            call(spec, seed=1)
        with pytest.raises(OptionError, match=r"takes no 'topologie' .did you mean 'topology'?"):
            call(topologie="fat-tree")
    with pytest.raises(S2SimError, match="no-log"):
        s2sim.run_calibration(topology="dgx-h100", logs=["no-log.txt"])


def test_every_text_is_of_a_field_of_a_spec_and_names_what_there_is():
    specs = {
        spec.__name__: spec
        for spec in (ClusterSpec, NetworkSpec, RunSpec, TrainSpec, CollectiveSpec, FlowsSpec, RegimeSpec, CalibrateSpec)
    }
    rows = tomllib.loads(files("s2sim.experiment").joinpath("options.toml").read_text("utf-8"))
    shared = rows.pop("*")
    for name, texts in rows.items():
        assert texts.keys() <= {field.name for field in fields(specs[name])}, name
        assert texts.keys() <= options_of(specs[name]).keys(), name
    used = {text for texts in rows.values() for text in texts.values() if isinstance(text, str)}
    assert used == shared.keys()
    assert options_of(CollectiveSpec)["kind"][1].text == f"{', '.join(KINDS)}."
    assert options_of(RunSpec)["codec_as"][1].metavar == "|".join(CODEC_BASES)
