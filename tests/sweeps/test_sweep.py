"""Sweeps: what a run says of each cell, once, whatever happens."""

import csv
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing, suppress
from pathlib import Path

import pytest

import s2sim
from s2sim.errors import S2SimError, S2SimWarning
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.spec import RunSpec
from s2sim.sweeps import sweep as sweep_module
from s2sim.sweeps.store import FILE, SweepResult, SweepStore
from s2sim.sweeps.study import Study
from s2sim.sweeps.sweep import Processes, merge_shards

STUDY = {
    "base": {"trace": "ncf", "reducers": ["union", "topk:density=0.01"], "topology": "tcp-10g"},
    "axes": {"workers": [8, 12], "nic.rate": ["10Gbps", "100Gbps"]},
}
COLLECTIVE = {
    "what": "collective",
    "base": {"kind": "all_reduce", "algorithm": "ring", "topology": "fat-tree"},
    "axes": {"workers": [2, 8], "size": ["1KiB", "1MiB"]},
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    return s2sim.sweep(STUDY, out=tmp_path_factory.mktemp("sweep"), jobs=1)


@pytest.mark.slow
def test_a_row_is_that_of_a_run(swept):
    assert swept.counts == {"done": 4}
    for cell in Study.load(STUDY).cells():
        result = s2sim.run(spec=cell.spec, break_even=False, thorough=False)
        rows = [row for row in swept.rows if row["cell"] == cell.number]
        assert [row["reducer"] for row in rows] == [row.reducer for row in result.rows]
        for row, own in zip(rows, result.rows, strict=True):
            assert row["total_s"] == own.time_s.total
            assert row["speedup_vs_dense"] == own.speedup_vs_dense
            assert row["relative_l2"] == own.error.relative_l2
            assert row["bytes_sent_per_rank"] == own.bytes_sent_per_rank
        assert [row["reducer"] for row in rows if row["chosen"]] == [result.verdict.best]


@pytest.mark.slow
def test_reducers_on_an_axis_share_runs_and_say_the_same(swept, tmp_path):
    axes = {"reducers": [["union"], ["topk:density=0.01"], ["union", "topk:density=0.01"]]} | STUDY["axes"]
    base = {name: value for name, value in STUDY["base"].items() if name != "reducers"}
    found = s2sim.sweep({"base": base, "axes": axes}, out=tmp_path, jobs=1)
    together = [row for row in found.rows if row["reducers"] == "union;topk:density=0.01"]
    ignored = {"cell", "reducers"}
    figures = [{k: v for k, v in row.items() if k not in ignored} for row in together]
    assert figures == [{k: v for k, v in row.items() if k not in ignored} for row in swept.rows]
    alone = [row["total_s"] for row in found.rows if row["reducers"] == "union"]
    exact = [row["total_s"] for row in swept.rows if row["reducer"] != "topk:density=0.01"]
    assert alone == exact


def test_a_collective_is_that_of_the_command(tmp_path):
    found = s2sim.sweep(COLLECTIVE, out=tmp_path, jobs=1)
    for row in found.rows:
        size = {"1KiB": 1024, "1MiB": 2**20}[row["size_bytes"]]
        own = s2sim.run_collective("all_reduce", "fat-tree", workers=row["workers"], size_bytes=size, algorithm="ring")
        assert (row["total_s"], row["algorithm"], row["busbw_Bps"]) == (own.time_s, own.algorithm, own.busbw_Bps)
    assert found.details(3)["time_s"] == found.rows[3]["total_s"]


def test_finished_cells_are_not_computed_again_and_changed_ones_are(tmp_path, monkeypatch):
    first = s2sim.sweep(COLLECTIVE, out=tmp_path, jobs=1)
    computed = []
    real = sweep_module._work
    monkeypatch.setattr(sweep_module, "_work", lambda plan, *more: (computed.append(len(plan.jobs)), real(plan, *more)))
    assert s2sim.sweep(COLLECTIVE, out=tmp_path, jobs=1).to_csv() == first.to_csv()
    assert computed == []
    more = COLLECTIVE | {"axes": COLLECTIVE["axes"] | {"workers": [2, 8, 16]}}
    assert s2sim.sweep(more, out=tmp_path, jobs=1).counts == {"done": 6}
    assert computed == [2]


def test_a_file_that_changes_changes_its_cells(tmp_path, cluster_file):
    path = cluster_file('kind = "single-switch"')
    study = COLLECTIVE | {"base": COLLECTIVE["base"] | {"topology": path}}
    before = s2sim.sweep(study, out=tmp_path / "out", jobs=1).to_csv()
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text.replace("50GiB/s", "5GiB/s"))
    assert s2sim.sweep(study, out=tmp_path / "out", jobs=1).to_csv() != before


