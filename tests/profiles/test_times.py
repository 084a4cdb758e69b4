"""Times that are computed or scaled follow operations, bytes, mini-batch and GPU."""

from dataclasses import replace

import pytest

from s2sim.errors import S2SimError, TopologyError
from s2sim.gradients.models import LayerGroup, LayerTable, Model, PublishedCount, load_model, model_names
from s2sim.profiles.compute import computed_profile
from s2sim.profiles.read import load_profile, open_profile, profile_text
from s2sim.topology.hardware import load_gpu
from s2sim.topology.read_file import list_parts
from s2sim.units import PS_PER_S

V100 = load_gpu("v100")


def model_of(*groups, sample="row"):
    parameters = sum(group.size for group in groups)
    published = PublishedCount(parameters, 0.0, "user", "this test")
    return Model("mine", LayerTable("mine", "user", "this test", groups, published, sample))


def test_a_matrix_takes_its_operations_and_its_activations():
    profile = computed_profile(
        model_of(LayerGroup("weight", (1000, 500), positions=64, values=30_000)), V100, 8, efficiency=0.5
    )
    products_s = 2 * 1000 * 500 * 64 * 8 / (15.7e12 * 0.5)
    values_s = 30_000 * 8 * 4 / (900e9 * 0.88)
    (tensor,) = profile.tensors
    assert tensor.forward_ps == pytest.approx((products_s + values_s) * PS_PER_S, abs=1)
    assert tensor.backward_ps == pytest.approx(2 * (products_s + values_s) * PS_PER_S, abs=1)
    assert profile.memory_bound == pytest.approx(values_s / (products_s + values_s))
    assert profile.optimizer_ps == pytest.approx(500_000 * 20 / (900e9 * 0.88) * PS_PER_S, abs=1)


def test_a_large_matrix_of_few_rows_takes_as_long_as_it_is_read():
    profile = computed_profile(model_of(LayerGroup("weight", (4096, 4096), positions=1)), V100, 1, efficiency=0.8)
    assert profile.forward_ps == pytest.approx(4096**2 * 4 / (900e9 * 0.88) * PS_PER_S, abs=1)
    assert profile.memory_bound == 1


def test_of_a_row_sparse_table_only_rows_of_the_batch_count():
    table = LayerGroup("table", (10**6, 64), sparse=True, values=3 * 64)
    profile = computed_profile(model_of(table), V100, 4096, efficiency=0.8)
    rows_ps = 4096 * 3 * 64 * 4 / (900e9 * 0.88) * PS_PER_S
    assert profile.forward_ps == pytest.approx(max(rows_ps, V100.kernel_launch_ps), abs=1)
    assert profile.optimizer_ps == pytest.approx(5 * rows_ps, rel=1e-6)


def test_no_pass_takes_less_than_a_launch():
    profile = computed_profile(model_of(LayerGroup("bias", (10,))), V100, 1, efficiency=0.8)
    assert profile.backward_ps == V100.kernel_launch_ps


def test_gradients_are_ready_in_the_reverse_order_of_forward():
    profile = computed_profile(load_model("bert-base"), V100, 1, efficiency=0.8)
    names = [tensor.name for tensor in profile.tensors]
    assert names[:2] == ["pooler.dense.bias", "pooler.dense.weight"]
    assert names.index("encoder.layer.11.output.dense.weight") < names.index("encoder.layer.10.output.LayerNorm.bias")
    assert names[-1] == "embeddings.word_embeddings.weight"


@pytest.mark.parametrize("gpu", [name for name, _, _ in list_parts("gpus")])
def test_every_gpu_of_the_catalogue_computes_every_batch(gpu):
    once, more = (load_profile("resnet-18", gpu=gpu, batch=batch) for batch in (1, 256))
    assert once.gpu == more.gpu == gpu
    assert 0 < once.backward_ps < more.backward_ps
    assert 0 < more.memory_bound < 1


