"""Importing a user's own gradients from each format."""

import json
import os
import re
import struct
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from s2sim.errors import S2SimWarning, TraceError
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.import_trace import import_trace, read_arrays
from s2sim.gradients.read_trace import open_trace


def _layers(rank, dtype=np.float32):
    rng = np.random.default_rng(rank)
    table = np.zeros((20, 3), dtype)
    table[rng.choice(20, 5, replace=False)] = rng.standard_normal((5, 3))
    return {
        "table": table,
        "dense": rng.standard_normal((4, 3)).astype(dtype),
        "bias": rng.standard_normal(6).astype(dtype),
    }


def _save_bfloat16(path, arrays):
    """Write a safetensors file of bfloat16 tensors by hand: NumPy has no such type."""
    header, body = {}, b""
    for name, array in arrays.items():
        data = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def _check(trace, expected):
    assert open_trace(trace.directory).manifest.kind == "imported"
    trace.verify()
    for rank, layers in enumerate(expected):
        gradient = trace.gradient(0, rank)
        assert set(gradient.names) == set(layers)
        for name, layer in gradient:
            assert isinstance(layer, RowSparse) == (name == "table")
            dense = layer.to_dense() if isinstance(layer, RowSparse) else layer
            assert dense.dtype == np.float32
            np.testing.assert_array_equal(dense, layers[name].astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_archives_of_layers(tmp_path, suffix, dtype):
    expected = [_layers(rank, dtype) for rank in range(3)]
    files = [tmp_path / f"rank{rank}{suffix}" for rank in range(3)]
    for file, layers in zip(files, expected, strict=True):
        np.savez(file, **layers) if suffix == ".npz" else save_file(layers, file)
    trace = import_trace(files, tmp_path / "out", model="mine", licence="MIT")
    assert trace.manifest.model == "mine"
    assert trace.manifest.origin.licence == "MIT"
    assert str(tmp_path) not in (trace.directory / "manifest.json").read_text()
    _check(trace, expected)
    # Halves are kept as halves; what they cannot hold exactly is kept in float32.
    assert {layer.dtype for layer in trace.manifest.layers} == {"float16" if dtype == np.float16 else "float32"}


def test_bfloat16_is_widened_exactly(tmp_path):
    expected, files = [], []
    for rank in range(2):
        layers = _layers(rank)
        files.append(tmp_path / f"{rank}.safetensors")
        _save_bfloat16(files[-1], layers)
        # Truncation to the upper 16 bits is what was written, so that is what must come back.
        expected.append({n: (a.view(np.uint32) & 0xFFFF0000).view(np.float32) for n, a in layers.items()})
    trace = import_trace(files, tmp_path / "out")
    assert trace.manifest.dtype == "bf16"
    _check(trace, expected)


def test_one_file_of_another_type_makes_the_gradients_float32(tmp_path):
    _save_bfloat16(tmp_path / "0.safetensors", _layers(0))
    save_file(_layers(1), tmp_path / "1.safetensors")
    trace = import_trace([tmp_path / "0.safetensors", tmp_path / "1.safetensors"], tmp_path / "out")
    assert trace.manifest.dtype == "fp32"


def test_npy_of_one_dimension_is_one_dense_layer(tmp_path):
    arrays = [np.arange(5, dtype=np.float64) * (rank + 1) for rank in range(2)]
    for rank, array in enumerate(arrays):
        np.save(tmp_path / f"{rank}.npy", array)
    trace = import_trace([tmp_path / "0.npy", tmp_path / "1.npy"], tmp_path / "out")
    assert trace.gradient(0, 0).names == ("gradient",)
    np.testing.assert_array_equal(trace.gradient(0, 1).layers[0], arrays[1].astype(np.float32))


def test_layer_is_sparse_only_if_it_is_on_every_rank(tmp_path):
    sparse, full = np.eye(4, 3, dtype=np.float32)[:, :1] * np.ones((4, 3), np.float32), np.ones((4, 3), np.float32)
    np.save(tmp_path / "0.npy", sparse)
    np.save(tmp_path / "1.npy", full)
    both = import_trace([tmp_path / "0.npy", tmp_path / "1.npy"], tmp_path / "out")
    assert not both.manifest.layers[0].sparse
    alone = import_trace([tmp_path / "0.npy"], tmp_path / "alone")
    assert alone.manifest.layers[0].sparse
    np.testing.assert_array_equal(alone.gradient(0, 0).layers[0].to_dense(), sparse)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([1.0, np.nan]), "NaN"),
        (np.array([1.0, 1e300]), "too large"),
        (np.array([1, 2]), "type int64"),
        (np.array([1j]), "type complex128"),
        (np.empty((0, 3)), r"shape \[0, 3\]"),
        (np.array([{}], object), "allow_pickle=False"),
    ],
)
def test_arrays_that_are_no_gradients_are_refused(tmp_path, array, text):
    np.save(tmp_path / "0.npy", array, allow_pickle=True)
    with pytest.raises(TraceError, match=text) as caught:
        import_trace([tmp_path / "0.npy"], tmp_path / "out")
    assert "0.npy" in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_scalar_is_one_element(tmp_path, suffix):
    layers = {"logit_scale": np.array(2.5, np.float32), "w": np.ones(3, np.float32)}
    path = tmp_path / f"0{suffix}"
    save_file(layers, path) if suffix == ".safetensors" else np.savez(path, **layers)
    gradient = import_trace([path], tmp_path / "out").gradient(0, 0)
    assert {name: layer.tolist() for name, layer in gradient} == {"logit_scale": [2.5], "w": [1, 1, 1]}