RATES = {"nic.rate": {"geometric": ["10Gbps", "100Gbps", 60]}}
OF_RUNS = {
    "base": {"topology": "leaf-spine", "trace": "ncf", "workers": 8, "reducers": ["union", "fp16"]},
    "axes": RATES,
}
SIZES = {"workers": {"range": [2, 40, 1]}, "size": {"geometric": ["1KiB", "64MiB", 12]}}


@pytest.mark.parametrize(("study", "measured_s"), [(OF_RUNS, 2.7), (COLLECTIVE | {"axes": SIZES}, 2.9)])
def test_what_a_study_takes_is_foretold(tmp_path, study, measured_s):
    with closing(SweepStore(tmp_path / FILE)) as store:
        plan = sweep_module.plan_sweep(Study.load(study), store)
    one, two = (plan.cost(processes).seconds for processes in (1, 2))
    assert measured_s / 2 < one < measured_s * 2
    assert two - one < 1.5


def test_reducers_of_a_run_count_together(tmp_path):
    base = {name: value for name, value in OF_RUNS["base"].items() if name != "reducers"}
    apart = {"base": base, "axes": RATES | {"reducers": [["union"], ["fp16"]]}}
    with closing(SweepStore(tmp_path / FILE)) as store:
        plans = [sweep_module.plan_sweep(Study.load(study), store) for study in (OF_RUNS, apart)]
    assert len(plans[1].jobs) == 60
    assert plans[0].cost(1) == plans[1].cost(1)


def test_what_is_refused_is_a_row_with_its_reason(tmp_path):
    study = {
        "base": {"trace": "ncf", "topology": "tcp-10g", "workers": 2},
        "axes": {"reducers": [["union", "topk:density=7"], ["topk:density=7"], ["union"]], "seed": [0, -1]},
    }
    rows = s2sim.sweep(study, out=tmp_path, jobs=1).rows
    states = [[(row["reducer"], row["state"]) for row in rows if row["cell"] == cell] for cell in range(6)]
    bad = ("topk:density=7", "refused")
    assert states[0] == [("dense", "done"), ("union", "done"), bad]
    assert states[2][-1][1] == "refused"
    assert states[4] == [("dense", "done"), ("union", "done")]
    assert [states[cell] for cell in (1, 3, 5)] == [[(None, "refused")]] * 3
    assert all("above 0" in row["reason"] for row in rows if row["reducer"] == "topk:density=7")


@pytest.mark.slow
def test_shards_make_a_whole(swept, tmp_path):
    for number in (1, 2, 3):
        part = s2sim.sweep(STUDY, out=tmp_path, jobs=1, shard=(number, 3))
        assert 1 <= part.counts["done"] <= 2
    assert merge_shards(tmp_path).to_csv() == swept.to_csv()
    assert SweepResult.load(tmp_path).to_csv() == swept.to_csv()


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_what_was_begun_later_counts_in_a_merge(tmp_path, cluster_file, order):
    path = cluster_file('kind = "single-switch"')
    study = COLLECTIVE | {"base": COLLECTIVE["base"] | {"topology": path}}
    text = Path(path).read_text("utf-8")
    for rate in ("50GiB/s", "5GiB/s"):
        Path(path).write_text(text.replace("50GiB/s", rate), "utf-8")
        for number in (1, 2):
            s2sim.sweep(study, out=tmp_path / str(number), jobs=1, shard=(number, 2))
        for number in order:
            shutil.copy(tmp_path / str(number) / f"shard-{number}-of-2.sqlite", tmp_path / "all.sqlite")
            with closing(SweepStore(tmp_path / FILE)) as store:
                store.merge(tmp_path / "all.sqlite")
        whole = s2sim.sweep(study, out=tmp_path / f"whole-{rate[:2]}", jobs=1)
        assert SweepResult.load(tmp_path).to_csv() == whole.to_csv()


def test_a_study_that_was_begun_again_is_the_last_after_a_merge(tmp_path):
    other = COLLECTIVE | {"axes": {"workers": [2], "size": ["1KiB"]}}
    for study in (COLLECTIVE, other, COLLECTIVE):
        for number in (1, 2):
            s2sim.sweep(study, out=tmp_path, jobs=1, shard=(number, 2))
        assert sum(merge_shards(tmp_path).counts.values()) == (1 if study is other else 4)


