import json
import re
from pathlib import Path

import pytest

from s2sim.experiment.spec import FOR_TABLES

PINNED_RESULT = {
    "reducer": str,
    "options": dict,
    "collectives": list,
    "workers": int,
    "time_s": dict,
    "bytes_sent_per_rank": int,
    "bytes_received_per_rank": int,
    "ratio": float,
    "error": dict,
    "error_compressed": dict,
    "lower_bound_s": float,
    "speedup_vs_dense": float,
    "extrapolated": type(None),
}


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def strict(text):
    return json.loads(text, parse_constant=refuse)


def test_json_on_standard_output_is_strict_and_has_the_pinned_keys(s2sim, tiny):
    code, out, err = s2sim(*tiny, "--json", "-")
    assert (code, err) == (0, "")
    value = strict(out)
    assert {"spec", "provenance", "results", "verdict"} <= set(value)
    assert len(value["results"]) == 3
    for item in value["results"]:
        assert {key: type(item[key]) for key in PINNED_RESULT} == PINNED_RESULT
        assert set(item["time_s"]) == {"encode", "communication", "decode", "total", "iteration"}
        assert set(item["error"]) == set(item["error_compressed"]) == {"relative_l2", "cosine"}
        for collective in item["collectives"]:
            assert {"kind", "algorithm", "bytes", "time_s"} <= set(collective)
    verdict = value["verdict"]
    assert {"text", "best_exact", "best_lossy", "break_even", "bottleneck"} <= set(verdict)
    assert verdict["break_even"]
    for crossing in verdict["break_even"]:
        assert set(crossing) == {"reducer", "field", "pays", "at_Bps"}


def test_one_worker_has_nothing_to_communicate(s2sim, tiny):
    arguments = [*tiny, "--json", "-"]
    arguments[arguments.index("4")] = "1"
    code, out, _ = s2sim(*arguments)
    assert code == 0
    value = strict(out)
    assert [(item["bytes_sent_per_rank"], item["ratio"]) for item in value["results"]] == [(0, None)] * 3
    assert value["verdict"]["break_even"] == []


def test_the_verdict_stands_first_then_one_table_then_what_it_is_about(s2sim, tiny):
    code, out, err = s2sim(*tiny)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].startswith(("Use ", "Probably use ", "Do not compress", "Undecided"))
    assert "; 4 workers, nccl on a100." in lines[1]
    assert lines[3:5] == ["", "4 workers: time of communication; sent: by the busiest rank"]
    assert any(line.startswith("single-switch: 4 nodes x 1 GPU, 1 NIC of 100 Gbps a node") for line in lines)
    assert "communication phase only" not in out
    assert "communication phase only" in s2sim(*tiny, "--show", "details")[1]
    assert "\x1b" not in out


