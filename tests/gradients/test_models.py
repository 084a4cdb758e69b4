"""Layer tables add up to what is published, and files that are none are refused."""

import pytest

from s2sim.errors import S2SimError, UnknownNameError
from s2sim.gradients.models import list_models, load_model

TABLE = """
description = "two layers"
kind = "user"
source = "this test"
layers = [
  { name = "table", shape = [100, 4], sparse = true },
  { name = "dense.{}", shape = [5], count = 2, first = 1 },
]
[published]
parameters = 410
within = 0.0
kind = "user"
source = "this test"
"""


@pytest.mark.parametrize(
    ("name", "parameters", "tensors", "sparse"),
    [
        ("resnet-18", 11_689_512, 62, 0),
        ("resnet-50", 25_557_032, 161, 0),
        ("resnet-101", 44_549_160, 314, 0),
        ("resnet-152", 60_192_808, 467, 0),
        ("vgg-16", 138_357_544, 32, 0),
        ("vgg-19", 143_667_240, 38, 0),
        ("bert-base", 109_482_240, 199, 30522 * 768),
        ("bert-large", 335_141_888, 391, 30522 * 1024),
        ("gpt2", 124_439_808, 148, 0),
        ("gnmt-8", 193_757_758, 45, 2 * 32317 * 1024),
        ("gnmt-16", 277_709_374, 77, 2 * 32317 * 1024),
        ("lstm", 47_714_169, 15, 28869 * 650),
        ("ncf", 178_064_769, 12, (498_975 + 427_888) * 192),
        ("deeplight", 607_957_431, 9, 60_747_983 * 10),
        ("ugatit", 670_761_088, 148, 0),
        ("dlrm", 540_677_217, 40, 33_762_577 * 16),
        ("llama-7b", 6_738_415_616, 291, 0),
        ("llama-70b", 68_976_648_192, 723, 0),
        ("llama-3.1-8b", 8_030_261_248, 291, 0),
    ],
)
def test_shipped_models_have_their_published_sizes(name, parameters, tensors, sparse):
    model = load_model(name)
    assert model.parameters == sum(layer.size for layer in model.layers) == parameters
    assert len({layer.name for layer in model.layers}) == len(model.layers) == tensors
    assert sum(layer.size for layer in model.layers if layer.sparse) == sparse


def test_sizes_in_bytes_are_those_that_others_print():
    # EmbRace: 739.1 and 252.5 MiB of GNMT-8; OmniReduce: 679 and 0.4 MiB of NCF, 1.8 MiB of DeepLight's dense layers.
    def mib(name, *, sparse):
        return 4 * sum(layer.size for layer in load_model(name).layers if layer.sparse is sparse) / 2**20

    assert mib("gnmt-8", sparse=True) == pytest.approx(252.5, abs=0.05)
    assert mib("gnmt-8", sparse=True) + mib("gnmt-8", sparse=False) == pytest.approx(739.1, abs=0.05)
    assert mib("ncf", sparse=True) == pytest.approx(679, abs=0.5)
    assert mib("ncf", sparse=False) == pytest.approx(0.4, abs=0.05)
    assert mib("deeplight", sparse=False) == pytest.approx(1.8, abs=0.05)


# torchvision's _ops of each model's weights, in 1e9 multiply-adds.
@pytest.mark.parametrize(
    ("name", "multiply_adds"),
    [
        ("resnet-18", 1.814),
        ("resnet-50", 4.089),
        ("resnet-101", 7.801),
        ("resnet-152", 11.514),
        ("vgg-16", 15.47),
        ("vgg-19", 19.632),
    ],
)
def test_operations_are_those_that_are_published(name, multiply_adds):
    counted = sum(layer.multiply_adds for layer in load_model(name).layers)
    assert counted / 1e9 == pytest.approx(multiply_adds, abs=0.001)


def test_operations_of_transformers_are_two_for_each_weight_and_token():
    for name, blocks, width, tokens in (
        ("gpt2", 12, 768, 1024),
        ("bert-base", 12, 768, 512),
        ("bert-large", 24, 1024, 512),
    ):
        model = load_model(name)
        of_blocks = sum(
            layer.size
            for layer in model.layers
            if len(layer.shape) == 2 and (".h." in layer.name or "encoder" in layer.name)
        )
        scores = blocks * 2 * tokens * tokens * width
        head = {"gpt2": tokens * 50257 * width}.get(name, width * width)
        assert sum(layer.multiply_adds for layer in model.layers) == tokens * of_blocks + scores + head


def test_layers_stand_in_the_order_of_forward():
    names = [layer.name for layer in load_model("bert-base").layers]
    assert names.index("encoder.layer.0.output.LayerNorm.bias") < names.index(
        "encoder.layer.1.attention.self.query.weight"
    )
    names = [layer.name for layer in load_model("resnet-50").layers]
    assert names.index("layer1.1.bn3.bias") + 1 == names.index("layer1.2.conv1.weight")


def test_every_model_is_listed_with_its_source():
    rows = list_models()
    assert {"gnmt-8", "resnet-50", "lstm"} <= {name for name, _, _ in rows}
    for name, summary, source in rows:
        assert "M parameters" in summary
        assert source
        kinds = {group.kind for group in load_model(name).table.layers}
        assert ("estimated" in summary) == ("estimated" in kinds)


def test_a_users_file_is_a_model(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TABLE)
    model = load_model(str(path))
    assert (model.name, model.parameters) == ("mine", 410)
    assert [layer.name for layer in model.layers] == ["table", "dense.1", "dense.2"]


@pytest.mark.parametrize("name", ["a{1}{}", "a{x}{}", "{:>2000000000}{}"])
def test_braces_in_a_name_are_text(tmp_path, name):
    path = tmp_path / "mine.toml"
    path.write_text(TABLE.replace("dense.{}", name))
    assert [layer.name for layer in load_model(str(path)).layers][1:] == [name.replace("{}", each) for each in "12"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("parameters = 410", "parameters = 411", "the layers have 410 parameters, 411 are published"),
        ("shape = [100, 4]", "shape = [100, 0]", "numbers from 1"),
        ("shape = [100, 4]", "shape = [100, 4.5]", "shape"),
        (
            "shape = [100, 4]",
            "shape = [4611686018427387904, 4]",
            "layers.0: layer 'table' has more than 1,125,899,906,842,624",
        ),
        ("sparse = true", "sprase = true", "sprase"),
        ("sparse = true", "positions = -1", "positions"),
        ('"dense.{}"', '"dense"', "{}"),
        ("count = 2, first = 1", "count = 1", "{}"),
        ('name = "table"', 'name = "dense.1"', "no two of one name"),
        ("count = 2", "count = 1000000000", "more than 100,000 layers"),
        ('kind = "user"\nsource', 'kind = "guessed"\nsource', "kind"),
        ("[published]", "[published", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(tmp_path, old, new, message):
    assert old in TABLE
    path = tmp_path / "mine.toml"
    path.write_text(TABLE.replace(old, new, 1))
    with pytest.raises(S2SimError, match=message) as caught:
        load_model(str(path))
    assert "\n" not in str(caught.value)


def test_unknown_models_and_missing_files(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'gnmt-8'"):
        load_model("gnmt8")
    with pytest.raises(S2SimError, match="there is no file"):
        load_model(str(tmp_path / "none.toml"))