def test_a_shard_that_was_killed_at_its_start_is_empty_and_a_damaged_one_is_named(tmp_path):
    s2sim.sweep(COLLECTIVE, out=tmp_path, jobs=1, shard=(2, 2))
    (tmp_path / "shard-1-of-2.sqlite").write_bytes(b"")
    assert merge_shards(tmp_path).counts == {"done": 2}
    damage(tmp_path / "shard-2-of-2.sqlite")
    with pytest.raises(S2SimError, match=r"shard-2-of-2\.sqlite cannot be merged"):
        merge_shards(tmp_path)


def test_a_sweep_returns_its_own_study(tmp_path, monkeypatch):
    real, other = sweep_module._work, COLLECTIVE | {"axes": {"workers": [2], "size": ["1KiB"]}}

    def work(plan, *more):
        real(plan, *more)
        if len(plan.jobs) == 4:
            assert s2sim.sweep(other, out=tmp_path, jobs=1).counts == {"done": 1}

    monkeypatch.setattr(sweep_module, "_work", work)
    s2sim.sweep(other, out=tmp_path / "before", jobs=1)
    assert s2sim.sweep(COLLECTIVE, out=tmp_path, jobs=1).counts == {"done": 4}
    assert SweepResult.load(tmp_path).counts == {"done": 1}


def test_more_shards_than_cells_are_no_error(tmp_path):
    for number in (1, 9):
        s2sim.sweep(COLLECTIVE, out=tmp_path, jobs=1, shard=(number, 9))
    with pytest.warns(S2SimWarning, match="lacks shards 2/9, 3/9, "):
        assert merge_shards(tmp_path).counts == {"done": 1}
    with pytest.raises(S2SimError, match="from 1 to 2"):
        s2sim.sweep(COLLECTIVE, out=tmp_path, shard=(3, 2))


@pytest.mark.slow
def test_processes_say_the_same(swept, tmp_path):
    assert s2sim.sweep(STUDY, out=tmp_path, jobs=2).to_csv() == swept.to_csv()


