"""Profiles of traces of PyTorch's profiler, made by hand with round times."""

import json

import pytest

from s2sim.errors import S2SimError
from s2sim.gradients.models import load_model
from s2sim.profiles.kineto import import_profile, name_by_model
from s2sim.profiles.kineto_events import _PRODUCTS
from s2sim.profiles.profile import ComputeProfile, TensorTiming

US = 10**6


@pytest.fixture
def imported(tmp_path):
    """Import events; what is expected to be wrong is wrong in one line."""

    def run(events, **options):
        path = tmp_path / "trace.json"
        header = {"deviceProperties": options.pop("devices", [])}
        path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": events, "traceName": "by hand"}))
        return import_profile(path, name="mine", **options)

    return run


@pytest.fixture
def refused(imported):
    def run(events, **options):
        with pytest.raises(S2SimError) as error:
            imported(events, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    return run


def steps_of(profiler_step, *laters):
    return [event for number, later in enumerate(laters) for event in profiler_step(number, later)]


def launched(event, start, duration, number, category="kernel", name="ampere_sgemm_128x64"):
    """Return what the host called at ``event``'s start, and the kernel that came of it."""
    call = {**event, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 3, "args": {"correlation": number}}
    kernel = {**event, "cat": category, "name": name, "ts": start, "dur": duration, "args": {"correlation": number}}
    return [call, kernel]


def test_times_are_medians_of_the_steps_but_the_first(imported, profiler_step):
    found = imported(steps_of(profiler_step, 500, 20, 0, 40), model="a small one", batch=4, sample="sentence")
    assert found.profile == ComputeProfile(
        name="mine",
        model="a small one",
        gpu="CPU",
        batch=4,
        sample="sentence",
        tensors=(
            TensorTiming("0.Addmm", (7,), sparse=False, forward_ps=140 * US, backward_ps=80 * US),
            TensorTiming("1.T", (7, 3), sparse=False, forward_ps=10 * US, backward_ps=80 * US),
            TensorTiming("2.Embedding", (90, 3), sparse=True, forward_ps=50 * US, backward_ps=130 * US),
        ),
        optimizer_ps=80 * US,
        memory_bound=0.0,
        kind="measured",
        source="trace trace.json of PyTorch's profiler, median of 3 iterations",
    )
    assert [note.split(":")[0] for note in found.notes] == ["no kernels of a GPU are in it"]


def test_on_a_gpu_a_gradient_is_ready_when_the_kernels_launched_before_it_are_done(imported, profiler_step):
    events = []
    for number in range(3):
        step = profiler_step(number)
        at = step[0]["ts"]
        addmm, embedding, optimizer = step[5], step[9], step[11]
        first = 10 * number
        events += step
        # Forward's last kernel is done at 340, those of backward at 420 (before the host says so at 440) and 640.
        events += launched(step[4], at + 200, 140, first)
        events += launched(addmm, at + 340, 80, first + 1)
        events += launched(embedding, at + 500, 140, first + 2, name="void at::native::embedding_backward")
        events += launched(embedding, at + 500, 5000, first + 3, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        events += launched(optimizer, at + 720, 60, first + 4, name="multi_tensor_apply_kernel")
        # Of a memory copy there is no kernel to wait for.
        events += launched(addmm, at + 300, 5000, first + 5, category="gpu_memcpy")
    found = imported(events, batch=1, devices=[{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}])
    profile = found.profile
    assert profile.gpu == "NVIDIA A100-SXM4-40GB"
    assert [tensor.backward_ps for tensor in profile.tensors] == [80 * US, 20 * US, 200 * US]
    assert [tensor.forward_ps for tensor in profile.tensors] == [180 * US, 10 * US, 50 * US]
    assert profile.optimizer_ps == 60 * US
    assert profile.memory_bound == round(200 / 420, 3)
    assert len(found.notes) == 1
    assert "NCCL" in found.notes[0]


def test_an_optimizer_within_another_counts_once(imported, profiler_step):
    events = steps_of(profiler_step, 500, 20)
    inner = [
        {**event, "ts": event["ts"] + 1, "dur": event["dur"] - 2} for event in events if "Optimizer" in event["name"]
    ]
    assert inner
    assert imported(events + inner).profile.optimizer_ps == imported(events).profile.optimizer_ps


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("volta_scudnn_128x64_relu_interior_nn_v1", True),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1", True),
        ("void cudnn::cnn::conv2d_grouped_direct_kernel<__half>", True),
        ("triton_tem_fused_mm_0", True),
        ("_attn_fwd", True),
        ("void cudnn::ops::nchwToNhwcKernel<float>", False),
        ("void at::native::vectorized_elementwise_kernel<4>", False),
        ("triton_poi_fused_add_relu_3", False),
    ],
)
def test_kernels_that_multiply_matrices(name, product):
    assert bool(_PRODUCTS.search(name)) == product


