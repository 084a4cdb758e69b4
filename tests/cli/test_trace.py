import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest


@pytest.fixture
def trace(s2sim, tmp_path):
    """Import two ranks' gradients as a trace; returns its directory."""
    generator = np.random.default_rng(0)
    for rank in range(2):
        table = np.zeros((50, 4), np.float32)
        table[generator.choice(50, 5, replace=False)] = generator.standard_normal((5, 4))
        np.savez(tmp_path / f"rank{rank}.npz", table=table, bias=generator.standard_normal(7).astype(np.float32))
    directory = tmp_path / "trace"
    code, out, err = s2sim(
        "trace", "import", tmp_path / "rank0.npz", tmp_path / "rank1.npz", "--out", directory, "--licence", "CC0-1.0"
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"wrote 2 ranks x 1 step to {directory}"
    return directory


@pytest.mark.slow
def test_an_imported_trace_runs_as_the_hint_says(s2sim, trace):
    code, out, _ = s2sim("run", "--topology", "fat-tree", "--workers", "2", "--trace", trace, "--json", "-")
    assert code == 0
    assert {item["workers"] for item in json.loads(out)["results"]} == {2}


def test_show_tells_layers_density_origin_and_sizes(s2sim, trace):
    code, out, err = s2sim("trace", "show", trace)
    assert (code, err) == (0, "")
    for part in ("imported", "CC0-1.0", "50 x 4", "10.000%", "union", "kurtosis", "float32", "828 B"):
        assert part in out


def test_show_json_has_the_manifest_and_its_statistics(s2sim, trace):
    value = json.loads(s2sim("trace", "show", trace, "--json", "-")[1])
    stored = json.loads((trace / "manifest.json").read_text())
    assert value["statistics"] == stored["statistics"]
    assert value["layers"] == stored["layers"]
    assert value["sizes"]["parameters"] == 207
    assert value["sizes"]["files"] == 2
    assert value["sizes"]["stored_bytes"] == sum(path.stat().st_size for path in trace.glob("*/*.safetensors"))


def test_show_measures_a_synthetic_trace(s2sim):
    name = "synthetic:density=0.1,rows=100,width=4"
    value = json.loads(s2sim("trace", "show", name, "--json", "-")[1])
    assert value["kind"] == "synthetic"
    assert value["statistics"]["whole"]["density"] == pytest.approx(0.1)
    code, out, _ = s2sim("trace", "show", name)
    assert code == 0
    assert "drawn on demand" in out


def test_check_accepts_a_sound_trace_in_one_line(s2sim, trace):
    assert s2sim("trace", "check", trace) == (0, "trace trace is sound: 2 files checked\n", "")
    assert s2sim("trace", "check", trace, "--quiet") == (0, "", "")


def test_check_names_the_damaged_file(fails, trace):
    path = trace / "step-0000" / "rank-0001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert "rank-0001.safetensors" in fails("trace", "check", trace)


def test_import_does_not_overwrite_unless_asked(s2sim, fails, trace, tmp_path):
    arguments = ("trace", "import", tmp_path / "rank0.npz", "--out", trace)
    assert "not empty" in fails(*arguments)
    assert s2sim(*arguments, "--overwrite", "--quiet") == (0, "", "")
    assert json.loads((trace / "manifest.json").read_text())["world_size"] == 1


@pytest.mark.parametrize("bad", ["nan", "shape", "missing", "text"])
def test_bad_gradients_are_told_in_one_line(fails, tmp_path, bad):
    first, second = tmp_path / "rank0.npy", tmp_path / "rank1.npy"
    np.save(first, np.ones(4, np.float32))
    if bad == "nan":
        np.save(second, np.array([1, np.nan, 1, 1], np.float32))
    elif bad == "shape":
        np.save(second, np.ones(5, np.float32))
    elif bad == "text":
        second.write_text("hello")
    assert "rank1.npy" in fails("trace", "import", first, second, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("show", "lstm-ml"), "lstm-lm"),
        (("check", "./none"), "none"),
        (("record", "bogus", "--workers", "1", "--out", "x"), "lstm"),
        (("record", "ncf", "--workers", "0", "--out", "x"), "at least 1"),
        (("record", "lstm", "--workers", "1", "--out", "x"), "--text"),
        (("record", "ncf", "--workers", "1"), "--out"),
        (("import", "--out", "x"), "FILES"),
    ],
)
def test_bad_input_is_told_in_one_line(fails, arguments, part):
    assert part in fails("trace", *arguments)


@pytest.mark.slow
def test_recording_without_torch_names_the_extra(tmp_path):
    # None in sys.modules makes an import fail as that of a package that is not installed.
    code = (
        "import sys; sys.modules['torch'] = None; from s2sim.cli.main import main\n"
        f"sys.exit(main(['trace', 'record', 'ncf', '--workers', '1', '--out', {str(tmp_path / 'out')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 's2sim[torch]'" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "sklearn")), reason="needs the extra torch"
)
def test_a_recorded_trace_is_sound(process, tmp_path):
    directory = tmp_path / "cnn"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = process("trace", "record", "cnn", "--workers", "2", "--steps", "2", "--out", directory, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"wrote 2 ranks x 2 steps to {directory}"
    assert process("trace", "check", directory).returncode == 0
