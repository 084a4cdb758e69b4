from dataclasses import replace

import pytest

from s2sim.experiment.judgement import judge
from s2sim.experiment.record import Gradients
from s2sim.experiment.row_parts import BoundRow, CollectiveRow, Distance, IterationRow, LoweringRow, Times
from s2sim.experiment.rows import Result, Row
from s2sim.experiment.spec import RunSpec
from s2sim.experiment.verdict import VerdictContext, give_verdict


def make_row(option_string="dense", workers=4, *, ratio=1.0, speedup=1.0, error=0.0, cosine=1.0):
    return Row(
        name=option_string.partition(":")[0],
        reducer=option_string,
        options={},
        workers=workers,
        baseline=option_string == "dense",
        lossless=error == 0.0,
        agrees=True,
        consensus_distance=0.0,
        estimates="mean",
        period=1,
        time_s=Times(encode=1.5e-5, communication=2e-3, decode=0.0, total=2.015e-3, iteration=None),
        bytes_sent_per_rank=18_740_000,
        bytes_received_per_rank=18_740_000,
        payload_bytes_per_rank=9_517_056,
        ratio=ratio,
        error=Distance(error, cosine),
        error_compressed=Distance(error, cosine),
        error_largest=None,
        error_compressed_largest=None,
        error_per_layer={"encoder.weight": Distance(error, cosine), "<bias>": Distance(None, None)},
        error_bound=BoundRow(0.0023, 0.7407, 0.99996, 0.82, "a theorem") if error else None,
        rounds=2,
        rounds_before_gradient=0,
        host_syncs=1,
        host_syncs_ideal=1,
        host_syncs_real=2,
        encode_work_s=1.5e-5,
        decode_work_s=2e-5,
        lower_bound_s=1.5e-3,
        lower_bound_why="bytes out of all 2 nodes",
        speedup_vs_dense=speedup,
        collectives=(
            CollectiveRow("all_reduce", "ring", "gradient", 9_517_056, 2e-3, size_from_data=False, why="fastest"),
        ),
        bottleneck="communication takes 99% of the time",
        lowering=(
            LoweringRow(
                "gradient", "all_reduce sum float32", "all_reduce sum float32", 18, 18, 2e-3, 2e-3, 0.0, "native"
            ),
            LoweringRow("bits", "all_reduce or uint8", "all_reduce max uint8", 1000, 8000, 1e-5, 4e-5, 3e-5, "no OR"),
        ),
        total_ideal_s=1.3e-3,
        order_gap_s=1e-5,
        real_library="nccl",
        total_real_s=2.5e-3,
        bytes_sent_real_per_rank=20_000_000,
    )


def iterating(option_string="dense", workers=64, *, codec=0.0, exposed=0.03, hidden=0.02, waiting=0.002, error=0.0):
    """Return the row of a reducer whose iterations were simulated, beside 0.35 s of compute."""
    iteration = IterationRow(
        forward=0.11,
        backward=0.24,
        codec=codec,
        exposed_communication=exposed,
        hidden_communication=hidden,
        waiting=waiting,
        optimizer=0.006,
        spread_s=0.004,
        iterations=5,
        samples_per_s=32 * workers / (0.356 + codec + exposed + waiting),
        discipline="ddp:bucket=25MiB",
        buckets=20,
        lower_bound=0.0,
        waiting_mean=0.0,
        streams=1,
    )
    dense_s = 0.356 + 0.03 + 0.002
    return replace(
        make_row(option_string, workers, speedup=dense_s / iteration.total_s, error=error),
        iteration=iteration,
        time_s=Times(codec / 2, exposed + hidden, codec / 2, codec + exposed + hidden, iteration.total_s),
    )


def iterating_rows(workers=64, longer=1.0):
    """Return a dozen of them, of which some lose to dense; communication is so many times as long."""
    return (
        iterating("dense", workers, exposed=0.03 * longer),
        iterating("fp16", workers, codec=0.002, exposed=0.012 * longer),
        iterating("topk:density=0.01", workers, codec=0.05, exposed=0.002 * longer, hidden=0.001, error=0.64),
        iterating("topk:density=0.01,ef=true", workers, codec=0.051, exposed=0.002 * longer, hidden=0.001, error=0.64),
        iterating("union", workers, codec=0.0012, exposed=0.015 * longer, hidden=0.012),
        iterating("owner-reduce", workers, codec=0.001, exposed=0.018 * longer, hidden=0.013),
        iterating("gather-rows", workers, codec=0.003, exposed=0.05 * longer, hidden=0.031),
        iterating("s2:rows=3,cells=2", workers, codec=0.008, exposed=0.009 * longer, hidden=0.01, error=1.2),
        iterating("s2-exact", workers, codec=0.011, exposed=0.01 * longer, hidden=0.01),
        iterating("powersgd:rank=4", workers, codec=0.006, exposed=0.0, hidden=0.004, error=0.31),
        iterating("qsgd:levels=15", workers, codec=0.004, exposed=0.008 * longer, hidden=0.011, error=0.21),
        iterating("signsgd", workers, codec=0.002, exposed=0.001 * longer, hidden=0.002, waiting=0.004, error=0.9),
    )


@pytest.fixture(scope="session")
def result():
    rows = (
        make_row("dense", 4),
        make_row("topk:density=0.01", 4, ratio=12.5, speedup=3.25, error=0.5432, cosine=0.8765),
        make_row("dense", 8),
        make_row("topk:density=0.01", 8, ratio=None, speedup=float("inf"), error=None, cosine=None),
    )
    rows = (*judge(rows[:2], None), *judge(rows[2:], None))
    verdicts = tuple(give_verdict(rows[place : place + 2], VerdictContext("<mine>")) for place in (0, 2))
    return result_of(rows, verdicts)


@pytest.fixture(scope="session")
def iterations():
    """A result of iterations with 64 workers."""
    return _judged(iterating_rows())


@pytest.fixture(scope="session")
def scaled_iterations():
    """A result of iterations with 8, 16 and 64 workers."""
    return _judged(*(iterating_rows(workers, longer) for workers, longer in ((8, 0.2), (16, 0.5), (64, 1.0))))


def _judged(*groups):
    judged = [judge(rows, None) for rows in groups]
    verdicts = tuple(give_verdict(rows, VerdictContext("nccl")) for rows in judged)
    return result_of(tuple(row for rows in judged for row in rows), verdicts)


def result_of(rows, verdicts):
    return Result(
        spec=RunSpec(
            topology="fat-tree",
            workers=tuple(dict.fromkeys(row.workers for row in rows)),
            reducers=tuple(dict.fromkeys(row.option_string for row in rows)),
        ),
        cluster="<fat-tree> & co",
        gradients=Gradients(
            trace="<mine>",
            model="a network & a table",
            kind="recorded",
            toy=True,
            recorded_ranks=8,
            recorded_steps=1,
            recorded_parameters=38_282,
            parameters=38_282,
            bytes=153_128,
            dtype="fp32",
            to_model=None,
            drawn_ranks=0,
            density=0.03451,
            row_density=None,
        ),
        library="nccl",
        gpu="a100",
        machines="library nccl and GPU a100, as fat-tree says",
        provenance={},
        results=rows,
        verdict=verdicts[-1],
        verdicts=verdicts,
        notes=("first step & empty residuals",),
    )