@pytest.mark.slow
def test_a_script_needs_no_guard(tmp_path):
    script = tmp_path / "script.py"
    call = f"s2sim.sweep({COLLECTIVE!r}, out={str(tmp_path / 'out')!r}, jobs=2)"
    script.write_text(f"import s2sim\nprint({call}.counts)\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "{'done': 4}\n"), ran.stderr


@pytest.mark.slow
def test_a_cell_whose_process_is_killed_fails_alone(tmp_path, monkeypatch):
    engine = Processes(2, "off")
    jobs = sweep_module.plan_sweep(Study.load(COLLECTIVE), sweep_module.SweepStore(tmp_path / "x.sqlite")).jobs
    monkeypatch.setattr("s2sim.sweeps.sweep.compute_jobs", _killing)
    for job in jobs:
        engine.submit((job,))
    outcomes = []
    while len(outcomes) < 4:
        outcomes += [outcome for several in engine.finished(30) for outcome in several]
    engine.close()
    assert sorted(each.state for each in outcomes) == ["done", "done", "failed", "failed"]
    assert all("killed" in each.reason for each in outcomes if each.state == "failed")


def _killing(jobs):
    from s2sim.sweeps.compute import compute_jobs

    if jobs[0].cells[0][1].workers == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return compute_jobs(jobs)


@pytest.mark.slow
def test_what_is_finished_survives_kills_and_is_there_once(tmp_path):
    axes = STUDY["axes"] | {"workers": [32, 48], "seed": list(range(6))}
    study = tmp_path / "study.toml"
    study.write_text(
        f'[base]\ntrace = "ncf"\nreducers = {STUDY["base"]["reducers"]}\ntopology = "tcp-10g"\n'
        f'[axes]\nworkers = {axes["workers"]}\nseed = {axes["seed"]}\n"nic.rate" = {axes["nic.rate"]}\n'
    )
    command = [sys.executable, "-m", "s2sim", "sweep", str(study), "--out", str(tmp_path / "out"), "-q"]
    finished = 0
    for signal_number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        begun = time.monotonic()
        while time.monotonic() - begun < 30:
            time.sleep(0.1)
            # Before the study is planned there is nothing to load.
            with suppress(S2SimError):
                if SweepResult.load(tmp_path / "out").counts.get("done", 0) > finished:
                    break
        process.send_signal(signal_number)
        process.communicate()
        counts = SweepResult.load(tmp_path / "out").counts
        assert counts.get("done", 0) > finished
        finished = counts["done"]
    subprocess.run(command, check=True, capture_output=True)
    result = SweepResult.load(tmp_path / "out")
    assert result.counts == {"done": 24}
    whole = s2sim.sweep(study, out=tmp_path / "again", jobs=1)
    assert result.to_csv() == whole.to_csv()


def test_csv_has_the_columns_that_are_promised(swept):
    rows = list(csv.DictReader(io.StringIO(swept.to_csv())))
    promised = "cell state reason reducer total_s iteration_s speedup_vs_dense relative_l2 bytes_sent_per_rank"
    assert {*promised.split(), "workers", "nic.rate"} <= rows[0].keys()
    assert len(rows) == 12
    assert [int(row["cell"]) for row in rows] == sorted(int(row["cell"]) for row in rows)


def test_a_store_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(S2SimError, match="cannot be used"):
        s2sim.sweep(COLLECTIVE, out=tmp_path / "file")
    (tmp_path / "sweep.sqlite").write_text("no database")
    with pytest.raises(S2SimError, match="cannot be used"):
        s2sim.sweep(COLLECTIVE, out=tmp_path)
    with pytest.raises(S2SimError, match="holds no sweep"):
        SweepResult.load(tmp_path / "nothing")


@pytest.mark.skipif(not __import__("importlib.util").util.find_spec("distributed"), reason="needs the extra cluster")
@pytest.mark.slow
def test_dask_says_the_same_although_a_worker_is_killed(swept, tmp_path):
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        killed = []

        class KillOne(ProgressWatcher):
            def advance(self, steps=1):
                if not killed and steps:
                    killed.append(pids[0])
                    os.kill(pids[0], signal.SIGKILL)

        found = s2sim.sweep(STUDY, out=tmp_path, dask=cluster.scheduler_address, progress=KillOne())
    assert killed
    assert found.to_csv() == swept.to_csv()


def damage(path):
    """Overwrite all but the first page."""
    path.write_bytes(path.read_bytes()[:4096].ljust(path.stat().st_size, b"x"))


def test_an_unknown_reducer_refuses_its_cells_alone(tmp_path):
    base = {"topology": "leaf-spine", "workers": 4, "trace": "ncf"}
    axes = {"reducer": ["fp16", "nonsense", "dense"]}
    rows = s2sim.sweep({"what": "run", "base": base, "axes": axes}, out=tmp_path).rows
    assert {row["cell"]: row["state"] for row in rows} == {0: "done", 1: "refused", 2: "done"}


def test_a_store_that_can_only_be_read_shows_what_is_finished(tmp_path, monkeypatch):
    """As on a full disk, where SQLite can make no files beside it."""
    finished = s2sim.sweep(COLLECTIVE, out=tmp_path).table

    def full(_):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_WRITE"
        raise error

    monkeypatch.setattr(SweepStore, "_open", full)
    assert SweepResult.load(tmp_path).table == finished
    with pytest.raises(S2SimError, match="disk I/O error; take another --out"):
        SweepStore(tmp_path / FILE)


def test_a_damaged_store_is_named(tmp_path):
    s2sim.sweep(COLLECTIVE, out=tmp_path, jobs=1)
    with closing(sqlite3.connect(tmp_path / FILE)) as store, store:
        store.execute("UPDATE studies SET axes = ?", (b"\xff",))
    with pytest.raises(S2SimError, match="is damaged"):
        SweepResult.load(tmp_path)
    with closing(SweepStore(tmp_path / FILE)) as store, pytest.raises(S2SimError, match="is damaged"):
        store.study()
    damage(tmp_path / FILE)
    with pytest.raises(S2SimError, match="is damaged"):
        s2sim.sweep(COLLECTIVE, out=tmp_path, jobs=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "axes"),
    [
        ({"topology": "leaf-spine", "workers": 8, "trace": "ncf", "model": "ncf"}, ["fp16", "powersgd", "union"]),
        ({"topology": "dgx-h100", "workers": 16, "trace": "cnn"}, ["fp16", "union", "topk:density=0.01"]),
        ({"topology": "fat-tree", "workers": 8, "profile": "resnet-18"}, ["fp16", "union"]),
    ],
)
def test_a_cell_says_what_its_own_run_says(base, axes, tmp_path):
    """Although cells that differ in their reducers share a run: verdict, notes, warnings, all but the run record."""
    swept = s2sim.sweep({"what": "run", "base": base, "axes": {"reducer": axes}}, out=tmp_path)
    for cell in range(len(axes)):
        details = swept.details(cell)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            spec = RunSpec.from_json(details["spec"], "details")
            alone = s2sim.run(spec=spec, break_even=False, thorough=False, sensitivity=False).to_json()
        alone = {**alone, "warnings": list(dict.fromkeys(str(each.message) for each in warned))}
        alone = json.loads(json.dumps(alone))
        keys = alone.keys() - {"provenance"}
        assert {key: alone[key] for key in keys} == {key: details.get(key, []) for key in keys}
