import gzip
import importlib.util
import json

import pytest

from s2sim.profiles.read import load_profile, open_profile

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch")

TRAINING = """
import pathlib
import torch

def make(batch, device):
    pathlib.Path("called").touch()
    model = torch.nn.Linear(3, 1).to(device)
    return model, lambda step: model(torch.ones(batch, 3, device=device)).mean(), torch.optim.Adam(model.parameters())

def raising(batch, device):
    model, _, _ = make(batch, device)
    def loss(step):
        if step > 7:
            raise RuntimeError("no more" + chr(10) + "data")
        return model(torch.ones(batch, 3)).mean()
    return model, loss

def interrupted(batch, device):
    model, _, _ = make(batch, device)
    def loss(step):
        if step > 7:
            raise KeyboardInterrupt
        return model(torch.ones(batch, 3)).mean()
    return model, loss

def vector(batch, device):
    model, _, _ = make(batch, device)
    return model, lambda step: model(torch.ones(batch, 3))

def nothing(batch, device):
    pass

def untrained(batch, device):
    model, loss, _ = make(batch, device)
    return model.requires_grad_(False), loss

def elsewhere(batch, device):
    model, loss, _ = make(batch, "meta")
    return model, loss

def without_optimizer(batch, device):
    return (*make(batch, device)[:2], "adam")

constant = 3
"""


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "training.py").write_text(TRAINING)
    return tmp_path


def options(name="make", out="mine.toml"):
    return "profile", "record", "--module", f"training.py:{name}", "--batch", 4, "--steps", 3, "--out", out


@pytest.mark.slow
@needs_torch
@pytest.mark.usefixtures("training")
def test_a_function_of_ones_own_is_recorded(s2sim):
    code, out, err = s2sim(*options())
    assert (code, err) == (0, "")
    assert out.startswith("wrote a profile of 2 tensors to mine.toml: forward ")
    assert "note: these are times of a CPU" in out
    profile = load_profile("mine.toml")
    assert (profile.name, profile.model, profile.batch) == ("mine", "training.py:make", 4)
    assert [tensor.shape for tensor in profile.tensors] in ([(1,), (1, 3)], [(1, 3), (1,)])
    assert s2sim("profile", "show", "mine.toml")[0] == 0


@pytest.mark.slow
@needs_torch
@pytest.mark.usefixtures("training")
def test_on_request_a_recording_says_nothing(s2sim):
    assert s2sim(*options(), "--quiet") == (0, "", "")


@pytest.mark.slow
@needs_torch
def test_a_package_is_found_as_python_finds_it(training, s2sim, monkeypatch):
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (training / "my_package").mkdir()
    (training / "my_package" / "train.py").write_text(TRAINING)
    words = ["--module", "my_package.train:make", "--batch", 2, "--steps", 1, "--out", "mine.toml"]
    assert s2sim("profile", "record", *words)[0] == 0


@needs_torch
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raising", "--module training.py:raising failed: RuntimeError: no more"),
        ("vector", "--module training.py:vector failed: RuntimeError: grad can be implicitly created only for scalar"),
        ("nothing", "returned NoneType: return a torch.nn.Module"),
        ("untrained", "has no parameter that is trained"),
        ("elsewhere", "parameters are on meta, not on cpu"),
        ("without_optimizer", "the third value is str, not a torch.optim.Optimizer"),
        ("unknown", "there is no function unknown in training.py"),
        ("constant", "there is no function constant in training.py"),
        ("not-a-name", "names no function: write package.module:function or path.py:function"),
    ],
)
def test_what_is_wrong_with_a_function_is_one_line(training, fails, name, said):
    assert said in fails(*options(name))
    assert not (training / "mine.toml").exists()


@needs_torch
def test_who_interrupts_leaves_no_file(training, s2sim):
    assert s2sim(*options("interrupted"))[0] == 130
    assert sorted(path.name for path in training.iterdir() if path.is_file()) == ["called", "training.py"]


