"""The store of recordings: what it has is what would be computed, whatever happens to its files."""

import os
import pickle

import pytest

import s2sim
from s2sim.experiment import recording_store as store_module
from s2sim.experiment.recording_store import RecordingStore, recording_store
from s2sim.experiment.scenario.content_hash import run_content
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.provenance import named_files, package_version

REDUCERS = ("union", "topk:density=0.01")
OPTIONS = {"workers": 4, "trace": "lstm-lm", "reducers": REDUCERS, "break_even": False, "thorough": False}


@pytest.fixture
def store(monkeypatch, tmp_path):
    monkeypatch.setenv("S2SIM_CACHE", str(tmp_path / "cache"))
    return recording_store()


def test_a_second_run_has_the_same_result_and_runs_no_reducer(store, monkeypatch):
    first = s2sim.run("leaf-spine", **OPTIONS).to_json()
    assert len(list(store.entries())) == 3
    monkeypatch.setattr("s2sim.experiment.prediction.record_at_size", None)
    assert s2sim.run("leaf-spine", **OPTIONS).to_json() == first


@pytest.mark.usefixtures("store")
def test_a_recording_serves_other_networks_and_fewer_reducers(monkeypatch):
    s2sim.run("leaf-spine", **OPTIONS)
    monkeypatch.setattr("s2sim.experiment.prediction.record_at_size", None)
    fewer = OPTIONS | {"reducers": ("union",)}
    assert [row.reducer for row in s2sim.run("tcp-10g", **fewer).rows] == ["dense", "union"]


@pytest.mark.slow
def test_other_gradients_steps_seeds_and_options_are_recorded_anew(store):
    s2sim.run("leaf-spine", **OPTIONS)
    for change in ({"workers": 3}, {"dtype": "bf16"}, {"reducers": ("topk:density=0.02",)}, {"seed": 1}):
        before = len(list(store.entries()))
        s2sim.run("leaf-spine", **(OPTIONS | change))
        assert len(list(store.entries())) > before, change


@pytest.mark.parametrize("damage", [lambda data: data[:40], lambda data: data[:-1] + b"!", lambda _: b""])
def test_a_damaged_entry_is_recorded_anew(store, damage):
    first = s2sim.run("leaf-spine", **OPTIONS).to_json()
    for path in store.folder.iterdir():
        path.write_bytes(damage(path.read_bytes()))
    assert s2sim.run("leaf-spine", **OPTIONS).to_json() == first
    assert s2sim.run("leaf-spine", **OPTIONS).to_json() == first


@pytest.mark.usefixtures("store")
def test_a_warning_is_given_every_time():
    options = OPTIONS | {"trace": "cnn", "reducers": ("union",)}
    for _ in range(2):
        with pytest.warns(s2sim.S2SimWarning, match="no row-sparse layer"):
            s2sim.run("leaf-spine", **options)


def test_least_recently_used_entries_go_first(store):
    for key in ("a", "b", "c"):
        store.put(key, list(range(1000)))
    size = next(iter(store.entries()))[1].st_size
    for age, key in enumerate(("b", "c", "a")):
        path = store.folder / f"{key}.recording"
        os.utime(path, (age, age))
    assert store.trim(2 * size) == 1
    assert [store.get(key) is None for key in "abc"] == [False, True, False]


def test_no_folder_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    store = RecordingStore(tmp_path / "file")
    store.put("key", 1)
    assert store.get("key") is None
    store.put("key", lambda: None)


def test_other_code_makes_other_keys(store, monkeypatch):
    s2sim.run("leaf-spine", **OPTIONS)
    monkeypatch.setattr(store_module, "package_version", lambda: "another")
    s2sim.run("leaf-spine", **OPTIONS)
    assert len(list(store.entries())) == 6


def test_other_files_in_options_are_recorded_anew(store, tmp_path):
    weights = tmp_path / "weights.txt"
    counts = []
    for own in (0.5, 0.25):
        weights.write_text(f"{own} {1 - own}\n{1 - own} {own}\n")
        s2sim.run("leaf-spine", **OPTIONS | {"workers": 2, "reducers": (f"choco:weights={weights}",)})
        counts.append(len(list(store.entries())))
    assert counts[1] == counts[0] + 1


def test_files_that_a_named_file_names_count(tmp_path):
    (tmp_path / "gpu.toml").write_text("[gpu.mine]\n")
    (tmp_path / "cluster.toml").write_text('gpu = "./gpu.toml"\n')
    spec = {"topology": str(tmp_path / "cluster.toml"), "workers": 2}
    before = named_files(spec)
    assert len(before) == 2
    (tmp_path / "gpu.toml").write_text("[gpu.yours]\n")
    after = named_files(spec)
    gpu = str(tmp_path / "gpu.toml")
    assert [path for path in before if before[path] != after[path]] == [gpu]
    assert named_files([f"per-layer:*=choco;weights={gpu}"]) == {gpu: after[gpu]}


def test_the_job_of_a_recorded_folder_counts_beside_its_gradients(tmp_path):
    files = [tmp_path / "manifest.json", tmp_path / "job.json"]
    for file in files:
        file.write_text("{}")
    before = named_files({"recorded": str(tmp_path)})
    files[1].write_text('{"iteration_s": 1}')
    after = named_files({"recorded": str(tmp_path)})
    assert [path for path in before if before[path] != after[path]] == [str(files[1])]
    assert len(before) == 2


def test_other_code_of_a_plug_in_makes_another_version(tmp_path, monkeypatch):
    (tmp_path / "plug_in.py").write_text("from helper_of_it import THING\n")
    folder = tmp_path / "plug_in-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plug_in\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[s2sim.reducers]\nthing = plug_in:THING\n")
    without = package_version.__wrapped__()
    monkeypatch.syspath_prepend(tmp_path)
    first = package_version.__wrapped__()
    (tmp_path / "plug_in.py").write_text("THING = 2\n")
    assert len({without, first, package_version.__wrapped__()}) == 3


def test_the_content_of_a_scenario_survives_pickling():
    scenario = resolve_run(RunSpec("fat-tree", (8,), reducers=REDUCERS))
    assert run_content(pickle.loads(pickle.dumps(scenario)), [8]) == run_content(scenario, [8])
