"""``s2sim explore`` answers from the store of a sweep, computes what is not there, and serves nobody else."""

import asyncio
import importlib.util
import json
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from urllib.parse import quote, urlencode

import pytest

import s2sim as package
from s2sim.experiment.spec import RunSpec
from s2sim.report.explore_page import answer_parts
from s2sim.sweeps.compute import compute_jobs
from s2sim.sweeps.explore import Control, Explorer, with_density

SMALL = "synthetic:density=0.1,rows=200,width=8,dense=100"
STUDY = {
    "base": {"trace": SMALL, "reducer": ["union", "fp16"], "workers": 4, "nic": {"latency": "1us"}},
    "axes": {"topology": ["ring", "single-switch"], "nic.rate": ["10Gbps", "2.5Gbps", "100Gbps"]},
    "where": {"left out": "not (topology == 'ring' and nic.rate == '100Gbps')"},
}
TOKEN, COOKIE = "known", "s2sim-test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explored")
    package.sweep(STUDY, out=folder, jobs=1)
    return folder


@pytest.fixture
def explorer(folder):
    made = Explorer.of_sweep(folder)
    yield made
    made.store.close()


@pytest.fixture
def get(explorer, folder, monkeypatch):
    """Return a function that asks the application, which computes in this process."""
    pytest.importorskip("starlette", reason="needs the extra explore")
    from s2sim.cli import explore_server

    def submit(_, function, *arguments):
        made = Future()
        made.set_result(function(*arguments))
        return made

    for name, instead in {"start_pool": lambda *_: None, "kill_pool": lambda _: None, "submit": submit}.items():
        monkeypatch.setattr(explore_server, name, instead)
    app = explore_server.Pages(explorer, folder).application(TOKEN, COOKIE)

    def ask(path, cookie=TOKEN, host="127.0.0.1:1", **question):
        sent = []

        async def receive():
            # The browser stays until it has its answer.
            await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        headers = [(b"host", host.encode()), (b"cookie", f"{COOKIE}={cookie}".encode())]
        query = urlencode(question, quote_via=quote).encode()
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": headers}
        asyncio.run(app({**scope, "scheme": "http", "server": ("127.0.0.1", 1), "root_path": ""}, receive, send))
        body = b"".join(message.get("body", b"") for message in sent)
        return sent[0]["status"], dict(sent[0]["headers"]), body.decode()

    return ask


@pytest.mark.slow
def test_an_answer_is_that_of_a_run(explorer):
    question = {"topology": "single-switch", "nic.rate": "2.5Gbps"}
    found = answer_parts(explorer, question, "nic.rate", "time")
    result = package.run(spec=explorer.cell(question).spec, break_even=False, thorough=False)
    assert result.verdict.lines[0] in found["html"]
    assert explorer.command(explorer.cell(question)) in found["html"].replace("&#34;", '"')
    (curve, bars, *_) = found["charts"]
    assert (found["known"], found["missing"]) == (3, 0)
    assert curve["at"] == [3.125e8, "here: 2.5 Gbps"]
    lines = {each["name"]: each["points"] for each in curve["series"]}
    for row in result.rows:
        assert lines[row.reducer][0][:2] == [3.125e8, row.time_s.total]
    assert {bar["name"] for bar in bars["bars"]} == {row.reducer for row in result.rows}


def test_sliders_are_numbers_in_order_and_others_choices():
    rates = Control.of("nic.rate", ["10Gbps", "2.5Gbps", "100Gbps"], "10Gbps")
    assert rates.texts == ("2.5Gbps", "10Gbps", "100Gbps")
    assert (rates.numbers, rates.chosen) == ((3.125e8, 1.25e9, 1.25e10), "10Gbps")
    density = Control.of("reducers", ["topk:density=0.1", "topk:density=0.01"])
    assert density.numbers == (0.01, 0.1)
    assert Control.of("topology", ["ring", "torus"]).numbers is None
    assert Control.of("batch", [None, 8, 4]).texts == ("as in the profile", "4", "8")
    assert with_density("topk:ef=true", 0.3) == "topk:ef=true,density=0.3"


@pytest.mark.slow
def test_what_is_not_there_is_computed_and_kept(get):
    question = {"topology": "ring", "nic.rate": "100Gbps"}
    before = json.loads(get("/answer", **question)[2])
    assert before["html"] is None
    assert before["missing"] == 1
    after = json.loads(get("/compute", **question)[2])
    assert "speed-up" in after["html"]
    assert after["missing"] == 0
    assert json.loads(get("/answer", **question)[2]) == after
    status, headers, page = get("/report.html", **question)
    assert (status, headers[b"content-disposition"].split(b";")[0]) == (200, b"attachment")
    assert f"s2sim run --topology ring --workers 4 --reducer union --reducer fp16 --trace {SMALL} --set " in page