@needs_torch
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (options(out="none/mine.toml"), "there is no directory none"),
        (options(out="mine.json"), "ends in .toml"),
        (("profile", "record", "--out", "mine.toml"), "name either a model to record, such as cnn, or a function"),
        ((*options(), "cnn"), "name either a model to record, such as cnn, or a function"),
        ((*options(), "--text", "book.txt"), "reads no text: leave --text out"),
        ((*options(), "--device", "tpu"), "--device tpu is none that is recorded on: cpu or cuda"),
        (
            ("profile", "record", "--module", "training.py:make", "--out", "mine.toml"),
            "--module training.py:make needs --batch",
        ),
        (
            ("profile", "record", "--module", "none.py:make", "--batch", 1, "--out", "mine.toml"),
            "there is no such file",
        ),
        (("profile", "record", "--module", "none:make", "--batch", 1, "--out", "mine.toml"), "ModuleNotFoundError"),
        (("profile", "record", "cnn", "--batch", 0, "--out", "mine.toml"), "--batch 0 is less than 1"),
        (("profile", "record", "cnn", "--steps", 0, "--out", "mine.toml"), "--steps 0 is less than 1"),
        (("profile", "record", "cnn", "--seed", -1, "--out", "mine.toml"), "--seed -1 is less than 0"),
        (("profile", "record", "cnn:images=3", "--batch", 3, "--out", "mine.toml"), "give one of them"),
        (("profile", "record", "lstm", "--out", "mine.toml"), "name a file with --text"),
        (("profile", "record", "cnn", "--precision", "fp8", "--out", "mine.toml"), "--precision fp8 is none"),
        (("profile", "record", "cnn", "--precision", "tf32", "--out", "mine.toml"), "--precision tf32 is of GPUs"),
        (("profile", "record", "gpt2", "--out", "mine.toml"), "model gpt2 needs --batch"),
        (("profile", "record", "gpt2:a=1", "--batch", 1, "--out", "mine.toml"), "model gpt2 has no option 'a'"),
        (("profile", "record", "gtp2", "--out", "mine.toml"), "did you mean 'gpt2'?"),
        (("profile", "record", "cmn", "--out", "mine.toml"), "did you mean 'cnn'?"),
    ],
)
@pytest.mark.usefixtures("training")
def test_a_mistake_is_one_line_before_anything_is_called(training, fails, words, said):
    assert said in fails(*words)
    assert not (training / "called").exists()


@needs_torch
def test_a_gpu_that_is_not_there_is_one_line(training, fails, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "PyTorch finds no GPU here" in fails(*options(), "--device", "cuda")
    assert not (training / "called").exists()


def test_without_pytorch_it_says_what_to_install(fails, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert "pip install 's2sim[torch]'" in fails("profile", "record", "cnn", "--out", tmp_path / "mine.toml")


@needs_torch
def test_the_precision_is_that_of_training_and_of_the_file(training, s2sim):
    (training / "typed.py").write_text(
        "import torch\n"
        "def make(batch, device):\n"
        "    model = torch.nn.Linear(3, 1)\n"
        "    def loss(step):\n"
        "        out = model(torch.ones(batch, 3))\n"
        "        assert out.dtype == torch.bfloat16\n"
        "        return out.mean()\n"
        "    return model, loss\n"
    )
    words = ["--module", "typed.py:make", "--batch", 2, "--steps", 1, "--out", "mine.toml"]
    assert s2sim("profile", "record", *words, "--precision", "bf16")[0] == 0
    assert open_profile("mine.toml").file.precision == "bf16"


def test_a_trace_is_imported(tmp_path, s2sim, profiler_step):
    trace, out = tmp_path / "trace.json.gz", tmp_path / "mine.toml"
    events = [event for number in range(3) for event in profiler_step(number)]
    trace.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    words = ("--batch", 32, "--sample", "sentence", "--gpu", "v100", "--model", "my own", "--out", out)
    code, text, err = s2sim("profile", "import", trace, *words)
    assert (code, err) == (0, "")
    assert f"wrote a profile of 3 tensors to {out}: forward 200 us, backward 270 us, optimizer 80 us" in text
    profile = load_profile(str(out))
    assert (profile.model, profile.gpu, profile.batch, profile.sample) == ("my own", "v100", 32, "sentence")
    assert load_profile(str(out), gpu="a100").kind == "estimated"


@pytest.mark.parametrize(
    ("content", "said"), [("[]", "bare list"), ('{"traceEvents": [', "cut off"), ('{"traceEvents": []}', "no backward")]
)
def test_a_trace_that_is_none_is_one_line(tmp_path, fails, content, said):
    trace, out = tmp_path / "trace.json", tmp_path / "mine.toml"
    trace.write_text(content)
    assert said in fails("profile", "import", trace, "--out", out)
    assert not out.exists()