@pytest.mark.parametrize("name", model_names())
def test_every_layer_table_that_counts_operations_is_computed(name):
    model = load_model(name)
    if model.table.sample is None:
        with pytest.raises(S2SimError, match="counts no operations"):
            computed_profile(model, V100, 1, 0.5)
        return
    once, twice = (computed_profile(model, V100, batch, 0.5) for batch in (1000, 2000))
    assert [tensor.name for tensor in once.tensors] == [layer.name for layer in reversed(model.layers)]
    assert 1 < twice.forward_ps / once.forward_ps < 2.0001


def test_precision_halves_bytes_and_raises_the_peak():
    model = load_model("bert-base")
    full = computed_profile(model, load_gpu("a100"), 8, 0.5)
    half = computed_profile(model, load_gpu("a100"), 8, 0.5, precision="bf16")
    assert 4 < full.backward_ps / half.backward_ps < 312 / 19.5
    with pytest.raises(TopologyError, match=r"v100 has no peak for bf16 .*known: fp32, fp16"):
        computed_profile(model, V100, 8, 0.5, precision="bf16")


def test_a_table_without_operations_is_refused_in_one_line():
    with pytest.raises(S2SimError, match="mine counts no operations: add sample"):
        computed_profile(model_of(LayerGroup("weight", (3, 3)), sample=None), V100, 1, 0.5)
    for batch, efficiency in ((0, 0.5), (1, 0.0), (1, float("nan")), (1, float("inf"))):
        with pytest.raises(S2SimError, match="a batch is at least 1"):
            computed_profile(load_model("resnet-50"), V100, batch, efficiency)


def test_a_measured_profile_grows_with_the_batch_and_is_then_estimated():
    once, twice = load_profile("resnet-50"), load_profile("resnet-50", batch=64)
    assert (once.batch, once.kind) == (32, "measured")
    assert (twice.batch, twice.kind) == (64, "estimated")
    assert twice.backward_ps == pytest.approx(2 * once.backward_ps, rel=1e-6)
    assert twice.optimizer_ps == once.optimizer_ps
    assert "scaled from a mini-batch of 32" in twice.source
    assert load_profile("resnet-50", batch=32, gpu="v100") == once
    with pytest.raises(S2SimError, match="at least 1"):
        load_profile("resnet-50", batch=0)
    for name in ("resnet-50", "resnet-152"):
        with pytest.raises(S2SimError, match=r"more than 1e\+06 s .*smaller"):
            load_profile(name, batch=10**20)


def test_a_measured_profile_goes_to_another_gpu_by_peaks_and_bandwidths():
    here, there = load_profile("resnet-50"), load_profile("resnet-50:precision=fp32", gpu="a100", batch=32)
    a100 = load_gpu("a100")
    by_memory = V100.stream_Bps / a100.stream_Bps
    factor = here.memory_bound * by_memory + (1 - here.memory_bound) * 15.7 / 19.5
    assert (there.gpu, there.kind) == ("a100", "estimated")
    assert there.backward_ps == pytest.approx(factor * here.backward_ps, rel=1e-6)
    assert there.optimizer_ps == pytest.approx(by_memory * here.optimizer_ps, rel=1e-6)
    assert there.memory_bound == pytest.approx(here.memory_bound * by_memory / factor)
    assert "carried from fp32 on v100 to fp32 on a100" in there.source
    assert "precision=tf32" in there.source
    assert "tf32" not in load_profile("resnet-50", gpu="t4").source
    with pytest.raises(S2SimError, match="unknown GPU"):
        load_profile("resnet-50", gpu="v1000")


@pytest.mark.parametrize(
    ("asked", "gpu", "setting"),
    [
        ("gpt2", "v100", "v100 fp32 batch 4"),
        ("gpt2", "v100-32gb", "v100-32gb fp32 batch 8"),
        ("gpt2", "rtx-2080-ti", "rtx-2080-ti fp32 batch 4"),
        ("gpt2", "a100", "a100 bf16 batch 16"),
        ("gpt2", "h100", "h100 bf16 batch 32"),
        ("gpt2:precision=bf16", "h100", "h100 bf16 batch 32"),
        ("gpt2:precision=fp32", "h100", "h100 fp32 batch 16"),
        ("resnet-152", "h100", "h100 bf16 batch 256"),
        ("gnmt-8", "h100", "h100 bf16 batch 64"),
        ("llama-7b", "h100", "h100 bf16 batch 4"),
    ],
)
def test_precision_and_batch_are_those_in_use_on_a_gpu(asked, gpu, setting):
    found = load_profile(asked, gpu=gpu)
    assert found.setting == setting
    stated = load_profile(f"{asked.partition(':')[0]}:precision={found.precision}", gpu=gpu, batch=found.batch)
    assert found.forward_ps == stated.forward_ps
    assert load_profile(asked, gpu=gpu, batch=3).batch == 3
    assert "mini-batch of" not in load_profile("gpt2").source


