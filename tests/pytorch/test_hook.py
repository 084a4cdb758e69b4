"""The communication hook in trainings of two processes, beside plain DistributedDataParallel."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

import s2sim.pytorch
from s2sim.advice.script import script_lines
from s2sim.errors import S2SimError
from s2sim.experiment.spec import RunSpec
from s2sim.profiles.read import RecordedJob

pytestmark = pytest.mark.slow

KEPT = ["topk:density=0.1", "s2:rows=3,cells=4", "powersgd", "dgc:density=0.1", "onebit-sgd:ef=true"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the first processes leave trainings of 20 steps, and of 10 that go on."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def first(hook_job, folder):
    return hook_job("first_job", folder=str(folder), reducers=KEPT)


@pytest.fixture(scope="module")
def values(first):
    return [rank["values"] for rank in first]


@pytest.fixture(scope="module")
def registry(first):
    return [rank["registry"] for rank in first]


@pytest.fixture(scope="module")
def trouble(first):
    return [rank["trouble"] for rank in first]


def test_exact_reducers_end_where_plain_training_does(values):
    for rank in values:
        assert all(far < 1e-6 and buckets == 2 for far, buckets in list(rank["exact"].values())[:-1]), rank["exact"]
        # The largest of the whole gradient are known once it is there: one bucket.
        assert rank["exact"]["topk:density=1"][1] == 1
        assert rank["exact"]["topk:density=1"][0] < 1e-6


def test_a_bucket_is_reduced_as_the_simulated_one_with_the_same_draws(values):
    for rank in values:
        assert [buckets for buckets, _ in rank["simulated"].values()] == [3, 3, 1]
        assert all(far < 1e-6 for _, far in rank["simulated"].values()), rank["simulated"]


@pytest.mark.parametrize("spec", ["dense", "fp16", "dense:dtype=bf16"])
def test_sums_of_the_buckets_of_ddp_have_the_bits_of_the_program(values, spec):
    assert [rank["sums"][spec][:5] for rank in values] == [[0, True, False, 10, True]] * 2


@pytest.mark.parametrize("spec", ["dense", "fp16", "dense:dtype=bf16"])
def test_sums_of_sparse_gradients_are_those_of_dense_ones(values, spec):
    assert [rank["sums"][spec][5] for rank in values] == [0, 0]


def test_sums_that_are_not_finite_are_so_on_all_ranks_and_those_that_overflow_float32_an_error(values):
    for rank in values:
        broken, loss = rank["sums"]["not a number"]
        assert broken
        assert np.isfinite(loss)
        assert "cannot reduce step 0 with dense: a sum overflows fp32" in rank["sums"]["overflow of float32"]
        assert "no exchange is possible any more" in rank["sums"]["afterwards"]


def test_sums_that_overflow_float16_are_nan_as_gradscaler_expects_and_that_is_said_once_on_one_rank(values):
    for rank, found in enumerate(values):
        *broken, loss, said = found["sums"]["overflow"]
        assert broken == [True, True]
        assert np.isfinite(loss)
        assert [text.partition(":")[0] for text in said] == ["a sum overflows fp16, and is NaN"] * (rank == 0)


def test_lossy_reducers_learn_and_ranks_stay_together(values):
    for rank in values:
        for name, losses in rank["lossy"].items():
            assert sum(losses[-5:]) < 0.8 * sum(losses[:5]), (name, losses)
        assert all(spread < 1e-6 for spread in rank["spread"].values()), rank["spread"]


def test_error_feedback_is_added_where_it_is_needed(values):
    assert list(values[0]["lossy"])[:2] == ["s2:rows=3,cells=4,ef=true", "topk:density=0.1,ef=true"]
    assert "qsgd" in values[0]["lossy"]


def test_time_in_reductions_is_counted(values):
    assert all(0 < rank["seconds"][0] < rank["seconds"][1] for rank in values)


@pytest.mark.parametrize(
    "case",
    [
        "gradients of embeddings as sparse tensors",
        "views of buckets",
        "static graph, union",
        "static graph, dense",
        "named tables",
        "other buckets",
        "unused parameters",
        "gradients accumulated without exchange",
        "a loop of one's own",
        "a group of one",
    ],
)
def test_ways_to_train_end_where_they_do_without_the_hook(values, case):
    assert all(rank["far"][case] < 1e-6 for rank in values), values[0]["far"]


def test_bfloat16_gradients_travel_in_two_bytes(values):
    for rank in values:
        far, spread, held = rank["bfloat16"]
        # Sums of two are rounded once here and there; halves are exact in both.
        assert far < 1e-2
        assert spread == 0
        assert held == "bf16"


def test_every_reducer_trains_and_what_it_keeps_is_saved(registry):
    refused = {name for name, found in registry[0].items() if "refused" in found}
    assert refused == {"embrace"}
    for rank in registry:
        for name, found in rank.items():
            if name not in refused:
                assert found["finite"], name
                assert found["kept"], name
                assert found["spread"] == 0 or not found["agrees"], name


def test_what_one_should_know_is_said_on_one_rank(registry):
    said = [{name: " ".join(found["said"]) for name, found in rank.items() if "said" in found} for rank in registry]
    assert not any(said[1].values())
    assert "ranks end with unlike gradients" in said[0]["choco"]
    assert "give the optimizer none" in said[0]["dgc"]
    assert "zeros in steps without an exchange" in said[0]["local-sgd"]
    assert "the hook returns signs" in said[0]["signsgd-vote"]
    assert "not by binary-tree" in said[0]["firecaffe"]
    assert not said[0]["union"]
    assert not said[0]["s2"]


def test_a_model_without_tables_is_reduced_densely_and_that_is_said(trouble):
    far, said = trouble[0]["without tables"]
    assert far < 1e-6
    assert len(said) == 1
    assert "the gradient has no row-sparse layer" in said[0]
    assert trouble[1]["without tables"][1] == []


def test_a_gradient_that_is_not_finite_reaches_all_ranks_and_spoils_no_feedback(trouble):
    for rank in trouble:
        broken, unchanged, _ = rank["not a number"]
        assert broken
        assert unchanged


def test_more_bytes_than_dense_are_said_once_on_one_rank(trouble):
    """Three rows of four cells a held row of 16 in 50: more than the table."""
    (reducer, heard), (_, silent) = (rank["sent"] for rank in trouble)
    assert silent == []
    assert len(heard) == 1
    # Of two ranks each sends as many bytes as it holds: 400 + 8 * 32 + 32 + 32 * 32 + 32 + 3 * 32 + 3 values.
    assert heard[0].startswith(f"{reducer} sent ")
    assert heard[0].endswith(" in step 1, where dense would have sent 7.372 kB")


def test_close_ends_the_thread_and_the_group(trouble):
    assert [rank["ended"] for rank in trouble] == [[1, None]] * 2


def test_reductions_run_beside_backward(trouble):
    assert [rank["overlap"] for rank in trouble] == [[True, True]] * 2


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("rank", "rank 1 has made its HookState with another reducer than rank 0"),
        ("seed", "rank 1 has made its HookState with another seed than rank 0"),
        ("parameter", "did you mean 'table.weight'"),
        ("type", "held in torch.float64: the hook takes torch.float32 and torch.bfloat16"),
        ("sharded", "parameters that are whole on every rank: weight is sharded, as of FSDP"),
        ("called by FSDP", "parameters that are whole on every rank: these are of FSDP"),
        ("frozen", "no parameter with a gradient"),
        ("embrace", "every rank with its own part of the gradient"),
        ("s2:error=0.1", "s2:error=0.1,ef=true cannot be a hook here"),
        ("s2:warm=true", "changes nothing in training"),
        ("topk:ratio=0.1", "topk has no option 'ratio'"),
        ("other model", "is of none of the parameters that the HookState was made for"),
        ("saved reducer", "of reducer union, and this HookState has topk:density=0.1,ef=true"),
        ("saved ranks", "of ranks 4, and this HookState has 2: feedback belongs to a rank and its data"),
        ("saved rank", "every rank saves and loads its own"),
        ("saved seed", "of seed 3, and this HookState has 0"),
        ("saved buckets", "of another buckets: give the same bucket_bytes"),
        ("saved format", "no state of a hook that this version reads"),
        ("failed", "cannot reduce step 0 with union: OSError: no space left"),
        ("closed", "the HookState was closed: make another one"),
        ("failed again", "no exchange is possible any more"),
    ],
)
def test_what_is_wrong_is_said_on_every_rank(trouble, what, text):
    for rank in trouble:
        assert text in (rank[what] or ""), rank[what]
        assert "\n" not in rank[what]


@pytest.mark.usefixtures("first")
def test_training_goes_on_from_a_file_bit_for_bit_and_a_rank_that_leaves_is_an_error_of_the_others(hook_job, folder):
    told = {}
    with pytest.raises(
        S2SimError, match="rank 0 cannot reduce step 3 with union: the connection to another rank is gon"
    ):
        hook_job("loading_job", hear=told.__setitem__, folder=str(folder), reducers=KEPT)
    # Bit for bit, and not without what the hook has kept.
    assert told == {rank: [[True] * len(KEPT), False] for rank in range(2)}


@pytest.mark.usefixtures("first")
def test_one_rank_changes_nothing_and_takes_no_state_of_two(hook_job, folder):
    ((far, refused),) = hook_job("alone_job", ranks=1, folder=str(folder), reducers=KEPT)
    assert far < 1e-6
    assert "of ranks 2, and this HookState has 1" in refused


def test_groups_of_some_ranks_are_those_of_one_training(hook_job):
    for rank in hook_job("nodes_job", ranks=4):
        assert all(far < 1e-6 for far in rank), rank


def test_lines_that_advice_ends_with_train(hook_job, tmp_path):
    """PyTorch's own hooks round as ours do, and what is lossy stays together; PowerSGD of full rank loses nothing."""
    RecordedJob(0.1, 2, "here", "CPU", "2", bucket_bytes=25 << 20).write(tmp_path)
    spec = RunSpec.of("fat-tree", workers=(2,))
    object.__setattr__(spec, "recorded", str(tmp_path))
    limits = {"dense": 1e-7, "fp16": 0.02, "bf16": 0.1, "powersgd:rank=32": 1e-3, "union": 1e-6, "topk": 10.0}
    scripts = {}
    for name in limits:
        row = SimpleNamespace(reducer=name, option_string=name, workers=2, real_library="gloo", collectives=())
        scripts[name] = "\n".join(script_lines(spec, row))
    for rank in hook_job("script_job", scripts=scripts):
        assert {name: far[0] for name, far in rank.items() if far[0] > limits[name]} == {}
        assert max(far[1] for far in rank.values()) < 1e-6
        assert rank["fp16"][0] > 0


def test_a_hook_needs_a_process_group_first():
    import torch

    with pytest.raises(S2SimError, match="init_process_group first"):
        s2sim.pytorch.HookState(torch.nn.Linear(2, 2))


def test_importing_the_bridge_imports_no_torch():
    code = "import sys, s2sim.pytorch; assert 'torch' not in sys.modules; s2sim.pytorch.hok"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "did you mean 'hook'" in found.stderr
