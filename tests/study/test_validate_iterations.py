"""Predictions of measured iterations: computed by hand on made-up rows, and of the public ones."""

import csv
import json
import math
import random
from dataclasses import replace
from statistics import NormalDist, median

import pytest

from s2sim.cli.main import main
from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.errors import S2SimError
from s2sim.experiment.codec_costs import OPERATION_PS, implementations
from s2sim.files import data_directory
from s2sim.libraries.lowering import choose_library
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import load_gpu
from s2sim.units import PS_PER_S
from s2sim.validation.curve_machine import machine_shape
from s2sim.validation.iteration_machine import (
    CALL_OPERATIONS,
    PACKING_OPERATIONS,
    Software,
    codec_costs_of,
    option_string_of,
    row_machine,
    row_profile,
    software_of,
)
from s2sim.validation.iteration_predict import IterationPredictor
from s2sim.validation.iteration_result import IterationError, read_iterations, resolve_iterations_folder
from s2sim.validation.validate_iterations import (
    CODEC_SPREAD,
    COMMUNICATION_SPREAD,
    by_source,
    over_sources,
    validate_iterations,
    win_probability,
)

from .iterations_folder import COLUMNS, iteration, write_iterations

MS = 1e-3


def only_row(tmp_path, **cells):
    (found,) = read_iterations(write_iterations(tmp_path / "one", iteration(**cells)))
    assert found.problem == ""
    return found.row


def all_reduce_s(row, size_bytes):
    cluster = build_cluster(machine_shape(row_machine(row)), row.workers)
    timer = Timer(cluster, AUTO, profile=choose_library("nccl:timing=measured").profile)
    return timer.time(make_demand("all_reduce", size_bytes, row.workers)).duration_ps / PS_PER_S


def test_without_overlap_an_iteration_is_compute_packing_and_exchange(tmp_path):
    row = only_row(tmp_path, notes="x; step_ms=7.5; y")
    (found,) = validate_iterations(str(tmp_path / "one")).iterations
    # A framework's call, and the two waits of whoever takes its time.
    call_s = CALL_OPERATIONS * OPERATION_PS / PS_PER_S + 2 * load_gpu("v100").host_sync_ps / PS_PER_S
    exchange_s = all_reduce_s(row, 4 * 25557032)
    assert found.predicted
    assert found.communication_s == pytest.approx(exchange_s + call_s, rel=1e-9)
    # Half of the copies come first; the host starts the others while the collective is in flight.
    whole_s = (30 + 60 + 7.5) * MS + found.codec_s / 2 + exchange_s + call_s
    assert found.iteration_s == pytest.approx(whole_s, rel=1e-9)
    # 161 tensors are copied into one buffer and back by a loop of the host.
    loops_s = 161 * PACKING_OPERATIONS * OPERATION_PS / PS_PER_S
    assert loops_s < found.codec_s < loops_s + 3 * MS


def test_notes_may_name_another_library(tmp_path):
    folder = write_iterations(tmp_path / "folder", iteration(), iteration(id="hosts", notes="torch with Gloo"))
    nccl, gloo = validate_iterations(str(folder)).iterations
    assert gloo.communication_s > nccl.communication_s


def test_copying_back_counts_to_a_quick_exchange_where_it_is_not_told_apart(tmp_path):
    one_node = {"nodes": "1", "gpus_per_node": "2", "intra_interconnect": "NVLink2", "transport": "none"}
    folder = write_iterations(
        tmp_path / "folder", iteration(**one_node), iteration(id="apart", decode_ms="6", **one_node)
    )
    whole, apart = validate_iterations(str(folder)).iterations
    assert whole.iteration_s == apart.iteration_s
    assert whole.communication_s == pytest.approx(161 * PACKING_OPERATIONS * OPERATION_PS / 2 / PS_PER_S, rel=1e-9)
    assert apart.communication_s < whole.communication_s


