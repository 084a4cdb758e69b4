"""Writing and reading traces, and everything that reading refuses."""

import dataclasses
import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load, save

from s2sim.errors import S2SimError, TraceError, UnknownNameError
from s2sim.files import read_bytes
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.manifest import gradient_file_name
from s2sim.gradients.read_trace import open_trace
from s2sim.gradients.statistics import kurtosis, top_percent_energy, union_ranks
from s2sim.gradients.write_trace import _to_half, write_trace

from .conftest import ORIGIN, Source

FIRST = gradient_file_name(0, 0)


def _write(directory, source, **options):
    return write_trace(directory, source, kind="recorded", model="random", origin=ORIGIN, **options)


def _edit_manifest(trace, **changes):
    path = trace.directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _edit_tensors(trace, **changes):
    """Replace tensors of the first file (None deletes) and make the checksum fit again."""
    path = trace.directory / FIRST
    tensors = load(path.read_bytes())
    for name, array in changes.items():
        if array is None:
            del tensors[name]
        else:
            tensors[name] = array
    data = save(tensors)
    path.write_bytes(data)
    _edit_manifest(trace, files=trace.manifest.files | {FIRST: hashlib.sha256(data).hexdigest()})
    return open_trace(trace.directory)


def _values(*layers):
    return [layer.values if isinstance(layer, RowSparse) else layer for layer in layers]


def _assert_equal(found, expected):
    assert found.names == expected.names
    for a, b in zip(found.layers, expected.layers, strict=True):
        assert a.dtype == np.float32
        assert isinstance(a, RowSparse) == isinstance(b, RowSparse)
        if isinstance(a, RowSparse):
            assert a.rows.dtype == np.int64
            assert a.shape == b.shape
            np.testing.assert_array_equal(a.rows, b.rows)
        np.testing.assert_array_equal(*_values(a, b))


def test_lossless_trace_reads_back_bit_for_bit(tmp_path, source):
    _write(tmp_path / "t", source, max_storage_error=0.0)
    trace = open_trace(tmp_path / "t")
    assert trace.gradient(0, 0).names == ("table", "vector", "a/b", "bias")
    for step in range(2):
        for rank in range(3):
            _assert_equal(trace.gradient(step, rank), source.gradient(step, rank))
    trace.verify()


def test_float16_trace_keeps_small_values_and_states_its_error(written, source):
    # At 1e-9 plain halves would all be zero.
    assert {layer.dtype for layer in written.manifest.layers} == {"float16"}
    worst = dict.fromkeys(written.gradient(0, 0).names, 0.0)
    for step in range(2):
        for rank in range(3):
            pairs = zip(written.gradient(step, rank), source.gradient(step, rank), strict=True)
            for (name, found), (_, exact) in pairs:
                a, b = _values(found, exact)
                error = np.linalg.norm(a.astype(float) - b) / np.linalg.norm(b.astype(float))
                worst[name] = max(worst[name], error)
    for layer in written.manifest.layers:
        assert 0 < layer.storage_error < 1e-3
        assert worst[layer.name] == pytest.approx(layer.storage_error, rel=1e-9)


def test_written_manifest_reads_back_equal(written):
    assert open_trace(written.directory).manifest == written.manifest


