"""The JSON of results: its schema, what of it stays from version to version, and its names in Python."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import s2sim
from s2sim.claims.paper import PapersResult, Rebuilt, Table
from s2sim.cli.main import main
from s2sim.errors import UnknownNameError
from s2sim.experiment.json_form import RESULTS, SCHEMA_VERSION, JsonForm, ResultForm, json_value, schema_of
from s2sim.regimes.map import RegimeSpec
from s2sim.regimes.run import run_regimes
from s2sim.traffic.measured_files import read_measured
from s2sim.traffic.spec import CollectiveSpec
from s2sim.training.curve import CurveHistory, StepTime, Target, find_crossing
from s2sim.training.result import TrainResult, make_train_row
from s2sim.training.spec import TrainSpec
from s2sim.validation.calibrate import run_calibration
from s2sim.validation.calibrate_spec import CalibrateSpec
from s2sim.validation.compare_log import choose_tables, compare_log
from s2sim.validation.validate_curves import run_validation
from s2sim.validation.validate_iterations import validate_iterations

from .iterations_folder import iteration, write_iterations
from .validation_folder import row, write_folder

# A line a key and type; those of another version are another file.
PINNED = Path(__file__).parent / f"schema_{SCHEMA_VERSION}.txt"
SMALL = "--trace synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"
RUN = f"run --topology fat-tree --reducer union --reducer topk --reducer s2:rows=1,cells=0.5 {SMALL}"
AGAINST = "collective log measured.log --topology fat-tree"
TRANSFERS = "flows transfers.csv --topology fat-tree"
REGIMES = "regimes --workers 8 --overlap 0.5 --latency 1us --rows 600 --width 4 --rate 1Gbps,10Gbps"
COMMANDS = [
    ("run", f"{RUN} --workers 4 --fault slow-rank:rank=1,delay=1ms --no-break-even"),
    ("collective", "collective all_reduce --topology fat-tree --workers 8 --size 1MiB"),
    ("against", AGAINST),
    ("calibrate", "dev calibrate measured.log --topology dgx-h100 --suggest"),
    ("flows", TRANSFERS),
    ("regimes", f"{REGIMES} --density 0.05,0.2 --reducer fp16"),
    ("validate", "dev validate curves --no-fit"),
]
MORE_COMMANDS = [
    ("iterations", "validate iterations"),
    ("validate", "dev validate curves"),
    ("run", f"{RUN} --workers 2,4 --compute 5ms --library nccl"),
    ("run", f"{RUN} --workers 1"),
    ("run", "run --topology tcp-10g --workers 4 --trace lstm-lm-steps --steps 2 --reducer topk:density=0.01"),
    ("run", "run --topology fat-tree --workers 8 --trace ncf --scale-to 5M --reducer union"),
    ("run", f"run --topology fat-tree --show pareto --workers 2 --reducer union --reducer fp16 {SMALL}"),
    ("topologies", f"{RUN.replace('fat-tree', 'fat-tree,ring')} --workers 4"),
    ("collective", "collective barrier --topology fat-tree --workers 8"),
    ("collective", "collective all_reduce --topology fat-tree --workers 1 --size 1MiB"),
    ("collective", "collective all_reduce --topology fat-tree --workers 8 --size 64KiB --cross-check"),
    ("collective", "collective all_reduce --topology fat-tree --workers 8 --size 1MiB --fault jitter:latency=5us"),
    ("flows", f"{TRANSFERS} --cross-check --packet-bytes 64KiB"),
    ("flows", f"{TRANSFERS} --fault slow-link:link=node0.nic0.out,factor=0.5"),
]


@pytest.fixture
def transfers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("measured.log").write_text(
        "# Collective test starting: all_reduce_perf\n#  Rank  1 Pid 1 on a device 1 [0x18] H100\n"
        "# size count type redop root time algbw busbw #wrong\n1048576 262144 float sum -1 90 11.65 11.65 0\n"
    )
    Path("transfers.csv").write_text("start_s,src,dst,bytes\n0,0,4,1000000\n1e-5,1,5,500000.5\n")
    write_folder(
        tmp_path / "curves",
        (row(id="pair"), [(2**20, 100), (2**10, 5)]),
        (row(id="alone", nodes="1", ranks="1"), [(2**20, 100)]),
    )
    write_iterations(tmp_path / "iterations", iteration(), iteration(id="sparse", reducer="topk", dense_pair="dense"))
    return "transfers.csv"


def strict(schema):
    """Return a schema that allows no key that it does not name."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(item) for key, item in schema.items()}
    return found | {"additionalProperties": False} if "properties" in found else found


def lines(name):
    """Yield every key of a result with its type, as in ``run results[].time_s.total number``."""
    schema = schema_of(name)

    def walk(part, at):
        part = schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if "anyOf" in part:
            for each in part["anyOf"]:
                yield from walk(each, at)
        elif "properties" in part:
            for key, item in part["properties"].items():
                yield from walk(item, f"{at}.{key}" if at else key)
        elif part.get("type") == "array":
            yield from walk(part["items"], f"{at}[]")
        elif part.get("type") == "object":
            yield from walk(part["additionalProperties"], f"{at}{{}}")
        else:
            yield f"{name} {at} {part.get('type', 'anything')}"

    yield from walk({key: item for key, item in schema.items() if key != "$defs"}, "")