@pytest.mark.parametrize(
    ("cells", "p2p", "path"),
    [
        ({"gpu": "V100", "gpus_per_node": "4", "workers": "4", "intra_interconnect": "PCIe3"}, "", "switch"),
        ({"gpu": "V100", "gpus_per_node": "8", "workers": "8", "intra_interconnect": "PCIe3"}, "no", "switch"),
        ({"gpu": "V100", "gpus_per_node": "8", "workers": "8", "intra_interconnect": "NVLink2"}, "", "switch"),
        ({"gpu": "K80", "gpus_per_node": "2", "workers": "2", "intra_interconnect": "PCIe3"}, "no", "switch"),
        ({"gpu": "K80", "gpus_per_node": "2", "workers": "2", "intra_interconnect": "PCIe3 switch"}, "", "switch"),
        ({"gpu": "RTX 2080 Ti (not stated)", "gpus_per_node": "2", "workers": "2"}, "no", "staged"),
        ({"gpu": "RTX 2080 Ti", "gpus_per_node": "4", "workers": "8", "transport": "ib-verbs"}, "no", "staged"),
        ({"gpu": "V100", "transport": "ib-verbs"}, "", "switch"),
        ({"gpu": "V100", "transport": "tcp"}, "", "staged"),
    ],
)
def test_which_memory_is_reached_follows_from_card_and_host(tmp_path, cells, p2p, path):
    machine = row_machine(only_row(tmp_path, **cells))
    assert (machine.p2p, machine.nic_path) == (p2p, path)


def test_slow_networks_without_a_transport_are_those_of_the_kernel(tmp_path):
    assert row_machine(only_row(tmp_path, transport="", nic_rate_gbps="1")).transport == "tcp"
    assert row_machine(only_row(tmp_path, transport="", nic_rate_gbps="100")).transport == "ib-verbs"
    assert row_machine(only_row(tmp_path, transport="RDMA", nic_rate_gbps="100")).transport == "ib-verbs"
    assert row_machine(only_row(tmp_path, transport="RoCEv2", nic_rate_gbps="100")).transport == "roce"


def test_cells_that_say_that_nothing_is_known_are_empty(tmp_path):
    unknown = dict.fromkeys(("transport", "nic_rate_gbps", "comm_ms", "n_tensors", "system"), "unknown")
    assert only_row(tmp_path, **unknown) == only_row(tmp_path, **dict.fromkeys(unknown, ""))
    assert only_row(tmp_path, overlap_kind="MG-WFBP").overlap_kind == "mg-wfbp"
    assert only_row(tmp_path, model="unknown").model == "unknown"


@pytest.mark.slow
def test_each_tensor_by_itself_hides_behind_backward(tmp_path):
    folder = write_iterations(
        tmp_path / "folder",
        iteration(id="alone", overlap_kind="none"),
        iteration(id="each", overlap_kind="wfbp"),
        iteration(id="merged", overlap_kind="mg-wfbp"),
        iteration(id="ddp", overlap_kind="ddp"),
    )
    alone, each, merged, ddp = validate_iterations(str(folder)).iterations
    assert all(found.predicted for found in (alone, each, merged, ddp))
    assert merged.iteration_s <= each.iteration_s < alone.iteration_s
    assert ddp.iteration_s < alone.iteration_s
    # What hides counts as communication all the same, where the row does not say that it is the exposed part.
    assert each.communication_s > each.iteration_s - 90 * MS


def test_errors_and_calls_are_those_computed_by_hand():
    def row(source, predicted_s, measured_s, wins=None, measured_wins=None, chance=None, *, scored=True):
        return IterationError(
            id="x",
            source=source,
            model="",
            gpu="",
            reducer="",
            workers=2,
            predicted=True,
            reason=None,
            scored=scored,
            iteration_s=predicted_s,
            measured_iteration_s=measured_s,
            wins=wins,
            measured_wins=measured_wins,
            win_probability=chance,
        )

    rows = [
        row("a", 2, 1),
        row("a", 1, 4, True, True, 0.9),
        row("a", 1, 1, True, False, 0.6),
        row("b", 1, 8, False, True, 0.2),
        row("b", 1, 100, False, False, scored=False),
    ]
    sources = by_source(rows)
    a, b = sources
    assert (a.rows, a.scored, b.rows, b.scored) == (3, 3, 2, 1)
    assert a.iteration.median == pytest.approx(math.log(2))
    assert a.iteration.p90 == pytest.approx(math.log(2) + 0.8 * math.log(2))
    assert a.iteration.bias == pytest.approx(0)
    assert b.iteration.median == pytest.approx(math.log(8))
    assert (a.calls.right_share, b.calls.right_share) == (0.5, 0)
    overall = over_sources(rows, sources)
    # One voice a source, however many rows it has.
    assert overall.iteration.median == pytest.approx((math.log(2) + math.log(8)) / 2)
    assert overall.calls_right_share == 0.25
    calls = overall.calls
    assert (calls.undecided, calls.decided_right_share) == (1, 0.5)
    assert calls.brier == pytest.approx((0.1**2 + 0.6**2 + 0.8**2) / 3)
    assert calls.brier_of_base_rate == pytest.approx(2 / 9)
    assert (calls.wins_as_predicted, calls.losses_as_predicted, calls.missed_wins, calls.false_wins) == (1, 0, 1, 1)
    assert overall.communication is None


