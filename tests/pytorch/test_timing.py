"""Recorded compute profiles: order and completeness on tiny models, and PyTorch's own profiler beside the hooks."""

import time

import pytest

torch = pytest.importorskip("torch")

from s2sim.errors import S2SimError
from s2sim.gradients.models import load_model
from s2sim.profiles.kineto import import_profile
from s2sim.profiles.read import load_profile, profile_text
from s2sim.pytorch.record_profile import device_name, record_profile
from s2sim.pytorch.subject import NETWORKS, TrainingSubject, function_subject
from s2sim.pytorch.task import DataOrigin, interactions_of
from s2sim.pytorch.timing import HOST_CLOCK, WARMUP_STEPS, clock_of, measure, own_parameters, with_precision

QUICK_NETWORKS = ("resnet-18", "vgg-16", "gpt2")
TINY_LSTM = "lstm:width=6,length=5,negatives=20"
TINY_TRANSFORMER = "transformer:width=8,heads=2,blocks=1,vocabulary=50,length=5"


class Twice(torch.nn.Module):
    """A table that is the output layer too, a layer used twice, one never used, and one that is not trained."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(40, 6)
        self.rare = torch.nn.Embedding(500, 6)
        self.often = torch.nn.Linear(6, 6)
        self.never = torch.nn.Linear(6, 2)
        self.frozen = torch.nn.Linear(6, 6).requires_grad_(requires_grad=False)
        self.output = torch.nn.Linear(6, 40, bias=False)
        self.output.weight = self.table.weight

    def forward(self, words):
        hidden = self.often(self.often(self.table(words) + self.rare(words)))
        return self.output(self.frozen(hidden))


def words(step):
    return torch.arange(step, step + 7) % 40


def subject_of(module, loss, optimizer=None):
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return TrainingSubject(module, loss, optimizer or torch.optim.SGD(trained, lr=0.01), 7, "word", "a test's", None)


@pytest.mark.parametrize("batch", [None, 4])
def test_the_convolutional_network(batch):
    pytest.importorskip("sklearn")
    calls = []
    recorded = record_profile(
        name="mine", model="cnn:channels=2,hidden=8", batch=batch, steps=2, progress=lambda *done: calls.append(done)
    )
    profile = recorded.profile
    assert calls == [(done, WARMUP_STEPS + 4) for done in range(1, WARMUP_STEPS + 5)]
    assert [tensor.name.split(".")[0] for tensor in profile.tensors] == [
        layer for layer in ("fc2", "fc1", "conv2", "conv1") for _ in range(2)
    ]
    assert {tensor.name: tensor.shape for tensor in profile.tensors}["conv2.weight"] == (4, 2, 3, 3)
    assert (profile.name, profile.gpu, profile.batch, profile.sample) == ("mine", "CPU", batch or 32, "image of 8 x 8")
    assert not any(tensor.sparse for tensor in profile.tensors)
    # Of two parameters of a layer that one has its forward that is ready first.
    assert all(tensor.forward_ps > 0 for tensor in profile.tensors[::2])
    assert not any(tensor.forward_ps for tensor in profile.tensors[1::2])
    assert all(tensor.backward_ps >= 0 for tensor in profile.tensors)
    assert 0 < profile.backward_ps < 10**12
    assert 0 < profile.optimizer_ps < 10**12
    assert any("times of a CPU" in note for note in recorded.notes)


@pytest.mark.parametrize(
    ("model", "sparse"),
    [
        ("ncf:width=4", {"embed_user.weight", "embed_item.weight"}),
        (TINY_LSTM, {"encoder.weight", "decoder.weight"}),
        (TINY_TRANSFORMER, {"encoder.weight"}),
    ],
)
def test_models_of_the_recorder(model, sparse, text, monkeypatch):
    files = interactions_of([{f"word{(i * j) % 97}" for i in range(1, 9)} for j in range(60)], DataOrigin("", "", ""))
    monkeypatch.setattr("s2sim.pytorch.task.standard_library_interactions", lambda: files)
    given = [] if model.startswith("ncf") else [text]
    profile = record_profile(name="mine", model=model, batch=2, steps=1, text=given).profile
    assert {tensor.name for tensor in profile.tensors if tensor.sparse} == sparse
    assert profile.batch == 2
    assert profile.forward_ps > 0


def test_shared_layers_unused_and_untrained_parameters():
    module = Twice()
    times = measure(subject_of(module, lambda step: module(words(step)).square().mean()), HOST_CLOCK, 3, lambda: None)
    assert set(times.ready_us) == {
        "table.weight", "rare.weight", "often.weight", "often.bias", "never.weight", "never.bias",
    }  # fmt: skip
    assert times.without_gradient == ("never.weight", "never.bias")
    assert list(times.ready_us)[-2:] == ["never.weight", "never.bias"]
    assert times.sparse == {"rare.weight"}
    # The layer used twice has the time of both, in the parameter that is ready first.
    assert times.forward_us["often.bias"] + times.forward_us["often.weight"] > 0
    assert times.forward_us["often.bias"] * times.forward_us["often.weight"] == 0
    # What comes after the last layer belongs to it: the output's only parameter is the table.
    assert times.forward_us["table.weight"] > 0
    assert sorted(times.ready_us.values()) == list(times.ready_us.values())


def test_no_hook_stays():
    module = Twice()
    measure(subject_of(module, lambda step: module(words(step)).square().mean()), HOST_CLOCK, 1, lambda: None)
    assert not any(part._forward_pre_hooks for part in module.modules())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in module.parameters())


def test_a_model_with_one_parameter_and_forward_again_in_backward():
    module = torch.nn.Linear(7, 7, bias=False)
    checkpoint = torch.utils.checkpoint.checkpoint

    def loss(_):
        return checkpoint(module, torch.ones(2, 7, requires_grad=True), use_reentrant=False).square().mean()

    times = measure(subject_of(module, loss), HOST_CLOCK, 2, lambda: None)
    assert list(times.ready_us) == ["weight"]
    assert times.ready_us["weight"] > 0
    assert times.forward_us["weight"] > 0


def test_tables_with_sparse_gradients():
    module = torch.nn.Embedding(50, 4, sparse=True)
    subject = subject_of(module, lambda step: module(torch.tensor([step, 3])).sum())
    assert measure(subject, HOST_CLOCK, 1, lambda: None).sparse == {"weight"}


def test_a_loss_without_the_module_is_refused():
    module = torch.nn.Linear(2, 2)
    subject = subject_of(module, lambda _: module.weight.sum())
    with pytest.raises(S2SimError, match="no module with parameters ran in forward"):
        measure(subject, HOST_CLOCK, 1, lambda: None)


def test_parameters_of_modules_have_the_names_of_the_model():
    assert own_parameters(Twice())["output"] == ("table.weight",)
    assert own_parameters(torch.nn.Linear(2, 2)) == {"": ("weight", "bias")}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK_NETWORKS else pytest.mark.slow) for name in NETWORKS]
)
def test_known_networks_have_the_parameters_of_their_layer_tables(name):
    subject = function_subject(NETWORKS[name], "meta", 2)
    found = [(name, tuple(parameter.shape)) for name, parameter in subject.module.named_parameters()]
    assert found == [(layer.name, layer.shape) for layer in load_model(name).layers]
    subject.loss(0).backward()
    assert all(parameter.grad is not None for parameter in subject.module.parameters())


@pytest.mark.slow
def test_a_known_network_is_recorded_as_its_model(tmp_path):
    profile = record_profile(name="mine", model="resnet-18", batch=1, steps=1).profile
    assert (profile.model, profile.sample) == ("resnet-18", "image of 224 x 224")
    assert [tensor.name for tensor in profile.tensors][-1].startswith(("conv1.", "bn1."))
    path = tmp_path / "mine.toml"
    path.write_text(profile_text(profile, description="d", batch_source="b", memory_bound_source="m"))
    assert load_profile(str(path)) == profile


def test_settings_of_tf32_are_left_as_they_were():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    subject = subject_of(torch.nn.Linear(2, 2), lambda _: None)
    for precision, allowed in (("tf32", True), ("fp32", False)):
        with with_precision(subject, precision, "cuda"):
            assert torch.backends.cuda.matmul.allow_tf32 is allowed
            assert torch.backends.cudnn.allow_tf32 is allowed
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


@pytest.fixture
def traced(tmp_path):
    """Trace steps of a module with PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    def run(module, loss, steps=3, **options):
        optimizer = torch.optim.SGD([each for each in module.parameters() if each.requires_grad], lr=0.01)
        with profile(activities=[ProfilerActivity.CPU], acc_events=True, **options) as profiler:
            for step in range(steps):
                optimizer.zero_grad()
                loss(step).backward()
                optimizer.step()
                profiler.step()
        path = tmp_path / "trace.json.gz"
        profiler.export_chrome_trace(str(path))
        return path

    return run


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_a_trace_of_pytorch_tells_what_hooks_tell(traced):
    module = Twice()
    loss = lambda step: module(words(step)).square().mean()  # noqa: E731  (the same for both)
    imported = import_profile(traced(module, loss, record_shapes=True), name="mine", batch=7).profile
    times = measure(subject_of(module, loss), HOST_CLOCK, 3, lambda: None)
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    hooked = [shapes[name] for name in times.ready_us if name not in times.without_gradient]
    assert [tensor.shape for tensor in imported.tensors] == hooked
    assert [tensor.sparse for tensor in imported.tensors] == [shape == (500, 6) for shape in hooked]
    assert imported.forward_ps > 0
    assert imported.backward_ps > 0
    assert imported.optimizer_ps > 0


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_what_a_trace_of_pytorch_lacks_is_said(traced):
    module = torch.nn.Linear(3, 3)

    def accumulating(_):
        module(torch.ones(1, 3)).sum().backward()
        return module(torch.ones(1, 3)).sum()

    with pytest.raises(S2SimError, match="record_shapes=True"):
        import_profile(traced(module, lambda _: module(torch.ones(1, 3)).sum()), name="mine")
    with pytest.raises(S2SimError, match="accumulated gradients"):
        import_profile(traced(module, accumulating, record_shapes=True), name="mine")


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_checkpoints_are_no_accumulated_gradients(traced):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    checkpoint = torch.utils.checkpoint.checkpoint

    def loss(_):
        hidden = checkpoint(module[0], torch.ones(2, 4), use_reentrant=False)
        return checkpoint(module[1], hidden, use_reentrant=False).sum()

    profile = import_profile(traced(module, loss, record_shapes=True), name="mine").profile
    assert [tensor.shape for tensor in profile.tensors] == [(4,), (4, 4), (4,), (4, 4)]


class _Event:
    """What stands for an event of a GPU that is always done: the host's clock, told in milliseconds as CUDA does."""

    def __init__(self, *, enable_timing):
        assert enable_timing
        self.time_s = None

    def record(self):
        self.time_s = time.perf_counter()

    def synchronize(self):
        assert self.time_s is not None

    def elapsed_time(self, later):
        return (later.time_s - self.time_s) * 1e3


def test_marks_of_a_gpu_are_events_in_its_stream(monkeypatch):
    monkeypatch.setattr("torch.cuda.Event", _Event)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    clock = clock_of("cuda")
    first, _, second = clock.mark(), time.sleep(0.02), clock.mark()
    assert clock.between_us(first, second) >= 20_000
    module = torch.nn.Linear(7, 7)
    subject = subject_of(module, lambda _: module(torch.ones(2, 7)).square().mean())
    times = measure(subject, clock, 2, lambda: None)
    assert set(times.ready_us) == {"weight", "bias"}
    assert 0 < times.optimizer_us < 10**6


def test_a_gpu_is_called_as_in_the_catalogue(monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA H200")
    assert device_name("cuda") == "h200"
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "Another One")
    assert device_name("cuda") == "Another One"
