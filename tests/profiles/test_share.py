"""What a rank computes of a model that others share with it, against what can be worked out by hand."""

import pytest

from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.errors import OptionError
from s2sim.experiment.scenario.groups import ParallelGroups
from s2sim.experiment.scenario.training import shard_on_cluster, sharding_notes
from s2sim.profiles.profile import ComputeProfile, TensorTiming
from s2sim.profiles.read import load_profile
from s2sim.profiles.sharding import TransformerShape, shard_profile, transformer_shape
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

HIDDEN = 64


def layer(number):
    """Return a layer's gradients in the order of readiness: 1,000 ps forward, of which a tenth normalises."""
    shapes = {
        "down": (HIDDEN, 256),
        "up": (256, HIDDEN),
        "up.bias": (256,),
        "o": (HIDDEN, HIDDEN),
        "qkv": (192, HIDDEN),
    }
    tensors = [TensorTiming(f"h.{number}.{name}", shape, False, 180, 360) for name, shape in shapes.items()]
    return [*tensors, TensorTiming(f"h.{number}.norm.weight", (HIDDEN,), False, 100, 200)]


def model(layers, sample="sequence of 1,000 tokens"):
    tensors = [each for number in reversed(range(layers)) for each in layer(number)]
    return ComputeProfile("mine", "mine", "a100", 2, sample, tuple(tensors), 4_000, 0.1, "computed", "this test")


def share(profile, *, tp=1, pp=1, mini_batches=1, reduce_ps=0, send_ps=0):
    return shard_profile(
        profile,
        tp=tp,
        pp=pp,
        mini_batches=mini_batches,
        value_bytes=2,
        all_reduce_ps=lambda size: reduce_ps * size,
        send_ps=lambda size: send_ps * size,
    )


def test_alone_it_computes_all():
    profile = model(3)
    found = share(profile, mini_batches=4)
    assert found.profile == profile
    assert (found.idle_ps, found.tensor_parallel_ps, found.pipeline_ps, found.unmodelled) == (0, 0, 0, "")


def test_tensor_parallel_ranks_divide_matrices_and_not_what_normalises():
    found = share(model(2), tp=2).profile
    shapes = {tensor.name: tensor.shape for tensor in found.tensors}
    assert shapes["h.0.down"] == (HIDDEN, 128)
    assert shapes["h.0.up"] == (128, HIDDEN)
    assert shapes["h.0.up.bias"] == (128,)
    assert shapes["h.0.o"] == (HIDDEN // 2, HIDDEN)
    assert shapes["h.0.qkv"] == (96, HIDDEN)
    assert shapes["h.0.norm.weight"] == (HIDDEN,)
    assert found.forward_ps == 2 * (900 // 2 + 100)
    assert found.backward_ps == 2 * (1800 // 2 + 200)
    assert found.optimizer_ps == pytest.approx(4_000 * found.parameters / model(2).parameters, abs=1)


def test_two_all_reduces_a_layer_each_way():
    """Of batch x tokens x hidden values of two bytes each."""
    size_bytes = 2 * 1000 * HIDDEN * 2
    alone, found = share(model(3), tp=2), share(model(3), tp=2, reduce_ps=5)
    assert found.tensor_parallel_ps == 3 * 4 * 5 * size_bytes
    assert found.profile.forward_ps == alone.profile.forward_ps + 3 * 2 * 5 * size_bytes
    assert found.profile.backward_ps == alone.profile.backward_ps + 3 * 2 * 5 * size_bytes


@pytest.mark.parametrize("mini_batches", [1, 4, 32])
def test_the_bubble_is_p_less_1_over_m(mini_batches):
    """Narayanan et al. 2021, section 2.2.1, where stages take as long as each other."""
    found = share(model(8), pp=4, mini_batches=mini_batches)
    own_ps = found.profile.forward_ps + found.profile.backward_ps
    assert own_ps == 2 * 3000
    assert found.stages_ps == (own_ps,) * 4
    assert found.idle_ps / (mini_batches * own_ps) == 3 / mini_batches
    assert [tensor.name for tensor in found.profile.tensors] == [each.name for n in (1, 0) for each in layer(n)]


def test_the_slowest_stage_sets_the_pace():
    found = share(model(5), pp=2, mini_batches=4)
    assert sorted(found.stages_ps) == [6000, 9000]
    assert found.idle_ps == (4 + 1) * 9000 - 4 * found.stages_ps[0]


def test_stages_send_an_even_part_from_each_tensor_parallel_rank():
    size_bytes = 2 * 1000 * HIDDEN * 2 // 2
    alone, found = share(model(4), tp=2, pp=4), share(model(4), tp=2, pp=4, send_ps=3)
    assert found.pipeline_ps == 3 * size_bytes
    assert found.profile.forward_ps == alone.profile.forward_ps + 3 * size_bytes
    assert found.profile.backward_ps == alone.profile.backward_ps
    inner, outer = found.stages_ps[1] - alone.stages_ps[1], found.stages_ps[0] - alone.stages_ps[0]
    assert (outer, inner) == (3 * size_bytes, 2 * 3 * size_bytes)


def test_what_is_not_known_is_told():
    found = share(model(4, sample="row"), tp=2, pp=2, reduce_ps=5, send_ps=5)
    assert (found.tensor_parallel_ps, found.pipeline_ps) == (0, 0)
    assert "tensor-parallel ranks and stages send each other is left out" in found.unmodelled


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("llama-70b", TransformerShape(4096, 8192)),
        ("gpt2", TransformerShape(1024, 768)),
        ("bert-base", TransformerShape(512, 768)),
        ("resnet-50", None),
        ("gnmt-8", None),
    ],
)
def test_transformers_are_known_by_their_layers(name, sizes):
    assert transformer_shape(load_profile(name)) == sizes


@pytest.mark.parametrize(
    ("name", "asked", "part"),
    [("resnet-50", {"tp": 2}, "no transformer: take tp=1"), ("lstm", {"pp": 64}, "fewer than stages: take fewer")],
)
def test_shares_that_cannot_be(name, asked, part):
    with pytest.raises(OptionError) as error:
        share(load_profile(name), **asked)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_a_decoder_of_70b_on_a_cluster():
    """Parameters of 64 ranks are those of the model, and tensor-parallel ranks of a node reduce over NVLink."""
    profile, groups = load_profile("llama-70b", batch=1), ParallelGroups(tp=8, pp=8, dp=2)
    cluster = build_cluster(load_shape("dgx-h100"), groups.workers)
    found = shard_on_cluster(profile, groups, cluster, 16, NO_OVERHEADS)
    assert found.profile.parameters == pytest.approx(profile.parameters / 64, rel=0.03)
    passed_bytes = 4096 * 8192 * 2
    # Ten layers with four all-reduces each, 2 (t - 1) / t of the bytes over one GPU's NVLink.
    wire_s = 10 * 4 * 2 * 7 / 8 * passed_bytes / cluster.shape.nvlink.rate_Bps
    assert wire_s < found.tensor_parallel_ps / 1e12 < 1.1 * wire_s
    assert found.pipeline_ps / 1e12 == pytest.approx(passed_bytes / 8 / 48e9, rel=0.1)
    notes = sharding_notes(found, groups)
    assert "one rank of 8 that share the first of 8 stages" in notes[0]
    assert any("waits" in note for note in notes)