def test_a_call_is_as_sure_as_what_may_be_off_is_small():
    """The same gain of 10 ms is sure where communication is a hundredth of it, and half as likely as not for tenths."""
    row = {
        "id": "x",
        "source": "a",
        "model": "",
        "gpu": "",
        "reducer": "",
        "workers": 2,
        "predicted": True,
        "reason": "",
    }

    def chance(own_ms, communication_ms, codec_ms=0.0):
        dense = IterationError(**row, iteration_s=0.1, communication_s=communication_ms * MS, codec_s=0.0)
        own = replace(dense, iteration_s=own_ms * MS, codec_s=codec_ms * MS)
        return win_probability(own, dense)

    assert chance(90, 1) == 1
    assert chance(110, 1) == 0
    assert 0.6 < chance(90, 40) < 0.8
    assert chance(100, 40) == pytest.approx(0.5, abs=0.05)
    # Of the codec alone: ten in a hundred of dense, off by 18 %.
    assert chance(98, 0, codec_ms=10) == pytest.approx(NormalDist().cdf(math.log(1.2) / CODEC_SPREAD), abs=0.02)
    assert win_probability(IterationError(**row), IterationError(**row)) is None


def test_rows_that_contradict_themselves_are_shown_and_not_scored(tmp_path):
    folder = write_iterations(
        tmp_path / "folder",
        iteration(id="fits", comm_ms="95", iteration_ms="200"),
        iteration(id="does-not", comm_ms="93", iteration_ms="200"),
    )
    fits, odd = validate_iterations(str(folder)).iterations
    assert (fits.scored, fits.reason) == (True, None)
    assert (odd.predicted, odd.scored) == (True, False)
    assert odd.reason == "its parts sum to 183 ms, the whole is 200 ms"


@pytest.mark.slow
def test_a_reducer_is_called_faster_or_slower_than_its_dense_row(tmp_path):
    slow = {"nic_rate_gbps": "1", "iteration_ms": "900"}
    few = {"reducer": "topk", "reducer_params": "ratio=0.1%", "dense_pair": "dense"}
    folder = write_iterations(
        tmp_path / "folder",
        iteration(**slow),
        iteration(**slow | few | {"id": "sparse", "iteration_ms": "200"}),
        iteration(**slow | few | {"id": "lost", "iteration_ms": "1000"}),
        iteration(**slow | few | {"id": "alone", "dense_pair": "nobody"}),
    )
    result = validate_iterations(str(folder))
    dense, sparse, lost, alone = result.iterations
    assert [row.wins for row in (dense, sparse, lost, alone)] == [None, True, True, None]
    assert [row.right_call for row in (sparse, lost)] == [True, False]
    assert result.by_source[0].calls.right_share == 0.5


@pytest.mark.slow
def test_a_wrong_prediction_says_what_its_row_tells(tmp_path):
    quick = {"nodes": "1", "gpus_per_node": "2", "intra_interconnect": "NVLink2", "transport": "none"}
    few = {"reducer": "topk", "dense_pair": "dense"}
    folder = write_iterations(
        tmp_path / "folder",
        iteration(**quick),
        iteration(**quick | few | {"id": "waits", "notes": "norm_exchange_ms=80"}),
        iteration(**quick | {"id": "fits", "iteration_ms": "115"}),
        iteration(**quick | {"id": "computes", "forward_ms": "", "backward_ms": "", "iteration_ms": "900"}),
        iteration(id="tensors", overlap_kind="wfbp", nic_rate_gbps="100", transport="ib-verbs"),
        iteration(id="network", nic_rate_gbps="100", transport="ib-verbs", comm_ms="100"),
    )
    dense, waits, fits, computes, tensors, network = validate_iterations(str(folder)).iterations
    assert waits.likely_why == "80 ms of it are a message of few bytes: ranks wait for slower ones"
    assert dense.likely_why.startswith("a message of few bytes takes up to 80 ms in this set-up")
    assert fits.likely_why is None
    assert computes.likely_why.startswith("its row does not say what it computes")
    assert tensors.likely_why.startswith("each tensor starts later")
    assert network.likely_why == "its network or host memory is slower than those of its class"


