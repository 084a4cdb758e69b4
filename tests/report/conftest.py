from __future__ import annotations

import pytest

from s2sim.reducers.measure import Error
from s2sim.study.compare.judge import judge
from s2sim.study.compare.verdict import Known, give_verdict
from s2sim.study.measuring.gradients import Gradients
from s2sim.study.measuring.result import Result, Row
from s2sim.study.measuring.row_parts import BoundRow, CollectiveRow, LoweringRow
from s2sim.study.spec import RunSpec


def make_row(option_string="dense", workers=4, *, ratio=1.0, speedup=1.0, error=0.0, cosine=1.0):
    return Row(
        reducer=option_string.partition(":")[0],
        option_string=option_string,
        options={},
        workers=workers,
        baseline=option_string == "dense",
        lossless=error == 0.0,
        agrees=True,
        consensus_distance=0.0,
        estimates="mean",
        period=1,
        encode_s=1.5e-5,
        communication_s=2e-3,
        decode_s=0.0,
        total_s=2.015e-3,
        iteration_s=None,
        bytes_sent_per_rank=18_740_000,
        bytes_received_per_rank=18_740_000,
        payload_bytes_per_rank=9_517_056,
        ratio=ratio,
        error=Error(error, cosine),
        error_compressed=Error(error, cosine),
        error_per_layer={"encoder.weight": Error(error, cosine), "<bias>": Error(None, None)},
        bound=BoundRow(0.0023, 0.7407, 0.99996, 0.82, "a theorem") if error else None,
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


@pytest.fixture(scope="session")
def result():
    rows = (
        make_row("dense", 4),
        make_row("topk:density=0.01", 4, ratio=12.5, speedup=3.25, error=0.5432, cosine=0.8765),
        make_row("dense", 8),
        make_row("topk:density=0.01", 8, ratio=None, speedup=float("inf"), error=None, cosine=None),
    )
    rows = (*judge(rows[:2], None), *judge(rows[2:], None))
    verdicts = tuple(give_verdict(rows[place : place + 2], Known("<mine>")) for place in (0, 2))
    return Result(
        spec=RunSpec(topology="fat-tree", workers=(4, 8), reducers=("dense", "topk:density=0.01")),
        headline="<fat-tree> & co",
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
        rows=rows,
        verdict=verdicts[-1],
        verdicts=verdicts,
        notes=("first step & empty residuals",),
    )