def test_steps_without_marks_end_with_the_optimizer(imported, profiler_step):
    unmarked = [each for each in steps_of(profiler_step, 0, 0, 0) if not each["name"].startswith("ProfilerStep")]
    marked = imported(steps_of(profiler_step, 0, 0, 0))
    assert imported(unmarked).profile.tensors == marked.profile.tensors


def test_what_a_trace_does_not_tell_is_said(imported, profiler_step):
    alone = [each for each in profiler_step(0) if "Optimizer" not in each["name"]]
    found = imported(alone)
    assert found.profile.optimizer_ps == 0
    assert (found.profile.batch, found.profile.model) == (1, "trace.json")
    for text in ("one iteration alone", "no step of an optimizer", "--batch"):
        assert any(text in note for note in found.notes)
    other = profiler_step(3, shapes=((9,), (7, 3), (90, 3)))
    notes = imported([*steps_of(profiler_step, 0, 0, 0), *other]).notes
    assert any("1 iteration with other gradients left out" in note for note in notes)


def test_a_table_that_backward_sums_or_that_is_looked_up_in_full_is_dense(imported, profiler_step):
    def sparse(change):
        events = steps_of(profiler_step, 0, 0)
        change(events)
        return imported(events).profile.tensors[-1].sparse

    def tie(events):
        embedding = events[9 + len(events) // 2]
        events.append({**embedding, "name": "aten::add", "ts": embedding["ts"] + 90, "dur": 2, "args": {}})

    def look_up_all(events):
        for each in events:
            if each["name"] == "aten::embedding":
                each["args"]["Input Dims"][1] = [4, 20]

    assert sparse(lambda _: None)
    assert not sparse(tie)
    assert not sparse(look_up_all)


def test_gradients_are_called_by_modules_where_the_trace_has_them(imported, profiler_step):
    events = steps_of(profiler_step, 0, 0)
    for number in range(2):
        at = profiler_step(number)[0]["ts"]
        for name, start, end in (("Model_0", 50, 290), ("Embedding_0", 90, 130), ("Linear_0", 140, 200)):
            module = {"ph": "X", "cat": "python_function", "name": f"nn.Module: {name}", "ts": at + start}
            events.append({**module, "dur": end - start, "args": {}})
    names = [tensor.name for tensor in imported(events).profile.tensors]
    assert names == ["Linear_0.bias", "Linear_0.weight", "Embedding_0.weight"]


def test_a_layer_table_lends_its_names():
    model = load_model("vgg-16")
    layers = model.layers[::-1]
    profile = ComputeProfile(
        "p", "m", "g", 1, "s",
        tuple(TensorTiming(str(i), layer.shape, True, i, 2 * i) for i, layer in enumerate(layers)),
        0, 0.0, "measured", "t",
    )  # fmt: skip
    named = name_by_model(profile, model)
    assert [(tensor.name, tensor.sparse) for tensor in named.tensors] == [(layer.name, False) for layer in layers]
    assert named.backward_ps == profile.backward_ps
    assert named.model == "vgg-16"


def test_another_model_is_refused(refused, profiler_step):
    assert "the trace 0 of 3" in refused(steps_of(profiler_step, 0, 0), model="vgg-16")
    assert "is a path" in refused([], model="my/model.toml")
    assert "a mini-batch of 0" in refused([], batch=0)


def test_a_file_that_is_no_trace_is_refused_for_what_it_holds_not_for_its_name(tmp_path):
    path = tmp_path / "profile.toml"
    path.write_text('model = "my own"', encoding="utf-8")
    with pytest.raises(S2SimError, match="is not a trace of PyTorch's profiler"):
        import_profile(path, name="mine")


def test_what_no_profile_can_be_made_of_is_refused(refused, profiler_step):
    events = steps_of(profiler_step, 0, 0)
    assert "record_shapes=True" in refused([*profiler_step(0), *profiler_step(1, shapes=(None, (7, 3), (90, 3)))])
    assert "holds no backward" in refused([each for each in events if "Backward" not in each["name"]])
    assert "holds no backward" in refused([])
    assert "holds no backward" in refused([3, "text", {"ph": "X"}, {"ph": "X", "ts": "now", "dur": None}])
    assert "holds no forward" in refused([each for each in events if each["args"].get("Fwd thread id") != 0])


def test_accumulated_gradients_are_refused_but_not_forward_within_backward(imported, refused, profiler_step):
    again = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "dur": 2,
        "args": {"Sequence number": 90, "Fwd thread id": 0},
    }
    between = [{**again, "ts": profiler_step(number)[0]["ts"] + 400} for number in range(2)]
    within = [{**again, "ts": profiler_step(number)[0]["ts"] + 470} for number in range(2)]
    events = steps_of(profiler_step, 0, 0)
    assert "accumulated gradients" in refused([*events, *between])
    assert imported([*events, *within]).profile.tensors == imported(events).profile.tensors
