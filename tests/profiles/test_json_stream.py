"""Events read as a stream: the same as all of the file at once, in bounded memory, and broken files in one line."""

import gzip
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import S2SimError
from s2sim.profiles import kineto_events as json_stream
from s2sim.profiles.kineto_events import read_events

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
GOOD = '{"a": 1, "traceEvents": [{"ph": "X"}, {"ph": "M"}], "b": 2}'


@pytest.mark.slow
@given(
    events=st.lists(VALUES, max_size=6),
    header=st.dictionaries(st.text(), VALUES, max_size=3),
    window=st.integers(1, 40),
    compressed=st.booleans(),
    indent=st.sampled_from([None, 2]),
)
def test_a_window_yields_what_stands_in_the_file(tmp_path_factory, events, header, window, compressed, indent):
    header = {key: value for key, value in header.items() if key != "traceEvents"}
    text = json.dumps({**header, "traceEvents": events, "last": 12}, indent=indent).encode()
    path = tmp_path_factory.mktemp("stream") / "trace.json"
    path.write_bytes(gzip.compress(text) if compressed else text)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_WINDOW_CHARACTERS", window)
        assert list(read_events(path, found)) == events
    assert found == {**header, "last": 12}


@pytest.mark.slow
def test_a_large_file_never_is_in_memory(tmp_path):
    path = tmp_path / "large.json"
    event = json.dumps({"ph": "X", "name": "n" * 900, "args": {"Input Dims": [[1, 2, 3]]}})
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        file.writelines(f"{event},\n" for _ in range(12_000))
        file.write(f"{event}]}}")
    seen = []
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_events(path, {}, lambda done, total: seen.append((done, total))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 12_001
    assert path.stat().st_size > 11e6
    assert peak < 6e6
    assert seen == sorted(seen)
    assert seen[-1] == (path.stat().st_size,) * 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cut off"),
        (GOOD[:40].encode(), "cut off"),
        (GOOD[:-1].encode(), "cut off"),
        (b'{"traceEvents": [{"name": "never closed', "cut off"),
        (b'[{"ph": "X"}]', "bare list"),
        (b"<html>", "does not begin with {"),
        (b'{"traceEvents": [{"ph": X}, {"ph": "Y", "more": "to read"}]}', "at character 18 stands no valid JSON"),
        (b'{"traceEvents": [{"ph": "X"} {"ph": "Y"}]}', "at character 30 stands no valid JSON"),
        (b'{"traceEvents" [1]}', "stands no valid JSON"),
        (b'{"a": 1}', "has no traceEvents"),
        (b'{"traceEvents": {"ph": "X"}}', "has no traceEvents"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"traceEvents": [' + b"[" * 100_000 + b"]}", "stands no valid JSON"),
        (gzip.compress(GOOD.encode() * 50, mtime=0)[:40], "cut off"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-6] + b"\0\0\0\0\0\0", "is broken"),
        (gzip.compress(GOOD.encode(), mtime=0)[:10] + b"\xff" * 30, "is broken"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, content, said):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(S2SimError, match=r"^[^\n]+$") as error:
        list(read_events(path, {}))
    assert str(path) in str(error.value)
    assert said in str(error.value)


def test_what_is_no_file_is_one_line(tmp_path):
    for path, said in ((tmp_path, "directory"), (tmp_path / "none.json", "there is no file")):
        with pytest.raises(S2SimError, match=said):
            list(read_events(path, {}))


def test_a_value_that_never_ends_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "_MAX_VALUE_CHARACTERS", 1000)
    monkeypatch.setattr(json_stream, "_WINDOW_CHARACTERS", 100)
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": ["' + "x" * 10_000)
    with pytest.raises(S2SimError, match="at character 18 stands no valid JSON"):
        list(read_events(path, {}))
