"""Profiles are read from files that fit their layer tables, and files that are none are refused in one line."""

import re
from collections import Counter
from pathlib import Path

import pytest

from s2sim.errors import S2SimError, UnknownNameError
from s2sim.files import data_directory
from s2sim.gradients.models import load_model
from s2sim.profiles.read import list_profiles, load_profile, open_profile, profile_names
from s2sim.profiles.sharding import shard_profile
from s2sim.topology.hardware import load_gpu

TABLE = """
description = "two layers"
kind = "user"
source = "this test"
sample = "row"
layers = [
  { name = "table", shape = [100, 4], sparse = true, values = 40 },
  { name = "dense", shape = [5, 2], positions = 3 },
]
[published]
parameters = 410
within = 0.0
kind = "user"
source = "this test"
"""

MEASURED = """
description = "two layers"
model = "MODEL"
gpu = "v100"
kind = "measured"
source = "this test"
tensors = [
  { name = "dense", backward = "30us", forward = "12us" },
  { name = "table", backward = "2.5us" },
]

[batch]
value = 8
kind = "user"
source = "this test"

[forward]
value = 0.5
kind = "estimated"
source = "half"

[memory_bound]
value = 0.25
kind = "estimated"
source = "a guess"

[optimizer]
time = "1ms"
kind = "measured"
source = "this test"
"""


@pytest.fixture
def write(tmp_path):
    """Write a profile of two layers, changed, and its layer table; returns its path."""
    table = tmp_path / "table.toml"
    table.write_text(TABLE)

    def written(old="", new=""):
        assert old in MEASURED
        path = tmp_path / "mine.toml"
        path.write_text(MEASURED.replace(old, new, 1).replace("MODEL", str(table)))
        return str(path)

    return written


def test_a_users_file_is_a_profile(write):
    profile = load_profile(write())
    assert (profile.name, profile.model, profile.gpu, profile.batch) == ("mine", "table", "v100", 8)
    assert profile.sample == "row"
    assert [(tensor.name, tensor.shape, tensor.sparse) for tensor in profile.tensors] == [
        ("dense", (5, 2), False),
        ("table", (100, 4), True),
    ]
    assert [tensor.forward_ps for tensor in profile.tensors] == [12_000_000, 1_250_000]
    assert (profile.forward_ps, profile.backward_ps, profile.optimizer_ps) == (13_250_000, 32_500_000, 10**9)
    assert (profile.memory_bound, profile.kind, profile.parameters) == (0.25, "measured", 410)