@given(arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_scaled_halves_never_overflow_and_scales_are_powers_of_two(values):
    half, scale = _to_half(values)
    assert np.isfinite(half).all()
    assert np.frexp(scale)[0] == 0.5
    peak = np.abs(values).max(initial=0)
    # Half a unit in the last place of the largest value; no worse for a smaller one.
    assert np.abs(half.astype(np.float64) * scale - values).max(initial=0) <= max(peak * 2.0**-11, scale * 2.0**-25)


def test_layer_that_would_lose_too_much_in_halves_stays_in_float32(tmp_path):
    class OneOfHalves(Source):
        def gradient(self, step, rank):
            gradient = super().gradient(step, rank)
            table = gradient.layers[0]
            values = table.values.astype(np.float32) * 0 + np.float32(1.5e-42 if rank else 3.0)
            return dataclasses.replace(gradient, layers=(table.with_values(values), *gradient.layers[1:]))

    source = OneOfHalves()
    trace = _write(tmp_path / "t", source, max_storage_error=1e-4)
    assert [layer.dtype for layer in trace.manifest.layers] == ["float16", "float32", "float32", "float32"]
    assert {layer.storage_error for layer in trace.manifest.layers} == {0.0}
    for rank in (0, 1):
        _assert_equal(trace.gradient(0, rank), source.gradient(0, rank))


def test_reading_is_lazy(written):
    shutil.rmtree(written.directory / "step-0001")
    trace = open_trace(written.directory)
    trace.gradient(0, 2)
    with pytest.raises(TraceError, match=r"step-0001/rank-0000\.safetensors is missing"):
        trace.gradient(1, 0)


@pytest.mark.parametrize("place", ["start", "header", "middle", "end"])
def test_altered_byte_is_refused(written, place):
    path = written.directory / FIRST
    data = bytearray(path.read_bytes())
    data[{"start": 0, "header": 20, "middle": len(data) // 2, "end": -1}[place]] ^= 1
    path.write_bytes(data)
    with pytest.raises(TraceError, match=r"rank-0000\.safetensors"):
        written.gradient(0, 0)
    with pytest.raises(TraceError):
        written.verify()
    written.gradient(0, 1)


@given(st.data())
def test_any_truncation_is_refused(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("truncated")
    trace = _write(directory / "t", Source(1, 1))
    path = trace.directory / FIRST
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(TraceError, match=r"truncated|hold"):
        trace.gradient(0, 0)


def test_rows_must_increase_and_lie_inside(written):
    rows = written.gradient(0, 0).layers[0].rows.astype(np.int32)
    for bad, text in (
        (rows[::-1].copy(), "strictly increasing"),
        (np.concatenate([rows[:1], rows[:-1]]), "strictly increasing"),
        (rows + np.int32(50), "rows outside 0 to 49"),
        (rows - np.int32(50), "rows outside 0 to 49"),
        (rows[:-1].copy(), r"'table/values' has the shape"),
        (rows.astype(np.int64), r"'table/rows' has the type I64"),
    ):
        with pytest.raises(TraceError, match=text):
            _edit_tensors(written, **{"table/rows": bad}).gradient(0, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_value_that_is_not_finite_is_refused(written, bad):
    values = np.zeros((3, 5, 2), np.float16)
    values[1, 1, 1] = bad
    with pytest.raises(TraceError, match=r"'a/b/values' holds NaN or infinity"):
        _edit_tensors(written, **{"a/b/values": values}).gradient(0, 0)


def test_scale_that_overflows_is_refused_without_a_warning(written):
    scales = np.full(4, 3e38, np.float32)
    with pytest.raises(TraceError, match="holds NaN or infinity"):
        _edit_tensors(written, scales=scales).gradient(0, 0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bias/values": None}, "lacks the tensor 'bias/values'"),
        ({"scales": None}, "lacks the tensor 'scales'"),
        ({"bias/values": np.zeros(8, np.float16)}, r"has the shape \[8\], not \[7\]"),
        ({"bias/values": np.zeros(7, np.float32)}, "has the type F32, the manifest says float16"),
        ({"more": np.zeros(1, np.float32)}, "'more', which the manifest does not name"),
    ],
)
def test_tensors_must_be_those_of_the_manifest(written, changes, text):
    with pytest.raises(TraceError, match=text):
        _edit_tensors(written, **changes).gradient(0, 0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"schema_version": 2}, "schema_version 2; this s2sim reads 1"),
        ({"steps": "2"}, "steps: Input should be a valid integer"),
        ({"steps": 0}, "at least one of each"),
        ({"world_size": 2}, "lists 6 files for 2 steps of 2 ranks"),
        ({"world_size": 10**9}, "lists 6 files for 2 steps of 1000000000 ranks"),
        ({"steps": 3, "world_size": 2}, r"no checksum for step-0002/rank-0000\.safetensors and 1 more"),
        ({"kind": "guessed"}, "kind: Input should be"),
        ({"colour": 1}, "colour: Unexpected"),
        ({"layers": []}, "at least one layer"),
        ({"origin": {}}, "origin.data: .*origin.licence: "),
    ],
)
def test_bad_manifest_is_refused_naming_the_field(written, changes, text):
    _edit_manifest(written, **changes)
    with pytest.raises(TraceError, match=text) as caught:
        open_trace(written.directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\x00", b"\xff\xfe", b"[" * 100_000])
def test_manifest_that_is_no_json_object_is_refused(written, content):
    (written.directory / "manifest.json").write_bytes(content)
    with pytest.raises(TraceError, match=r"manifest\.json is not (a )?JSON( object)?: record or copy"):
        open_trace(written.directory)


@pytest.mark.parametrize("name", ["manifest.json", "step-0000/rank-0000.safetensors"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_refused_at_once(written, name, make):
    path = written.directory / name
    path.unlink()
    make(path)
    with pytest.raises(TraceError, match=r"not a regular file|is a directory|leads out of the trace") as caught:
        open_trace(written.directory).gradient(0, 0)
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize("name", ["manifest.json", "step-0000/rank-0000.safetensors"])
def test_a_link_that_leads_out_is_refused_and_one_inside_is_not(written, tmp_path, name):
    path = written.directory / name
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(TraceError, match="a link that leads out of the trace"):
        open_trace(written.directory).gradient(0, 0)
    path.unlink()
    (tmp_path / "outside").rename(written.directory / "inside")
    path.symlink_to(written.directory / "inside")
    # The directory itself may be reached by a link.
    (tmp_path / "link").symlink_to(written.directory)
    _assert_equal(open_trace(tmp_path / "link").gradient(0, 0), written.gradient(0, 0))


def test_many_problems_of_a_manifest_are_told_in_a_short_line(written):
    _edit_manifest(written, layers=[{"colour": 1}] * 1000, schema_version=1)
    with pytest.raises(TraceError, match=r"layers\.0\.name: .*; and \d+ more$") as caught:
        open_trace(written.directory)
    assert len(str(caught.value)) < 600
    _edit_manifest(written, schema_version=[1] * 1000)
    with pytest.raises(TraceError, match="schema_version of another kind; this s2sim reads 1"):
        open_trace(written.directory)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "step-0000/../../x", "..\\x", "C:x"])
def test_file_names_that_lead_out_are_refused(written, name):
    _edit_manifest(written, files=written.manifest.files | {name: "0" * 64})
    with pytest.raises(TraceError, match="leads out of the trace"):
        open_trace(written.directory)


def test_changed_statistics_are_found_by_verify(written):
    statistics = dataclasses.asdict(written.manifest.statistics)
    statistics["layers"]["table"]["density"] *= 1.001
    _edit_manifest(written, statistics=statistics)
    with pytest.raises(TraceError, match="density of layer 'table' in the manifest"):
        open_trace(written.directory).verify()


def test_step_or_rank_that_was_not_recorded_is_refused(written):
    for step, rank, text in ((2, 0, "steps are 0 to 1"), (0, 3, "ranks are 0 to 2"), (-1, 0, "no step -1")):
        with pytest.raises(TraceError, match=text):
            written.gradient(step, rank)


def test_unknown_names_and_wrong_paths(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'lstm-lm'"):
        open_trace("lstm-ml")
    with pytest.raises(TraceError, match="no trace directory"):
        open_trace(str(tmp_path / "none"))
    with pytest.raises(TraceError, match=r"holds no manifest\.json"):
        open_trace(tmp_path)
    (tmp_path / "file.npy").touch()
    with pytest.raises(TraceError, match="trace import"):
        open_trace(tmp_path / "file.npy")


def test_writing_refuses_a_full_directory_unless_told(written, source, tmp_path):
    before = (written.directory / "manifest.json").read_bytes()
    with pytest.raises(TraceError, match="not empty"):
        _write(written.directory, source)
    assert (written.directory / "manifest.json").read_bytes() == before
    _write(written.directory, Source(2, 1), overwrite=True)
    assert open_trace(written.directory).world_size == 2
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").touch()
    with pytest.raises(TraceError, match="not overwritten"):
        _write(precious, source, overwrite=True)
    with pytest.raises(TraceError, match="is a file"):
        _write(precious / "thesis.tex", source, overwrite=True)
    with pytest.raises(TraceError, match="there is no directory"):
        _write(tmp_path / "a" / "b", source)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_half_written_stays(tmp_path, monkeypatch, error, overwrite):
    if overwrite:
        old = _write(tmp_path / "t", Source(1, 1)).manifest
    original, calls = Path.write_bytes, []

    def failing(self, data):
        calls.append(self)
        if len(calls) == 3:
            raise error
        return original(self, data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else TraceError
    with pytest.raises(expected):
        _write(tmp_path / "t", Source(), overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == (["t"] if overwrite else [])
    if overwrite:
        assert open_trace(tmp_path / "t").manifest == old


def test_gradients_that_are_no_finite_float32_or_differ_in_shape_are_not_written(tmp_path):
    class Bad(Source):
        def __init__(self, change):
            super().__init__()
            self.change = change

        def gradient(self, step, rank):
            gradient = super().gradient(step, rank)
            if (step, rank) != (1, 2):
                return gradient
            return dataclasses.replace(gradient, layers=(*gradient.layers[:3], self.change(gradient.layers[3])))

    for change, text in (
        (lambda bias: bias.astype(np.float64), "type float64"),
        (lambda bias: bias * np.float32(np.nan), "NaN"),
        (lambda bias: bias[1:], "step 1, rank 2 has other layers"),
    ):
        with pytest.raises(TraceError, match=text):
            _write(tmp_path / "t", Bad(change))
    assert not any(tmp_path.iterdir())


def test_union_ranks_end_with_all():
    assert union_ranks(1) == (1,)
    assert union_ranks(8) == (1, 2, 4, 8)
    assert union_ranks(9) == (1, 2, 4, 8, 9)


def test_tail_of_known_distributions():
    values = np.random.default_rng(1).standard_normal(400_000)
    # Gaussian: kurtosis 3; the energy above the 99.5 % quantile z is 2 (z phi(z) + 0.005) = 0.0845.
    assert kurtosis(values) == pytest.approx(3, abs=0.05)
    z = 2.5758293035489
    assert top_percent_energy(values) == pytest.approx(
        2 * (z * np.exp(-z * z / 2) / np.sqrt(2 * np.pi) + 0.005), rel=0.02
    )
    assert kurtosis(np.array([1.0, -1.0])) == 1
    assert kurtosis(np.ones(3)) is None
    assert top_percent_energy(np.zeros(3)) is None
    # Far below what a fourth power can hold in float64.
    assert kurtosis(values * 1e-200) == pytest.approx(kurtosis(values))


def test_errors_have_one_root():
    assert issubclass(TraceError, S2SimError)


def test_a_shape_beyond_any_memory_is_refused_and_no_room_made_for_it(written):
    layers = json.loads((written.directory / "manifest.json").read_text())["layers"]
    layers[0]["shape"] = [2**62, 4]
    _edit_manifest(written, layers=layers)
    with pytest.raises(TraceError, match="more than any memory holds"):
        open_trace(written.directory)
    path = written.directory / "small"
    path.write_bytes(b"small")
    assert read_bytes(path, 2**70) == b"small"