def test_integer_tensor_in_safetensors_is_refused(tmp_path):
    save_file({"a": np.arange(3)}, tmp_path / "0.safetensors")
    with pytest.raises(TraceError, match="type I64"):
        read_arrays(tmp_path / "0.safetensors")


def test_ranks_must_have_the_same_layers(tmp_path):
    np.savez(tmp_path / "0.npz", a=np.ones(3), b=np.ones(2))
    np.savez(tmp_path / "1.npz", a=np.ones(3))
    np.savez(tmp_path / "2.npz", a=np.ones(3), b=np.ones(4))
    for other, text in (("1.npz", "'b' is missing"), ("2.npz", r"'b' is \(4,\), in .*0\.npz it is \(2,\)")):
        with pytest.raises(TraceError, match=text):
            import_trace([tmp_path / "0.npz", tmp_path / other], tmp_path / "out")


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "text.csv").write_text("1,2")
    for name in ("text.npy", "text.npz", "text.safetensors", "text.csv", "none.npy"):
        with pytest.raises(TraceError, match=name.replace(".", r"\.")) as caught:
            import_trace([tmp_path / name], tmp_path / "out")
        assert "\n" not in str(caught.value)
        assert "pickle" not in str(caught.value)
    with pytest.raises(TraceError, match="no file to import"):
        import_trace([], tmp_path / "out")


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_altered_files_raise_nothing_but_trace_errors(tmp_path):
    rng = np.random.default_rng(5)
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    np.savez_compressed(tmp_path / "a.npz", **_layers(0))
    save_file(_layers(0), tmp_path / "a.safetensors")
    refused = 0
    for suffix in (".npy", ".npz", ".safetensors"):
        whole = (tmp_path / f"a{suffix}").read_bytes()
        for _ in range(150):
            data = bytearray(whole)
            data[rng.integers(min(len(data), 200))] = rng.integers(256)
            (tmp_path / f"b{suffix}").write_bytes(data)
            try:
                read_arrays(tmp_path / f"b{suffix}")
            except TraceError:
                refused += 1
    assert refused > 100


def test_byte_order_is_converted_and_what_underflows_is_told(tmp_path):
    values = np.array([1.5, 0, -2.5])
    np.save(tmp_path / "big.npy", values.astype(">f4"))
    small = np.array([1e-300, 1.0, 0.0])
    np.save(tmp_path / "small.npy", small)
    save_file({"gradient": small}, tmp_path / "small.safetensors")
    assert read_arrays(tmp_path / "big.npy")["gradient"].tolist() == values.tolist()
    for suffix in (".npy", ".safetensors"):
        with pytest.warns(S2SimWarning, match="1 value of layer 'gradient' too small for float32 became zero"):
            assert read_arrays(tmp_path / f"small{suffix}")["gradient"].tolist() == [0, 1, 0]


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "0.npy")
    with pytest.raises(TraceError, match=r"0\.npy cannot be read: it is not a regular file"):
        read_arrays(tmp_path / "0.npy")