def test_tensors_with_shapes_need_no_layer_table(write):
    path = write('{ name = "dense"', '{ shape = [7], name = "bias"')
    with pytest.raises(S2SimError, match="'bias' is none of table"):
        load_profile(path)
    text = MEASURED.replace("MODEL", "my own").replace('name = "dense"', 'shape = [5, 2], name = "dense"')
    Path(path).write_text(text)
    with pytest.raises(S2SimError, match=r"tensor 'table' has no shape, and model 'my own' is no layer table"):
        load_profile(path)
    Path(path).write_text(text.replace('name = "table"', 'shape = [100, 4], sparse = true, name = "table"'))
    profile = load_profile(path)
    assert (profile.model, profile.parameters, profile.tensors[1].sparse) == ("my own", 410, True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"30us"', '"-30us"', "negative"),
        ('"30us"', '"nan us"', "not a time"),
        ('"30us"', '"inf us"', "not a time"),
        ('"30us"', '"30"', "no unit"),
        ('"30us"', "30", "string"),
        ('name = "dense"', 'name = "dens"', "did you mean 'dense'"),
        ('name = "dense"', 'name = "table"', "there twice"),
        ('  { name = "table", backward = "2.5us" },\n', "", "1 of the 2 tensors of table are missing, first 'table'"),
        ('name = "dense", ', 'name = "dense", shape = [2, 5], ', "is 5 x 2 in table"),
        ('name = "dense", ', 'name = "dense", sparse = true, ', "is 5 x 2 in table"),
        ('name = "dense", ', 'name = "dense", shape = [], ', "shape of numbers from 1"),
        (
            'name = "dense", ',
            'name = "dense", shape = [4611686018427387904, 4], ',
            "up to 1,125,899,906,842,624 elements",
        ),
        ("value = 8", "value = 0", "batch is 0"),
        ("value = 8", "value = 8.5", "batch is 8.5"),
        ("value = 0.25", "value = 1.25", "memory_bound is 1.25"),
        ("value = 0.25", "value = nan", "memory_bound"),
        ('[memory_bound]\nvalue = 0.25\nkind = "estimated"\nsource = "a guess"\n', "", "memory_bound is missing"),
        ('[forward]\nvalue = 0.5\nkind = "estimated"\nsource = "half"\n', "", "'table' has no forward"),
        ("value = 0.5", "value = -0.5", "forward is -0.5"),
        ('time = "1ms"', "", "either a time"),
        ('time = "1ms"', 'time = "1ms"\nrule = "adam"', "either a time"),
        ('time = "1ms"', 'rule = "adamw"', "rule"),
        ('gpu = "v100"', 'gpu = "v100"\ngpus = 4', "gpus"),
        ('gpu = "v100"\n', "", "gpu"),
        ('kind = "measured"', 'kind = "guessed"', "kind"),
        ('source = "a guess"', 'source = " "', "source is empty"),
        ("tensors = [", "tensors = []\nother = [", "other"),
        ("[batch]", "[batch", "not valid TOML"),
        (MEASURED, "", "is empty"),
        (MEASURED, "a = 1", "not a compute profile"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(write, old, new, message):
    with pytest.raises(S2SimError, match=message) as caught:
        load_profile(write(old, new))
    assert "\n" not in str(caught.value)


def test_a_file_is_measured_or_computed(write):
    efficiency = '[efficiency]\nvalue = 0.5\nkind = "user"\nsource = "this test"\n\n[batch]'
    with pytest.raises(S2SimError, match="either tensors"):
        load_profile(write("[batch]", efficiency))
    tensors = MEASURED[MEASURED.index("tensors = [") : MEASURED.index("[batch]")]
    with pytest.raises(S2SimError, match="either tensors"):
        load_profile(write(tensors, ""))
    with pytest.raises(S2SimError, match="efficiency is 40: it is a share of the peak, above 0 and at most 4"):
        load_profile(write(tensors, efficiency.removesuffix("[batch]").replace("0.5", "40")))


@pytest.mark.parametrize("name", ["resnet-50", "llama-7b"])
@pytest.mark.parametrize("asked", [None, "h100"])
def test_a_gpu_of_none_of_the_catalogue_is_refused_on_any_gpu(tmp_path, name, asked):
    """Of a measured profile, whose optimizer has a rule, and of a computed one."""
    text = (data_directory("profiles") / f"{name}.toml").read_text("utf-8")
    (tmp_path / "mine.toml").write_text(text.replace(f'gpu = "{open_profile(name).file.gpu}"', 'gpu = "nope"'), "utf-8")
    with pytest.raises(UnknownNameError, match=r"mine\.toml: unknown GPU 'nope'"):
        load_profile(str(tmp_path / "mine.toml"), gpu=asked)


def test_unknown_profiles_and_missing_files(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'resnet-50'"):
        load_profile("resnet50")
    with pytest.raises(S2SimError, match="there is no file"):
        load_profile(str(tmp_path / "none.toml"))
    with pytest.raises(S2SimError, match="is a directory"):
        load_profile(str(tmp_path) + "/")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if "llama" in name else []) for name in profile_names()]
)
def test_shipped_profiles_are_those_of_their_models(name):
    profile, model = load_profile(name), load_model(name)
    assert profile.model == name
    tensors = Counter((tensor.name, tensor.shape, tensor.sparse) for tensor in profile.tensors)
    assert tensors == Counter((layer.name, layer.shape, layer.sparse) for layer in model.layers)
    assert profile.forward_ps > 0
    assert profile.backward_ps > 0
    assert profile.optimizer_ps > 0
    assert 0 < profile.memory_bound < 1
    assert profile.source
    file = open_profile(name).file
    for stated in (file.batch, file.efficiency, file.forward, file.memory_bound, file.optimizer):
        assert stated is None or stated.source


def test_spans_are_those_that_were_measured():
    # The head of the file that they come from: the span from the first gradient to the last.
    spans_ms = {
        "vgg-16": 85.31,
        "resnet-50": 63.533,
        "resnet-101": 120.391,
        "bert-base": 66.335,
        "bert-large": 204.171,
        "ugatit": 434.241,
    }
    for name, span_ms in spans_ms.items():
        assert load_profile(name).backward_ps == pytest.approx(span_ms * 1e9, abs=1)
    gpt2 = load_profile("gpt2")
    assert gpt2.backward_ps - gpt2.tensors[0].backward_ps == pytest.approx(211.329e9, abs=1)
    assert gpt2.tensors[-1].name == "transformer.wte.weight"
    assert not gpt2.tensors[-1].sparse


def test_every_profile_is_listed():
    rows = list_profiles()
    assert [name for name, _, _ in rows] == profile_names()
    for _, summary, source in rows:
        assert "backward" in summary
        assert source


@pytest.mark.parametrize("name", ["llama-7b", "llama-70b"])
def test_no_profile_reaches_more_of_the_peak_of_float32_than_libraries(name):
    gpu = load_gpu("h100")
    source = open_profile(f"{name}:precision=fp32").on(gpu, 1).source
    assert float(re.search(r"over ([\d.]+) of the fp32 peak", source)[1]) <= gpu.flops_efficiency


def test_a_tied_head_of_a_pipeline_is_noted():
    for name, noted in (("gpt2", True), ("llama-7b", False)):
        profile = open_profile(name).on(load_gpu("h100"), 1)
        share = shard_profile(
            profile, tp=1, pp=2, mini_batches=1, value_bytes=2, all_reduce_ps=lambda _: 0, send_ps=lambda _: 0
        )
        assert ("the first and the last stage all-reduce its gradient" in share.unmodelled) == noted
