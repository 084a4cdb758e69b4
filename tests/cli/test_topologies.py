"""One question on several clusters: what the table, the sentences and the JSON say, beside runs on each."""

import json
from dataclasses import replace

import pytest

import s2sim
from s2sim.errors import S2SimError
from s2sim.experiment.topologies import TopologiesResult, run_topologies

NAMES = "fat-tree,single-switch"
SMALL = "synthetic:density=0.05,rows=300,width=8,dense=100"
RUN = ("run", "--topology", NAMES, "--workers", "8", "--trace", SMALL, "--reducer", "union", "--reducer", "fp16")
OPTIONS = {"workers": 8, "trace": SMALL, "reducers": ["union", "fp16"]}
QUICK = {"break_even": False, "thorough": False}


@pytest.fixture
def priced(tmp_path):
    """Make two priced files of other networks; returns their names between commas."""
    for name, rate, price in (("fast", "400Gbps", "90.00 USD"), ("slow", "1Gbps", "0.90 USD")):
        text = f'extends = "fat-tree"\n[nic]\nrate = "{rate}"\n[price]\nnode_hour = "{price}"\n'
        (tmp_path / f"{name}.toml").write_text(text)
    return f"{tmp_path}/fast.toml,{tmp_path}/slow.toml"


def test_each_topology_has_the_answer_of_a_run_there():
    result = run_topologies(NAMES.split(","), **OPTIONS)
    assert [row.topology for row in result.topologies] == NAMES.split(",")
    for row, whole in zip(result.topologies, result.results, strict=True):
        alone = s2sim.run(row.topology, **OPTIONS, **QUICK)
        assert whole.results == alone.results
        best = next(each for each in alone.results if each.reducer == alone.verdict.best)
        assert (row.best, row.time_s, row.speedup) == (best.reducer, best.judgement.time_s, best.judgement.speedup)
        assert row.cost is row.per_hour is row.samples_per_s is None
    first, second = sorted(result.topologies, key=lambda row: row.time_s)
    assert result.lines[0].startswith(f"{first.topology} is fastest: communication takes")
    assert f"; {second.topology} takes {second.time_s / first.time_s:.2f}x as long." in result.lines[0]
    assert len(result.lines) == 1


def test_the_command_prints_a_row_a_topology_within_80_columns(s2sim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = s2sim(*RUN)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert len([line for line in out.splitlines() if line.startswith(("fat-tree  ", "single-switch  "))]) == 2
    assert "8 workers: time of communication" in out


@pytest.mark.slow
def test_json_has_whole_results_and_is_a_spec(s2sim, tmp_path):
    code, out, _ = s2sim(*RUN, "--json", "-")
    value = json.loads(out)
    assert code == 0
    _, alone, _ = s2sim(*RUN[:2], "fat-tree", *RUN[3:], "--json", "-")
    first, one = value["results"][0], json.loads(alone)
    assert first.keys() == one.keys()
    assert first["results"] == one["results"]
    assert TopologiesResult.load(out).lines == tuple(value["lines"])
    (tmp_path / "saved.json").write_text(out)
    code, again, _ = s2sim("run", "--spec", tmp_path / "saved.json", "-q")
    assert (code, again.splitlines()) == (0, value["lines"])


def test_with_prices_the_cheapest_is_named_and_costs_are_of_whole_nodes(priced):
    result = run_topologies(priced, **OPTIONS | {"workers": 7})
    fast, slow = result.topologies
    assert (fast.per_hour, fast.currency) == (180.0, "USD")
    assert fast.cost == pytest.approx(1000 * fast.time_s * 180 / 3600)
    assert slow.cost < fast.cost
    assert result.lines[1].startswith("slow is cheapest: ")
    assert f"for 1,000 exchanges with {slow.best}; fast costs " in result.lines[1]
    assert f"{fast.cost:.3g} USD" in str(result)
    assert "Price: 180.00 USD an hour for 2 nodes; 1,000 exchanges cost" in str(result).replace("\n", " ")
    assert result.results[0].to_json()["prices"] == [{"workers": 7, "nodes": 2, "per_hour": 180.0, "currency": "USD"}]


def test_one_worker_sends_nothing_anywhere():
    result = run_topologies(NAMES, **OPTIONS | {"workers": 1})
    assert result.lines == (
        "fat-tree is fastest: communication takes 0 s with dense, and single-switch within 1 % of that.",
    )


def test_currencies_are_not_converted(priced, tmp_path):
    slow = tmp_path / "slow.toml"
    slow.write_text(slow.read_text().replace("USD", "EUR"))
    assert run_topologies(priced, **OPTIONS).lines[1] == "Prices are in EUR and USD, which are not converted."
    one_price = run_topologies(f"{slow},single-switch", **OPTIONS)
    assert len(one_price.lines) == 1


@pytest.mark.slow
def test_where_batches_differ_samples_count():
    result = run_topologies("dgx-h100,tcp-10g", workers=8, profile="resnet-18", reducers=["fp16"])
    large, small = result.topologies
    assert large.samples > small.samples
    assert large.samples_per_s == pytest.approx(large.samples / large.time_s)
    assert "samples/s, an iteration takes" in result.lines[0]
    assert f"{large.samples:,} on dgx-h100, {small.samples:,} on tcp-10g; --batch sets one" in result.lines[-1]
    assert "Samples an iteration differ" not in str(
        run_topologies("dgx-h100,tcp-10g", workers=8, profile="resnet-18", reducers=["fp16"], batch=32)
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--show", "details"), "--show is of one topology"),
        (("--png", "run.png"), "--png is of one topology"),
        (("--timeline", "run.json"), "--timeline is of one topology"),
    ],
)
def test_what_is_of_one_topology_is_refused(more, message, fails):
    assert message in fails(*RUN, *more)


def test_wrong_names_are_refused_before_anything_runs(fails):
    assert "unknown topology 'fattree'" in fails(*RUN[:2], "ring,fattree", *RUN[3:])
    assert "stands there twice" in fails(*RUN[:2], "ring,ring", *RUN[3:])
    with pytest.raises(S2SimError, match=r"s2sim\.run_topologies several"):
        s2sim.run(NAMES, **OPTIONS)


def test_ctrl_c_keeps_the_topologies_that_are_finished(monkeypatch):
    from s2sim.experiment import topologies

    ran = []

    def run(spec, **options):
        if ran:
            raise KeyboardInterrupt
        ran.append(spec.topology)
        return s2sim.run(spec=spec, **options)

    monkeypatch.setattr(topologies, "run", run)
    result = run_topologies(NAMES, **OPTIONS)
    assert (result.interrupted, len(result.results)) == (True, 1)
    assert not replace(result, spec=result.results[0].spec).interrupted