@pytest.mark.slow
def test_the_details_have_every_figure_in_tables_of_80_columns(s2sim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = s2sim("run", "--topology", "fat-tree", "--workers", "4", "--show", "details")
    assert max(map(len, out.splitlines())) <= 80
    assert "(continued)" not in out
    for part in (
        "4 workers: phases of the slowest rank, and bound\n",
        "4 workers: rounds that wait for others, the ideal library and nccl\n",
        "4 workers: errors, that of an element over the L2 norm of what is compressed\n",
        "4 workers: bounds on the error of an element, by theorem\n",
        "break-even with dense, 4 workers\n",
        "Note: what is worse than zeros never wins",
        "In dense, ",
    ):
        assert part in out


@pytest.mark.slow
def test_a_pipe_gets_whole_tables_and_a_narrow_terminal_gets_parts(s2sim, tiny, monkeypatch):
    _, wide, _ = s2sim(*tiny, "--show", "details")
    assert "(continued)" not in wide
    monkeypatch.setenv("COLUMNS", "60")
    _, narrow, _ = s2sim(*tiny, "--show", "details")
    assert "(continued)" in narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_the_first_screen_fits_80_columns(s2sim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = s2sim("run", "--topology", "fat-tree", "--workers", "4", "--no-break-even")
    assert max(map(len, out.splitlines())) <= 80
    assert "(continued)" not in out
    assert "More: --show details" in out


def test_what_was_not_chosen_is_said(s2sim, tiny):
    tiny = [*tiny, "--no-break-even"]
    _, out, _ = s2sim(*tiny)
    assert "Library" not in out
    assert "By default" not in out
    _, out, _ = s2sim(*tiny, "--show", "details")
    how = "with its constants for ib-verbs, one process a GPU"
    assert f"Library nccl ({how}) and GPU a100, as single-switch says." in out.splitlines()
    _, out, _ = s2sim(*tiny, "--gpu", "h100", "--library", "ideal", "--show", "details")
    assert "Library ideal and GPU h100, as asked for." in out.splitlines()


def test_without_reducers_and_trace_those_for_tables_are_compared_on_the_language_model(s2sim):
    code, out, _ = s2sim("run", "--topology", "fat-tree", "--workers", "2", "--no-break-even", "--json", "-")
    spec = json.loads(out)["spec"]
    assert (code, spec["trace"], tuple(spec["reducers"])) == (0, "lstm-lm", FOR_TABLES)


def test_every_option_reaches_the_spec(s2sim, tiny):
    options = {
        "placement": ("--placement", "round-robin"),
        "collective": ("--collective", "ring"),
        "library": ("--library", "nccl:or=owners"),
        "gpu": ("--gpu", "rtx-2080"),
        "compute": ("--compute", "2ms"),
        "overrides": ("--set", "nic.rate=10Gbps"),
        "seed": ("--seed", "3"),
        "max_error": ("--max-error", "0.5"),
    }
    code, out, _ = s2sim(*tiny, *(word for words in options.values() for word in words), "--json", "-")
    assert code == 0
    spec = strict(out)["spec"]
    for field, (_, text) in options.items():
        assert spec[field] == ([text] if field == "overrides" else type(spec[field])(text))


def test_quiet_prints_the_verdict_alone(s2sim, tiny):
    code, out, err = s2sim(*tiny, "--quiet")
    assert (code, err) == (0, "")
    assert "; 4 workers, nccl on a100.\n" in out
    assert out.count("\n") == 3


@pytest.mark.slow
def test_several_workers_give_a_verdict_each_and_the_scaling_table_alone(s2sim, tiny):
    arguments = [*tiny, "--no-break-even"]
    arguments[arguments.index("4")] = "1,2,4"
    _, out, _ = s2sim(*arguments)
    first, second, *_ = out.splitlines()
    assert first == "1 worker: Do not compress: 1 worker communicates nothing."
    assert second.startswith("2 and 4 workers: Do not compress: ")
    assert "\nscaling: time of communication, speed-up over dense\n" in out
    assert "sent: by the busiest rank" not in out
    _, out, _ = s2sim(*arguments, "--show", "details")
    assert "\n2 workers: phases " in out
    assert "\n4 workers: phases " in out
    _, out, _ = s2sim(*tiny, "--no-break-even")
    assert "scaling" not in out


@pytest.mark.slow
def test_rows_that_equal_dense_and_their_warnings_fold_into_one_line_each(process):
    reducers = ("union", "owner-reduce", "gather-rows", "s2-exact", "fp16")
    asked = [word for name in reducers for word in ("--reducer", name)]
    done = process("run", "--topology", "fat-tree", "--workers", "8", "--trace", "cnn", *asked)
    out, err = done.stdout, done.stderr
    assert done.returncode == 0
    assert err.count("\n") == 1
    assert "no row-sparse layer" in err
    assert "As dense does: union, owner-reduce, gather-rows, s2-exact.\n" in out
    table = out[out.index("\nreducer ") : out.index("As dense does")]
    assert sorted(line.strip("* ").partition(" ")[0] for line in table.splitlines()[3:]) == ["dense", "fp16"]


@pytest.mark.slow
def test_several_workers_fold_what_equals_dense_too(process):
    asked = ("--workers", "2,8", "--trace", "cnn", "--reducer", "union", "--reducer", "fp16")
    out = process("run", "--topology", "fat-tree", *asked, "--no-break-even").stdout
    assert "As dense does: union.\n" in out
    assert "\nunion" not in out


def test_faults_are_named_in_the_verdict(s2sim):
    asked = ("--workers", "4", "--trace", "ncf", "--reducer", "union", "--no-break-even", "--quiet")
    faults = ("--fault", "slow-rank:rank=3,factor=2", "--fault", "jitter:latency=2us")
    _, out, _ = s2sim("run", "--topology", "fat-tree", *asked, *faults)
    assert "; 4 workers, nccl on a100, with slow-rank and jitter.\n" in out


def test_where_nothing_can_be_chosen_the_lines_say_so(s2sim):
    asked = ("--workers", "8", "--trace", "ncf", "--reducer", "topk:density=0.01", "--max-error", "0.01", "--quiet")
    _, out, _ = s2sim("run", "--topology", "fat-tree", *asked)
    first, second, third = out.splitlines()
    assert first == "Do not compress: nothing that was compared with an acceptable error is faster than dense."
    assert re.fullmatch(r"Communication \d+ us( \(.*\))?; 8 workers, nccl on a100\.", second)
    assert third.startswith("No rate changes that")


def test_long_names_go_on_in_another_line_so_that_the_table_fits(s2sim, tiny, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = "s2:rows=3,cells=2,layers=all,bitmap=byte,warm=true"
    _, out, _ = s2sim(*tiny, "--reducer", long)
    table = out[out.index("4 workers: time") : out.index("single-switch: ")].splitlines()
    assert max(map(len, table)) <= 80
    assert "(continued)" not in out
    place = next(number for number, line in enumerate(table) if "s2:rows=3,cells=2, " in line)
    assert [line.strip() for line in table[place + 1 : place + 3]] == ["layers=all,bitmap=byte,", "warm=true"]


@pytest.mark.slow
def test_the_longest_names_beside_tiny_and_huge_errors_fit_80_columns_of_a_pipe(s2sim):
    names = ("hierarchical-owner-reduce", "local-sgd", "signsgd-vote")
    asked = [word for name in names for word in ("--reducer", name)]
    _, out, _ = s2sim("run", "--topology", "fat-tree", "--workers", "8", "--trace", "ncf", *asked)
    table = out[out.index("8 workers: time") : out.index("fat-tree: ")].splitlines()
    assert max(map(len, table)) <= 80


def test_a_row_that_is_rejected_for_one_layer_says_which(s2sim):
    # All cells go where they lessen the error of the whole most, which leaves too few for the small gradients.
    asked = ("--reducer", "union", "--reducer", "s2:rows=3,cells=2,floor=0", "--no-break-even")
    _, out, _ = s2sim("run", "--topology", "fat-tree", "--workers", "8", *asked)
    assert "a bad layer" in next(line for line in out.splitlines() if line.startswith("  s2:"))
    assert "Worse than zeros on encoder.weight: s2:rows=3,cells=2,floor=0." in out


@pytest.mark.slow
def test_compute_adds_iterations(s2sim, tiny):
    _, out, _ = s2sim(*tiny, "--compute", "120ms", "--show", "details", "--library", "ideal")
    assert "Iteration 120 ms -> 120 ms" in out
    assert "time of an iteration" in out
    assert "120ms of compute" in out
    assert "communication phase only" not in out


@pytest.mark.slow
def test_layers_and_collectives_are_shown_on_request(s2sim, tiny):
    _, plain, _ = s2sim(*tiny)
    assert "by layer" not in plain
    _, out, _ = s2sim(*tiny, "--show", "layers, collectives")
    assert "by layer" in out
    assert "sparse0" in out
    assert "union: support" in out
    assert "goes to" in out[out.index("collectives, 4 workers") : out.index("by layer")]


@pytest.mark.slow
def test_lowering_is_shown_beside_the_ideal(s2sim, tiny):
    _, plain, _ = s2sim(*tiny, "--library", "nccl")
    assert "lowering by" not in plain
    _, out, _ = s2sim(*tiny, "--library", "nccl", "--show", "lowering")
    table = out[out.index("lowering by nccl, 4 workers") :]
    line = next(line for line in table.splitlines() if line.startswith("union: support"))
    assert "all_reduce or uint8" in line
    assert "all_reduce max uint8, one byte a bit" in line
    assert "if all ran as asked" in table
    assert "all_reduce or uint8 -> all_reduce max uint8, one byte a bit: bits become bytes" in table


def test_of_the_ideal_library_lowering_says_that_nothing_differs(s2sim, tiny):
    code, out, err = s2sim(*tiny, "--library", "ideal", "--show", "lowering")
    assert (code, err) == (0, "")
    assert "ideal executes everything as asked; --library nccl, rccl, gloo, mpi would differ" in out
    assert "lowering by" not in out


def test_a_result_is_saved_whole_and_runs_again(s2sim, tiny, tmp_path):
    saved = tmp_path / "result.json"
    saved.write_text("old")
    code, out, _ = s2sim(*tiny, "--seed", "5", "--json", saved)
    assert code == 0
    assert f"s2sim run --spec {saved}" in out
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    code, out, _ = s2sim("run", "--spec", saved, "--json", "-")
    assert code == 0
    first, second = strict(saved.read_text()), strict(out)
    assert second["results"] == first["results"]
    assert second["spec"] == first["spec"]
    assert second["verdict"] == first["verdict"]


@pytest.mark.slow
def test_a_saved_spec_runs_without_its_result(s2sim, tiny, tmp_path):
    _, out, _ = s2sim(*tiny, "--json", "-")
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(strict(out)["spec"]))
    code, again, _ = s2sim("run", "--spec", spec)
    assert code == 0
    assert "By default" not in again


def test_a_spec_takes_no_further_options(fails, tmp_path):
    line = fails("run", "--spec", tmp_path / "x.json", "--seed", "1", "--reducer", "union")
    assert "--reducer" in line
    assert "--seed" in line
    assert "--topology" not in line


def test_standard_output_can_be_a_device(s2sim, tiny):
    assert s2sim(*tiny, "--json", "/dev/null", "--quiet")[0] == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.slow
def test_an_interrupted_scan_still_gives_the_rows(s2sim, tiny, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sim.experiment.break_even.find_crossings", interrupt)
    # Nothing more is replayed for somebody who does not want to wait.
    monkeypatch.delattr("s2sim.experiment.verdict.find_sensitive_constants")
    code, out, err = s2sim(*tiny)
    assert (code, err) == (130, "s2sim: interrupted\n")
    assert "union" in out
    assert "Note: interrupted" in out
    code, out, _ = s2sim(*tiny, "--json", "-")
    assert code == 130
    assert strict(out)["verdict"]["break_even"] == []


@pytest.mark.parametrize(
    ("wrong", "part"), [("unoin", "union"), ("topk:density=2", "density"), ("topk:density=nan", "density")]
)
def test_a_bad_reducer_is_refused_alone(s2sim, fails, tiny, wrong, part):
    first = tiny.index("--reducer")
    assert part in fails(*tiny[:first], "--reducer", wrong)
    code, text, _ = s2sim(*tiny, "--reducer", wrong, "--no-break-even", "--json", "-")
    result = json.loads(text)
    assert code == 0
    assert {"dense", "union"} <= {row["reducer"] for row in result["results"]}
    assert [each["reducer"] for each in result["refused"]] == [wrong]
    assert part in result["refused"][0]["why"]


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        (("--workers", "0"), "at least 1"),
        (("--workers", "-1"), "at least 1"),
        (("--workers", "abc"), "'abc'"),
        (("--workers", "8,"), "''"),
        (("--workers", "8,8"), "twice"),
        (("--workers", "2.5"), "2.5"),
        (("--topology", "fat-tre"), "fat-tree"),
        (("--topology", "./none.toml"), "none.toml"),
        (("--reducer", "union"), "twice"),
        (("--trace", "lstm-ml"), "lstm-lm"),
        (("--trace", "./none"), "none"),
        (("--trace", "synthetic:density=nan"), "density"),
        (("--set", "nic.rate=100"), "unit"),
        (("--set", "nic.rat=100Gbps"), "nic.rate"),
        (("--gpu", "b100"), "a100"),
        (("--placement", "linaer"), "linear"),
        (("--collective", "rign"), "ring"),
        (("--library", "ncll"), "did you mean 'nccl'"),
        (("--library", "nccl:or=byte"), "did you mean 'bytes'"),
        (("--library", "ideal:or=bytes"), "ideal has no option 'or'"),
        (("--show", "lowring"), "lowering"),
        (("--json", "-", "--show", "lowering"), "--show"),
        (("--compute", "120"), "unit"),
        (("--compute", "1e400ms"), "at most 1e6 s"),
        (("--set", "nic.latency=1e30s"), "nic.latency: time '1e30s' is out of range"),
        (("--set", "nic.rate=1e400Gbps"), "nic.rate: rate '1e400Gbps' is out of range"),
        (("--set", "node.gpus=" + "1" * 400), "1... is out of range"),
        (("--workers", "1" * 400), "'... is out of range"),
        (("--workers", "1" * 5000), "'... is out of range"),
        (("--workers", "x" * 400), "'... is not a whole number"),
        (("--topology", "."), "give a TOML file"),
        (("--topology", "/"), "/ is a directory: give a TOML file in it"),
        (("--max-error", "nan"), "nan"),
        (("--max-error", "-1"), "-1"),
        (("--seed", "-1"), "-1"),
        (("--show", "colectives"), "collectives"),
        (("--json", "/nonexistent/x.json"), "/nonexistent"),
        (("--json", "/"), "directory"),
        (("--json", ""), "--json names no file: write --json FILE"),
        (("--quiet", "--show", "layers"), "--show layers"),
        (("--json", "-", "--show", "collectives"), "--show"),
    ],
)
def test_bad_input_is_told_in_one_line(fails, tiny, changed, part):
    arguments = list(tiny)
    if changed[0] in ("--workers", "--topology", "--trace"):
        arguments[arguments.index(changed[0]) + 1] = changed[1]
        changed = ()
    line = fails(*arguments, *changed)
    assert part in line
    assert len(line) < 300


@pytest.mark.parametrize("missing", [("--topology", "fat-tree"), ("--workers", "4")])
def test_topology_and_workers_are_required(fails, missing):
    line = fails("run", *missing)
    assert line.startswith(
        "s2sim: error: --workers must" if "--topology" in missing else "s2sim: error: --topology must"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"topology": "ring"}',
        '{"topology": "ring", "workers": [2], "bogus": 1}',
        '{"topology": "ring", "workers": [0]}',
        '{"topology": "ring", "workers": "two"}',
    ],
)
def test_a_broken_spec_is_told_in_one_line(fails, tmp_path, text):
    path = tmp_path / "spec.json"
    path.write_text(text)
    assert "spec.json" in fails("run", "--spec", path)


