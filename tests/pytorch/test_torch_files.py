"""Gradients that PyTorch saved: what is read, and what is refused without executing anything."""

import io
import os
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from s2sim.cli.main import main
from s2sim.codecs.floats import BFLOAT16, widen
from s2sim.errors import TraceError
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.import_trace import import_trace, read_arrays


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def saved(path, content, **options):
    torch.save(content, path, **options)
    return path


def sparse(rows, values, shape):
    return torch.sparse_coo_tensor(torch.tensor([rows]), torch.tensor(values), shape, check_invariants=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_floating_type_but_bfloat16_becomes_float32(tmp_path, dtype):
    values = torch.tensor([[1.5, -2.0], [0.0, 3.25]], dtype=dtype)
    layers = read_arrays(saved(tmp_path / "a.pt", {"w": values, "b": values[0]}))
    assert list(layers) == ["w", "b"]
    own = BFLOAT16 if dtype == torch.bfloat16 else np.dtype(np.float32)
    assert {layer.dtype for layer in layers.values()} == {own}
    layers = {name: widen(layer) for name, layer in layers.items()}
    np.testing.assert_array_equal(layers["w"], [[1.5, -2.0], [0.0, 3.25]])


def test_parameters_views_and_single_tensors_are_read(tmp_path):
    parameter = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(read_arrays(saved(tmp_path / "p.pth", parameter))["gradient"], [[0, 1, 2], [3, 4, 5]])
    turned = read_arrays(saved(tmp_path / "t.pt", {"t": torch.arange(6.0).reshape(2, 3).T}))["t"]
    np.testing.assert_array_equal(turned, [[0, 3], [1, 4], [2, 5]])
    assert read_arrays(saved(tmp_path / "s.pt", {"logit_scale": torch.tensor(2.5)}))["logit_scale"].shape == (1,)


def test_sparse_gradients_keep_their_rows_and_add_what_stands_twice(tmp_path):
    files = [
        saved(tmp_path / "0.pt", {"table": sparse([7, 2, 7], [[1.0, 1.0], [2.0, 0.0], [3.0, 4.0]], (10, 2))}),
        saved(tmp_path / "1.pt", {"table": torch.zeros(10, 2).index_fill_(0, torch.tensor([5]), 1.0)}),
    ]
    trace = import_trace(files, tmp_path / "out")
    first, second = (trace.gradient(0, rank).layers[0] for rank in range(2))
    assert isinstance(first, RowSparse)
    assert (first.rows.tolist(), first.values.tolist()) == ([2, 7], [[2.0, 0.0], [4.0, 5.0]])
    assert (second.rows.tolist(), second.values.tolist()) == ([5], [[1.0, 1.0]])


def test_sparse_gradients_of_most_rows_are_dense_for_all(tmp_path):
    files = [
        saved(tmp_path / "0.pt", {"table": sparse([0, 1], [[1.0], [2.0]], (3, 1))}),
        saved(tmp_path / "1.pt", {"table": sparse([2], [[3.0]], (3, 1))}),
    ]
    trace = import_trace(files, tmp_path / "out")
    assert [trace.gradient(0, rank).layers[0].tolist() for rank in range(2)] == [[[1], [2], [0]], [[0], [0], [3]]]


@pytest.mark.parametrize(
    "wrap", [lambda evil: evil, lambda evil: {"w": evil}, lambda evil: {"w": torch.ones(2), "x": evil}]
)
def test_a_file_that_would_run_code_is_refused_in_one_line_and_runs_none(tmp_path, capsys, wrap):
    path = saved(tmp_path / "evil.pt", wrap(Evil(tmp_path / "owned")))
    assert main(["trace", "import", str(path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "evil.pt holds something else than tensors, which could run code, and is not loaded" in error
    assert "weights_only" not in error
    assert not (tmp_path / "owned").exists()
    assert not (tmp_path / "out").exists()


def test_code_in_a_file_of_the_old_format_is_not_even_looked_at(tmp_path):
    path = saved(tmp_path / "old.pt", {"w": Evil(tmp_path / "owned")}, _use_new_zipfile_serialization=False)
    with pytest.raises(TraceError, match="not written by torch"):
        read_arrays(path)
    assert not (tmp_path / "owned").exists()


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (lambda: {"w": torch.tensor([1.0, float("nan")])}, "layer 'w' holds NaN"),
        (lambda: {"w": torch.ones(0, 3)}, r"layer 'w' has the shape \[0, 3\]"),
        (lambda: {"w": torch.arange(3)}, "type torch.int64"),
        (lambda: {"w": torch.ones(3, dtype=torch.complex64)}, "type torch.complex64"),
        (dict, "holds no layer"),
        (lambda: [torch.ones(3)], "holds a list: save a dictionary"),
        (lambda: {"step": 3, "w": torch.ones(3)}, "'step' is of type int"),
        (lambda: {3: torch.ones(3)}, "3 is of type Tensor"),
        (lambda: {"w": torch.ones(1).expand(10**13)}, "claims more elements than the file holds"),
        (lambda: {"w": torch.ones(3, device="meta")}, "no plain tensor"),
        (lambda: {"w": torch.ones(4, 4).to_sparse_csr()}, "no plain tensor"),
        (lambda: {"w": torch.ones(4, 4).to_sparse()}, "sparse in more than its rows"),
        (lambda: {"w": sparse([1, 99], [[1.0], [1.0]], (5, 1))}, "found index 99"),
        (lambda: {"w": sparse([1, -3], [[1.0], [1.0]], (5, 1))}, "negative index -3"),
        (lambda: {"w": sparse([1], [[1.0]], (2**31, 1))}, "too many"),
    ],
)
def test_what_is_no_gradient_is_named_in_one_line(tmp_path, content, text):
    with pytest.raises(TraceError, match=text) as caught:
        read_arrays(saved(tmp_path / "a.pt", content()))
    assert "a.pt" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_truncated_and_altered_files_raise_nothing_but_trace_errors(tmp_path):
    content = {"w": torch.randn(4, 3), "t": torch.randn(4, 3).to_sparse(1), "b": torch.randn(3).bfloat16()}
    whole = saved(tmp_path / "a.pt", content).read_bytes()
    rng = np.random.default_rng(5)
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def altered(data):
        changed = bytearray(data)
        changed[rng.integers(len(data))] = rng.integers(256)
        return bytes(changed)

    def altered_pickle():
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, altered(data) if name.endswith("data.pkl") else data)
        return target.getvalue()

    refused = []
    for number in range(450):
        data = (whole[: rng.integers(len(whole))], altered(whole), altered_pickle())[number % 3]
        (tmp_path / "b.pt").write_bytes(data)
        try:
            read_arrays(tmp_path / "b.pt")
        except TraceError as error:
            refused.append(str(error))
    assert len(refused) > 250
    assert not [line for line in refused if "\n" in line]


def test_an_old_pytorch_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(TraceError, match=r"could run code in PyTorch 2\.5\.1"):
        read_arrays(saved(tmp_path / "a.pt", {"w": torch.ones(3)}))


def test_a_small_archive_that_expands_to_much_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr("s2sim.gradients.read_trace._ROOM_BYTES", 10**5)
    whole = saved(tmp_path / "a.pt", {"w": torch.zeros(1000, 500)})
    assert read_arrays(whole)["w"].shape == (1000, 500)
    packed = tmp_path / "b.pt"
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as smaller:
        for name in archive.namelist():
            smaller.writestr(name, archive.read(name))
    with pytest.raises(TraceError, match=r"b\.pt expands to 2\S* MB: save it without compression"):
        read_arrays(packed)