@pytest.mark.slow
def test_only_who_knows_the_token_is_served(get):
    assert get("/", cookie="")[0] == 403
    assert get("/answer", cookie="guessed")[0] == 403
    assert get("/", host="evil.example")[0] == 400
    status, headers, _ = get("/", cookie="", token=TOKEN, topology="ring")
    assert status == 303
    assert headers[b"location"].endswith(b"/?topology=ring")
    assert all(word in headers[b"set-cookie"].lower() for word in (b"httponly", b"samesite=strict"))
    status, headers, page = get("/", topology="ring")
    assert status == 200
    assert headers[b"content-security-policy"].startswith(b"default-src 'self'")
    assert "<option selected>ring</option>" in page
    assert "<script>" not in page
    assert [get(f"/assets/{name}")[0] for name in ("page.css", "page.js", "explore.css", "explore.js")] == [200] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reducers", "said"),
    [
        ("topk:densty=1", "did you mean 'density'?"),
        ("nothing", "nothing"),
        ("quantile:law=/etc/passwd", ""),
        ("per-layer:x=../secret", ""),
    ],
)
def test_a_mistake_is_one_line(tmp_path, reducers, said):
    explorer = Explorer.of_spec(RunSpec("ring", (4,), trace=SMALL, reducers=("union",)), tmp_path)
    error = answer_parts(explorer, {"reducers": reducers})["error"]
    assert said in error
    assert "\n" not in error
    assert "workers = 5 is none" in answer_parts(explorer, {"workers": "5"})["error"]
    assert "colour cannot be asked" in answer_parts(explorer, {"colour": "red"})["error"]


@pytest.mark.slow
def test_what_changes_nothing_is_said(tmp_path):
    spec = RunSpec("tcp-10g", (4,), trace=SMALL, reducers=("union",))
    explorer = Explorer.of_spec(spec, tmp_path)
    question = {"nic.rate": "5Gbps"}
    explorer.store.add(compute_jobs([explorer.job(explorer.cell(question))]))
    assert (
        "nic.rate=5Gbps changes nothing here: all 4 workers are in one node" in answer_parts(explorer, question)["html"]
    )


@pytest.mark.slow
def test_a_cluster_and_a_job_are_asked_without_a_sweep(tmp_path):
    spec = RunSpec("ring", (4,), trace=SMALL, reducers=("topk:density=0.05",), overrides=("nic.rate=30Gbps",))
    explorer = Explorer.of_spec(spec, tmp_path)
    assert {"topology", "nic.rate", "workers", "density", "reducers"} == explorer.controls.keys()
    assert explorer.controls["nic.rate"].chosen == "30Gbps"
    cell = explorer.cell({"density": "0.3", "workers": "8"})
    assert (cell.spec.reducers, cell.spec.workers, cell.spec.overrides) == (
        ("topk:density=0.3",),
        (8,),
        ("nic.rate=30Gbps",),
    )
    explorer.store.add(compute_jobs([explorer.job(cell)]))
    assert "topk:density=0.3" in answer_parts(explorer, {"density": "0.3", "workers": "8"})["html"]


@pytest.mark.extra
def test_a_process_that_is_killed_is_named_and_another_begins(get, monkeypatch):
    from s2sim.cli import explore_server

    def killed(*_):
        raise BrokenProcessPool

    begun = []
    monkeypatch.setattr(explore_server, "submit", killed)
    monkeypatch.setattr(explore_server, "start_pool", lambda *_: begun.append(1))
    _, _, page = get("/report.html", topology="ring")
    assert "was killed, maybe for its memory: run s2sim run" in json.loads(page)["error"]
    assert begun == [1]


def test_without_starlette_the_extra_is_named(fails, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert fails("explore").endswith("explore needs starlette and uvicorn: pip install 's2sim[explore]'\n")


@pytest.mark.extra
def test_a_folder_has_a_study_of_its_own(fails, tmp_path):
    pytest.importorskip("starlette", reason="needs the extra explore")
    assert "leave --topology out" in fails("explore", tmp_path, "--topology", "ring")
    assert "holds no sweep" in fails("explore", tmp_path)


@pytest.mark.slow
def test_a_sweep_of_collectives_is_explored_too(tmp_path):
    axes = {"size": ["1KiB", "1MiB", "16MiB"], "algorithm": ["ring", "double-binary-tree"]}
    base = {"kind": "all_reduce", "topology": "ring", "workers": 4}
    package.sweep({"what": "collective", "base": base, "axes": axes}, out=tmp_path, jobs=1)
    explorer = Explorer.of_sweep(tmp_path)
    found = answer_parts(explorer, {"algorithm": "ring", "size_bytes": "1MiB"}, "size_bytes", "bus bandwidth")
    assert (found["known"], found["missing"], len(found["charts"])) == (3, 0, 2)
    assert found["charts"][0]["at"] == [2**20, "here: 1.049 MB"]
    command = "s2sim collective all_reduce --topology ring --workers 4 --algorithm ring --size 1048576B"
    assert command in found["html"]