def _save_steps(directory, names):
    for name in names:
        path = directory / f"{name}.npy"
        path.parent.mkdir(exist_ok=True)
        step, rank = (int(number) for number in re.findall(r"\d+", name))
        np.save(path, np.array([step, rank], np.float32))
    return [directory / f"{name}.npy" for name in names]


@pytest.mark.parametrize("form", ["step{}-rank{}", "Step_{:04}/RANK{:04}", "mine.step={}.rank={}.last"])
def test_names_tell_step_and_rank_whatever_their_order(tmp_path, form):
    places = [(step, rank) for step in (9, 10, 100) for rank in range(11)]
    files = _save_steps(tmp_path, [form.format(*place) for place in sorted(places, key=str)])
    trace = import_trace(files, tmp_path / "out")
    assert (trace.steps, trace.world_size) == (3, 11)
    found = [trace.gradient(step, rank).layers[0].tolist() for step in range(3) for rank in range(11)]
    assert found == [list(place) for place in places]
    assert trace.manifest.origin.source.startswith("33 files, one a step and rank: ")
    trace.verify()


def test_steps_of_one_rank_need_not_name_it(tmp_path):
    files = [tmp_path / f"step{step}.npy" for step in (2, 1)]
    for step, file in zip((2, 1), files, strict=True):
        np.save(file, np.array([step], np.float32))
    trace = import_trace(files, tmp_path / "out")
    assert [trace.gradient(step, 0).layers[0].tolist() for step in range(trace.steps)] == [[1], [2]]


def test_without_steps_the_order_given_is_that_of_ranks(tmp_path):
    files = [tmp_path / f"rank{rank}.npy" for rank in (1, 0)]
    for rank, file in zip((1, 0), files, strict=True):
        np.save(file, np.array([rank], np.float32))
    trace = import_trace(files, tmp_path / "out")
    assert [trace.gradient(0, rank).layers[0].tolist() for rank in range(2)] == [[1], [0]]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["step0-rank0", "step0-rank1", "step1-rank0"], "step 1 has no file of rank 1"),
        (["step0-rank0", "step0/rank0"], "are both of step 0, rank 0"),
        (["step0-rank0", "0-rank1"], r"0-rank1.npy does not tell its step"),
        (["step0-rank0", "step1-1"], r"step1-1.npy does not tell its rank"),
    ],
)
def test_names_that_do_not_fit_together_are_refused(tmp_path, names, text):
    with pytest.raises(TraceError, match=text) as caught:
        import_trace(_save_steps(tmp_path, names), tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_all_steps_need_the_same_shapes(tmp_path):
    files = _save_steps(tmp_path, ["step0-rank0", "step1-rank0"])
    np.save(files[1], np.ones(3, np.float32))
    with pytest.raises(TraceError, match=r"step1-rank0.npy: layer 'gradient' is \(3,\), in .*step0-rank0.npy it is"):
        import_trace(files, tmp_path / "out")


def test_pytorch_is_asked_for_only_where_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "0.pt").write_bytes(b"")
    with pytest.raises(TraceError, match=r"0\.pt is read by PyTorch: pip install 's2sim\[torch\]'"):
        read_arrays(tmp_path / "0.pt")


def test_a_small_archive_that_expands_to_much_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr("s2sim.gradients.read_trace._ROOM_BYTES", 10**5)
    np.savez_compressed(tmp_path / "bomb.npz", w=np.zeros((1000, 500), np.float32))
    np.savez_compressed(tmp_path / "honest.npz", w=np.arange(10**5, dtype=np.float32))
    with pytest.raises(TraceError, match=r"bomb.npz expands to 2 MB: save it without compression"):
        read_arrays(tmp_path / "bomb.npz")
    assert read_arrays(tmp_path / "honest.npz")["w"].shape == (10**5,)
