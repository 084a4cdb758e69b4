"""Fully sharded training, as three systems' authors measured it.

Llama 3.1 8B on 8 and on 128 GPUs: github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1
and 3: hosts of 8 H100 with NVLink and 400 Gb/s a GPU between hosts, local batch size 2, sequences of 8,192 tokens. What
a GPU computes is set by the run on 8 GPUs; what the network adds on 128 is predicted. Of memory the difference is
compared, in which activations do not count.

MPT 7B on 8 to 512 GPUs: github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md at 8c8dd48f: H100, six
sequences of 2,048 tokens a GPU, no activations computed twice. Llama 2 7B, with nearly as many parameters in layers of
the same sizes, stands for it, with three sequences of 4,096 tokens. Compute is set by the run on 8 GPUs again.

Llama 2 7B in shards of a node: github.com/foundation-model-stack/fms-fsdp, README.md: 96 H100 with 800 Gb/s a host and
128 A100 of 80 GB with 400 Gb/s, two sequences of 4,096 tokens a GPU. Nothing is set by a measurement of theirs: compute
is that of the profile, which the training of Llama 2 itself tells, slower than fms-fsdp on A100.
"""

import pytest

import s2sim

TOKENS = 2 * 8192
GIB = 2**30
# Tokens a second and GPU, and GiB of memory, with 8 and with 128 GPUs: without and with torch.compile.
PUBLISHED = [((5762, 5605), (82.4, 67.0)), ((6667, 6514), (77.0, 62.0))]


def iteration(workers, efficiency):
    found = s2sim.run(
        "dgx-h100",
        workers=workers,
        profile=f"llama-3.1-8b:efficiency={efficiency}",
        discipline="fsdp",
        reducers=("dense",),
        break_even=False,
        thorough=False,
    )
    return found.rows[0]


@pytest.mark.slow
@pytest.mark.parametrize(("rates", "memory"), PUBLISHED)
def test_what_128_gpus_lose_on_8(rates, memory):
    first = iteration(8, 0.4)
    # Compute is all but what is exposed, and its operations are in inverse proportion to the efficiency.
    ahead = 0.4 * first.iteration_s / (TOKENS / rates[0])
    few, many = (iteration(workers, round(ahead, 4)) for workers in (8, 128))
    assert TOKENS / few.iteration_s == pytest.approx(rates[0], rel=0.05)
    assert few.iteration_s / many.iteration_s == pytest.approx(rates[1] / rates[0], rel=0.05)
    less = (few.iteration.state_bytes - many.iteration.state_bytes) / GIB
    assert less == pytest.approx(memory[0] - memory[1], rel=0.1)


MPT = {8: 10643, 128: 10475, 256: 10119, 512: 9670}  # Tokens a second and GPU


def sharded(topology, workers, *, profile="llama-7b", discipline="fsdp", **options):
    kept = {"reducers": ("dense",), "break_even": False, "thorough": False}
    found = s2sim.run(topology, workers=workers, profile=profile, discipline=discipline, **kept, **options)
    return found.rows[0].iteration_s


@pytest.mark.slow
def test_tokens_of_up_to_512_gpus():
    tokens = 3 * 4096
    ahead = round(0.4 * sharded("dgx-h100", 8, profile="llama-7b:efficiency=0.4", batch=3) / (tokens / MPT[8]), 4)
    for workers, rate in MPT.items():
        taken_s = sharded("dgx-h100", workers, profile=f"llama-7b:efficiency={ahead}", batch=3)
        assert tokens / taken_s == pytest.approx(rate, rel=0.05), workers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "workers", "overrides", "rate", "off"),
    [
        ("dgx-h100", 96, ("nic.rate=100Gbps",), 7500, 0.1),
        ("dgx-a100", 128, ("nic.count=4", "nic.rate=100Gbps", "gpu=a100-80gb"), 3700, 0.25),
    ],
)
def test_tokens_in_shards_of_a_node(topology, workers, overrides, rate, off):
    taken_s = sharded(topology, workers, discipline="fsdp:shard=node", batch=2, overrides=overrides)
    assert 2 * 4096 / taken_s == pytest.approx(rate, rel=off)