def test_a_missing_spec_is_told_in_one_line(fails, tmp_path):
    assert "none.json" in fails("run", "--spec", tmp_path / "none.json")


@pytest.mark.slow
def test_a_timeline_has_every_reducer_with_its_ranks_and_links(s2sim, tmp_path):
    path = tmp_path / "timeline.json"
    asked = ("run", "--topology", "leaf-spine", "--workers", "8", "--trace", "ncf", "--reducer", "union")
    code, out, _ = s2sim(*asked, "--timeline", path, "--json", "-")
    assert code == 0
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(names.values()) == ["dense: ranks", "dense: links, GB/s", "union: ranks", "union: links, GB/s"]
    rows = {row["reducer"]: row for row in json.loads(out)["results"]}
    for pid, name in names.items():
        if name.endswith("ranks"):
            spans = [event for event in events if event["ph"] == "X" and event["pid"] == pid]
            last_us = max(event["ts"] + event["dur"] for event in spans)
            assert last_us == pytest.approx(rows[name.partition(":")[0]]["time_s"]["total"] * 1e6, rel=1e-9)
    assert {event["cat"] for event in events if event["ph"] == "X"} == {"message", "work"}


PLOTTED = ("run", "--topology", "fat-tree", "--workers", "2,8", "--trace", "ncf", "--reducer", "union", "-q")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plot", "suffix", "words"),
    [
        ("bars", "svg", ("Where the time goes", "2 workers", "8 workers")),
        ("scaling", "svg", ("How reducers scale", "dense", "union")),
        ("break-even", "svg", ("at other rates", "2 workers", "8 workers")),
        ("error", "svg", ("What a byte and a second buy", "2 workers", "8 workers")),
        (None, "svg", ("How reducers scale",)),
        (None, "png", ()),
        (None, "pdf", ()),
    ],
)
def test_a_picture_is_written(s2sim, tmp_path, plot, suffix, words):
    target = tmp_path / f"run.{suffix}"
    code, _, err = s2sim(*PLOTTED, *(("--plot", plot) if plot else ()), "--png", target)
    assert (code, err) == (0, "")
    drawn = target.read_bytes()
    assert 5000 < len(drawn) < 300_000
    for word in (*words, "gradients of ncf") if suffix == "svg" else ():
        assert word in drawn.decode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "8", "--plot", "bars"), "add --png FILE"),
        (("--workers", "8", "--plot", "bar", "--png", "x.png"), "did you mean 'bars'?"),
        (("--workers", "8", "--plot", "scaling", "--png", "x.png"), "--workers 8,16,32"),
        (("--workers", "1", "--plot", "break-even", "--png", "x.png"), "2 workers or more"),
        (("--workers", "8", "--reducer", "dense", "--plot", "break-even", "--png", "x.png"), "--reducer union"),
    ],
)
def test_a_plot_that_cannot_be_drawn_is_refused(fails, arguments, message):
    assert message in fails("run", "--topology", "single-switch", "--trace", "ncf", *arguments)


def test_a_picture_that_cannot_be_written_is_refused_at_once(fails):
    line = fails("run", "--topology", "fat-tree", "--workers", "8", "--png", "x.gif")
    assert "must end in .png, .svg, .pdf" in line