@pytest.mark.parametrize(
    ("cells", "option_string"),
    [
        (
            {"reducer": "randomk-shared-quantised", "reducer_params": "K=10000"},
            "random-k:granularity=global,density=0.1",
        ),
        ({"reducer": "dgc", "reducer_params": "ratio=1%"}, "dgc-select:density=0.01"),
        ({"reducer": "topk", "reducer_params": ""}, "topk:granularity=layer,density=0.01"),
        ({"reducer": "topk", "reducer_params": "r=10%"}, "topk:granularity=layer,density=0.1"),
        ({"reducer": "powersgd", "reducer_params": "rank=64"}, "powersgd:rank=64"),
        ({"reducer": "powersgd", "reducer_params": "r=4"}, "powersgd:rank=4"),
        ({"reducer": "qsgd", "reducer_params": "bits=4"}, "qsgd:bits=4"),
        ({"reducer": "Top-K", "reducer_params": "ratio=0.5"}, "topk:granularity=layer,density=0.5"),
        ({"reducer": "Sketched-SGD"}, "sketched-sgd"),
        ({"reducer": "dgc", "reducer_params": "ratio=1000"}, "dgc-select:density=0.001"),
        ({"reducer": "deepreduce-bf", "reducer_params": "ratio=1%;fpr=0.01"}, "deepreduce:density=0.01,fpr=0.01"),
        ({"reducer": "natural", "reducer_params": "seed=7"}, "natural"),
        ({"reducer": "onebit", "reducer_params": "1 bit"}, "onebit-sgd:aggregate=gather"),
    ],
)
def test_published_reducers_stand_for_registered_ones(tmp_path, cells, option_string):
    assert option_string_of(only_row(tmp_path, **cells), 100_000) == option_string


def test_low_rank_code_starts_more_kernels_for_more_columns(tmp_path):
    one, more = (
        only_row(tmp_path, reducer="powersgd", reducer_params=f"rank={rank}", overlap_kind="ddp") for rank in (1, 9)
    )
    per_column = implementations()["powersgd"].operations_a_column
    assert codec_costs_of(more).operations_ps - codec_costs_of(one).operations_ps == 8 * per_column * OPERATION_PS // 2


@pytest.mark.slow
def test_old_frameworks_select_by_one_block_of_threads(tmp_path):
    """12.8 ns a value until PyTorch 1.12; a source without a year is not one of before."""
    old, new, undated = (
        IterationPredictor().predict(only_row(tmp_path, reducer="topk", overlap_kind="none", source=source))
        for source in ("A paper, 2020", "A paper, 2023", "A repository")
    )
    assert new == undated
    values = row_profile(only_row(tmp_path), "v100").parameters
    assert old.codec_s - new.codec_s == pytest.approx(12.8e-9 * values, rel=0.01)


