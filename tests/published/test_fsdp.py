"""Fully sharded training of Llama 3.1 8B on 8 and on 128 GPUs, as torchtitan's authors measured it.

github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3: hosts of 8 H100 with NVLink
and 400 Gb/s a GPU between hosts, local batch size 2, sequences of 8,192 tokens. What a GPU computes is set by the run
on 8 GPUs; what the network adds on 128 is predicted. Of memory the difference is compared, in which activations do not
count.
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