@pytest.mark.usefixtures("transfers")
@pytest.mark.parametrize(
    ("name", "command"), [*COMMANDS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in MORE_COMMANDS)]
)
def test_results_fit_their_schema_and_have_no_other_keys(name, command, capsys):
    jsonschema = pytest.importorskip("jsonschema")
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert main([*command.split(), "--json", "-"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema)
    if "--show pareto" in command:
        for row in value["results"]:
            assert {type(row.pop(key)) for key in ("best_by_bytes", "best_by_time")} == {bool}
    jsonschema.validate(value, strict(schema))
    assert value["schema_version"] == SCHEMA_VERSION


def test_a_schema_refuses_what_does_not_fit(transfers):
    jsonschema = pytest.importorskip("jsonschema")
    value = json.loads(json.dumps(s2sim.run_flows(transfers, "fat-tree").to_json()))
    for wrong in (
        {**value, "schema_version": 2},
        {**value, "network": None},
        {key: item for key, item in value.items() if key != "flows"},
        {**value, "flows": [{**value["flows"][0], "src": 0.5}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema_of("flows"))


def test_no_key_of_this_version_goes_or_becomes_another_type():
    """Where a key must go, raise ``SCHEMA_VERSION`` and write its file with S2SIM_RENEW_GOLDEN=1."""
    found = sorted({line for name in RESULTS.names() for line in lines(name)})
    if os.environ.get("S2SIM_RENEW_GOLDEN"):
        PINNED.write_text("\n".join(found) + "\n")
    assert set(PINNED.read_text("utf-8").splitlines()) - set(found) == set()


def test_what_other_programs_rely_on_is_there():
    assert {
        "run results[].time_s.total number",
        "run results[].reducer string",
        "run results[].speedup_vs_dense number",
        "run verdict.text string",
        "run verdict.best_exact string",
        "run verdict.best_lossy string",
        "run verdict.break_even[].at_Bps number",
        "run verdicts[].text string",
        "collective time_s number",
        "flows flows[].finish_s number",
        "regimes cells[].winner string",
        "validate curves[].median_abs_log_error_large number",
        "iterations iterations[].iteration_s number",
        "iterations iterations[].communication_s number",
        "iterations iterations[].wins boolean",
    } <= {line for name in RESULTS.names() for line in lines(name)}


def named_otherwise(value):
    """Yield the keys of a value's JSON that Python has not, or has for something else, with the class."""
    if isinstance(value, JsonForm):
        for key, item in json.loads(json.dumps(value.to_json())).items():
            found = getattr(value, key, None)
            # A named tuple stands for an object.
            found = found._asdict() if hasattr(found, "_asdict") else found
            if json.loads(json.dumps(json_value(found))) != item:
                yield type(value).__name__, key
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from named_otherwise(getattr(value, field.name))
    if isinstance(value, tuple):
        for item in value:
            yield from named_otherwise(item)


def trained():
    """Return the answer of a training, without training."""
    history = CurveHistory()
    history.add_step(2.0, StepTime(0.5, 100))
    history.iterations, history.eval_loss, history.accuracy = [0, 1], [3.0, 2.0], [0.1, 0.2]
    curve, target = history.curve("dense", 0), Target("loss", 2.5)
    row = make_train_row(
        "dense", "none", {0: curve}, {0: find_crossing(curve, target)}, {0: find_crossing(curve, target)}, 1
    )
    spec = TrainSpec("fat-tree", model="cnn", steps=1, seeds=1)
    return TrainResult(spec, "a line", "digits", target, "as asked for", (row,), (curve,), ("dense.",), "1 ms", (), {})


@pytest.mark.slow
def test_python_has_the_names_of_json(transfers):
    log = choose_tables(read_measured(Path("measured.log")), "measured.log")
    results = (
        s2sim.run("fat-tree", workers=[2, 4], reducers=["union", "topk:density=0.1", "s2"], trace=SMALL.split()[1]),
        s2sim.run_topologies("fat-tree,ring", workers=2, reducers=["fp16"], trace=SMALL.split()[1]),
        s2sim.advise("best", "ring", workers=2, reducers=["fp16"], trace=SMALL.split()[1], max_error=0.1),
        s2sim.run_collective("all_reduce", "fat-tree", workers=4, size_bytes=2**20, faults=["jitter:latency=5us"]),
        compare_log(CollectiveSpec("fat-tree", "all_reduce", 2, 2**20), log),
        s2sim.run_flows(transfers, "fat-tree", faults=["jitter:latency=5us"]),
        run_regimes(RegimeSpec("fat-tree", 8, (0.05,), (0.5,), ("1Gbps",), ("1us",), rows=600, width=4)),
        run_validation("curves", fit=False),
        validate_iterations("iterations"),
        run_calibration(CalibrateSpec("dgx-h100", logs=("measured.log",), suggest=True)),
        trained(),
        PapersResult(
            "1 paper", True, (Rebuilt("name", "title", "source", (), (), (), (Table("title", ("a",), ()),)),), {}
        ),
    )
    assert {type(result) for result in results} == {RESULTS.get(name) for name in RESULTS.names()}
    assert all(isinstance(result, ResultForm) for result in results)
    assert set(named_otherwise(results)) == set()
    for result in results:
        assert re.fullmatch(rf"<s2sim {result.answers}: .+>", repr(result))
        page = result.to_html()
        assert page.startswith("<!doctype html>")
        assert result.answers == "paper" or json.loads(re.search('id="data">(.*?)</script>', page)[1]) is not None
    row = results[0].results[0]
    assert np.isclose(sum(row.time_s[:3]), row.time_s.total)


def test_the_command_prints_the_schema(capsys):
    assert main(["dev", "schema", "collective"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("collective")
    with pytest.raises(UnknownNameError, match="did you mean 'regimes'"):
        schema_of("regime")