def test_a_source_whose_code_was_read_has_its_library():
    found = software_of("github.com/HKBU-HPML/ddl-benchmarks")
    assert (found.year, found.nccl) == (2020, (2, 4, 8))
    assert software_of("MLSys 2023, figure 2") == Software(2023, (2, 19, 4))
    assert software_of("somewhere") == Software(None, ())


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu": "abacus"}, "the GPU 'abacus' is not in the hardware catalogue"),
        ({"model": "ResNet-5", "n_params": ""}, "the model 'ResNet-5' is not known"),
        ({"model": "ResNet-5", "forward_ms": ""}, "the model 'ResNet-5' is not known"),
        ({"reducer": "magic"}, "the reducer 'magic' has no counterpart"),
        ({"reducer": "deepreduce", "reducer_params": "fpr=2"}, "fpr"),
        ({"overlap_kind": "unknown"}, "how communication overlaps is not known"),
        ({"workers": "3"}, "3 workers do not fit on 2 nodes of 1 GPUs"),
        ({"workers": "1"}, "one rank has nothing to send"),
        ({"workers": "1024", "nodes": "1024"}, "1024 workers are more than 512"),
        ({"model": "wide", "n_tensors": "3000"}, "3000 tensors are more than 2000"),
        ({"transport": "pigeons"}, "several nodes over the transport 'pigeons'"),
        ({"transport": "", "nic_rate_gbps": ""}, "neither transport nor nic_rate_gbps"),
        ({"iteration_ms": "fast"}, "row 2, column iteration_ms: 'fast'"),
        ({"iteration_ms": "0"}, "row 2, column iteration_ms: '0'"),
        ({"forward_ms": "-1"}, "row 2, column forward_ms: '-1'"),
        ({"forward_ms": "nan"}, "row 2, column forward_ms: 'nan'"),
        ({"workers": "2.5"}, "row 2, column workers: '2.5'"),
        ({"reducer": "topk", "reducer_params": "ratio=all"}, "'all' is not a number"),
        ({"reducer": "topk", "reducer_params": "ratio=200%"}, "keep a share of 2"),
        ({"reducer": "powersgd", "reducer_params": "rank=1.5"}, "1.5 is no rank"),
    ],
)
def test_what_cannot_be_predicted_says_why(tmp_path, cells, reason):
    (found,) = validate_iterations(str(write_iterations(tmp_path / "one", iteration(**cells)))).iterations
    assert (found.predicted, found.scored) == (False, False)
    assert reason in found.reason
    assert "\n" not in found.reason


def test_a_model_for_other_data_differs_in_its_fully_connected_layers(tmp_path):
    small, large = (only_row(tmp_path, n_params=count) for count in ("23520842", "25557032"))
    times_s = []
    for row in (small, large):
        write_iterations(tmp_path / "one", iteration(n_params=str(row.n_params)))
        times_s.append(validate_iterations(str(tmp_path / "one")).iterations[0].communication_s)
    assert times_s[0] / times_s[1] == pytest.approx(23520842 / 25557032, rel=2e-3)


def test_of_a_model_that_is_not_known_the_size_counts(tmp_path):
    folder = write_iterations(tmp_path / "folder", iteration(), iteration(id="other", model="unheard of"))
    known, other = validate_iterations(str(folder)).iterations
    assert other.predicted
    assert other.communication_s == pytest.approx(known.communication_s, rel=1e-3)