def test_why_a_batch_was_taken_is_said():
    assert (
        "a mini-batch of 32 for 80 GB of h100 in bf16, as of 4 for 16 GB of v100"
        in load_profile("gpt2", gpu="h100").source
    )
    assert "the profile's mini-batch of 4: 11 GB of rtx-2080-ti" in load_profile("gpt2", gpu="rtx-2080-ti").source
    assert "the profile's mini-batch of 64, of training" in load_profile("gnmt-8", gpu="h100").source


def test_what_somebody_chose_stays(tmp_path):
    path = tmp_path / "mine.toml"
    chosen = profile_text(
        load_profile("resnet-50:precision=bf16", gpu="a100"),
        description="d",
        batch_source="chosen",
        memory_bound_source="m",
    )
    path.write_text(chosen.replace('"bf16"', '"fp32"'))
    for gpu in ("a100", "h100"):
        assert load_profile(str(path), gpu=gpu).setting == f"{gpu} fp32 batch 128"


def test_a_gpu_of_unknown_memory_keeps_the_batch():
    gpu = replace(load_gpu("h100"), memory_bytes=None)
    found = open_profile("gpt2").on(gpu)
    assert found.setting == "h100 bf16 batch 4"
    assert "what more the memory holds is not known" in found.source


def test_a_precision_behind_the_name_changes_peak_and_bytes():
    full, half = load_profile("resnet-50"), load_profile("resnet-50:precision=fp16")
    memory = full.memory_bound / 2
    products = (1 - full.memory_bound) * 15.7 / (125 * 0.5)
    assert (half.gpu, half.kind) == ("v100", "estimated")
    assert half.backward_ps == pytest.approx((memory + products) * full.backward_ps, rel=1e-6)
    assert half.memory_bound == pytest.approx(memory / (memory + products))
    assert half.optimizer_ps == full.optimizer_ps
    assert "from fp32 on v100 to fp16 on v100" in half.source
    assert load_profile("resnet-50:precision=fp32") == full


def test_a_computed_profile_is_computed_in_another_precision():
    model, gpu = load_model("resnet-152"), load_gpu("a100")
    found = load_profile("resnet-152:precision=bf16", gpu="a100", batch=32)
    expected = computed_profile(model, gpu, 32, 0.74 * 0.5, precision="bf16")
    assert (found.backward_ps, found.memory_bound) == (expected.backward_ps, expected.memory_bound)
    stated = load_profile("resnet-152:precision=bf16,efficiency=0.3", gpu="a100", batch=32)
    assert stated.backward_ps == computed_profile(model, gpu, 32, 0.3, precision="bf16").backward_ps


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("resnet-50:precision=fp8", "precision=fp8"),
        ("resnet-50:precison=fp16", "did you mean 'precision'"),
        ("resnet-50:efficiency=0.5", "an efficiency changes nothing"),
        ("resnet-152:efficiency=0", "an efficiency above 0"),
        ("resnet-152:efficiency=nan", "an efficiency above 0"),
        ("resnet-152:efficiency=40", r"at most 4 \(40 % is 0\.4\)"),
        ("resnet-50:precision=tf32", "v100 has no peak for tf32"),
        ("resnet-50:fp16", "is not key=value"),
    ],
)
def test_wrong_options_are_told_in_one_line(asked, message):
    with pytest.raises(S2SimError, match=message) as caught:
        load_profile(asked)
    assert "\n" not in str(caught.value)