@pytest.mark.slow
def test_what_the_next_forward_needs_first_goes_first(tmp_path):
    slow = {"nic_rate_gbps": "5", "model": "VGG-16", "n_params": ""}
    folder = write_iterations(
        tmp_path / "folder",
        iteration(overlap_kind="wfbp", **slow),
        iteration(id="first", overlap_kind="bytescheduler", **slow),
    )
    each, first = validate_iterations(str(folder)).iterations
    # The next forward goes on before all has come.
    assert first.iteration_s < each.iteration_s
    assert first.iteration_s > 0.9 * (each.iteration_s - 30 * MS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("id,source\na,b\n", "has no column 'gpu'"),
        (",".join(COLUMNS) + "\n", "has no row"),
        (",".join(COLUMNS) + "\na\n", "row 2: it has 1 cells"),
        (",".join([*COLUMNS, "id"]) + "\n", "has the column 'id' twice"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, capsys, text, message):
    (tmp_path / "iterations.csv").write_text(text)
    assert main(["dev", "validate", str(tmp_path)]) == 2
    written = capsys.readouterr().err
    assert message in written
    assert written.count("\n") == 1


def test_of_equal_names_the_first_counts(tmp_path):
    folder = write_iterations(tmp_path / "folder", iteration(), iteration(iteration_ms="1e6"))
    first, again = validate_iterations(str(folder)).iterations
    assert (first.predicted, again.predicted, again.id) == (True, False, "iterations.csv, row 3")
    assert again.reason == f"column id: {first.id!r} stands in row 2 too"


@pytest.mark.slow
def test_a_codec_and_collectives_of_one_stream_do_not_hide_each_other(tmp_path):
    folder = write_iterations(
        tmp_path / "folder",
        iteration(id="one", overlap_kind="wfbp", reducer="randomk", reducer_params="ratio=10%"),
        iteration(id="two", overlap_kind="wfbp", reducer="random-k", reducer_params="ratio=10%"),
    )
    one, two = validate_iterations(str(folder)).iterations
    # What has no code of its own is the registry's, whose collectives run beside its codec.
    assert one.communication_s > 0
    assert one.iteration_s > 90 * MS + one.codec_s + 0.5 * one.communication_s
    assert two.predicted


def test_the_public_ones_have_a_name_where_no_folder_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_iterations_folder("measured_iterations") == data_directory("measured/iterations")
    (tmp_path / "measured_iterations").mkdir()
    assert resolve_iterations_folder("measured_iterations").resolve() == tmp_path / "measured_iterations"


@pytest.mark.slow
def test_mutated_files_never_end_in_a_traceback(tmp_path):
    text = (data_directory("measured/iterations") / "iterations.csv").read_text("utf-8").splitlines()
    draw = random.Random(7)
    for _ in range(25):
        lines = [text[0], draw.choice(text[1:])]
        line = draw.randrange(2) if draw.random() < 0.2 else 1
        letters = list(lines[line])
        for _ in range(draw.randrange(1, 4)):
            letters[draw.randrange(len(letters))] = draw.choice(
                ['"', ",", "-", "0", "9", "e", "\x00", "", " ", "\n", "é"]
            )
        lines[line] = "".join(letters)
        (tmp_path / "iterations.csv").write_text("\n".join(lines), "utf-8")
        try:
            said = [row.reason or "" for row in validate_iterations(str(tmp_path)).iterations if not row.predicted]
            assert all(said)
        except S2SimError as error:
            said = [str(error)]
        assert not any("\n" in each for each in said)


def test_the_command_writes_json_and_a_screen(tmp_path, capsys):
    folder = write_iterations(tmp_path / "folder", iteration(), iteration(id="odd", gpu="abacus"))
    assert main(["dev", "validate", str(folder), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in found["iterations"]] == ["dense", "odd"]
    assert set(found["iterations"][0]) >= {"id", "predicted", "reason", "iteration_s", "communication_s", "wins"}
    assert (found["iterations"][1]["predicted"], found["iterations"][1]["iteration_s"]) == (False, None)
    assert (found["overall"]["sources"], found["by_source"][0]["name"]) == (1, "here")
    assert main(["dev", "validate", str(folder)]) == 0
    screen = capsys.readouterr().out
    assert "2 iterations of 1 sources in folder" in screen
    assert "Not predicted: odd: the GPU 'abacus'" in " ".join(screen.split())
    assert main(["dev", "validate", str(folder), "--html", str(tmp_path / "page.html")]) == 0
    assert "186.6 ms" in (tmp_path / "page.html").read_text("utf-8")


@pytest.fixture
def public(one_validation):
    return one_validation[1]()


@pytest.mark.slow
def test_public_iterations_are_predicted_as_well_as_the_page_says(public):
    with (data_directory("measured/iterations") / "iterations.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [found.id for found in public.iterations] == [row["id"] for row in rows]
    assert public.overall.iteration.median <= 0.05
    assert public.overall.iteration.p90 <= 0.2
    assert public.overall.communication.median <= 0.33
    assert public.overall.calls_right_share >= 0.85
    assert public.overall.calls.decided_right_share >= 0.9
    assert public.overall.calls.brier < public.overall.calls.brier_of_base_rate / 2
    not_told = {row["id"] for row in rows if row["overlap_kind"] == "unknown"}
    assert {found.id for found in public.iterations if not found.predicted} == not_told


@pytest.mark.slow
def test_probabilities_rest_on_the_spread_of_public_rows(public):
    scored = [row for row in public.iterations if row.scored]
    for spread, name in ((COMMUNICATION_SPREAD, "communication_s"), (CODEC_SPREAD, "codec_s")):
        medians = []
        for source in {row.source for row in scored}:
            pairs = [(getattr(row, name), getattr(row, f"measured_{name}")) for row in scored if row.source == source]
            errors = [abs(math.log(predicted / measured)) for predicted, measured in pairs if predicted and measured]
            medians += [median(errors)] if errors else []
        assert median(medians) / NormalDist().inv_cdf(0.75) == pytest.approx(spread, abs=0.02)


@pytest.mark.slow
def test_merging_is_ordered_as_its_authors_measured(public):
    times_s = {found.id: found.iteration_s for found in public.iterations}
    for workers in range(4):
        alone, each, merged = (times_s[f"hkbu_{first + workers:03}"] for first in (1, 5, 9))
        assert merged <= each * 1.001 < alone
