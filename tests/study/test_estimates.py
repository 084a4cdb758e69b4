"""Constants that are only estimated."""

import pytest

from s2sim.experiment.scenario.cluster import estimated_ranges, format_constant, with_constant
from s2sim.reducers.script import Recording, Work
from s2sim.topology.hardware import load_gpu


def recording(**sizes):
    return Recording((), ((), (Work("encode", 8, **sizes),)))


@pytest.mark.parametrize(
    ("sizes", "more"), [({}, set()), ({"flops": 1}, {"flops_efficiency"}), ({"host_steps": 1}, {"host_step"})]
)
def test_products_and_codes_count_where_somebody_has_them(sizes, more):
    gpu = load_gpu("a100")
    assert set(estimated_ranges(gpu)) == {"kernel_launch", "host_sync"}
    assert set(estimated_ranges(gpu, [recording(), recording(**sizes)])) == {"kernel_launch", "host_sync"} | more


@pytest.mark.parametrize(
    ("constant", "taken", "value"),
    [
        ("kernel_launch", "5 us", "2 us"),
        ("host_step", "1.05 ns", "3 ns"),
        ("flops_efficiency", "0.8", "0.95"),
        ("memory_efficiency", "0.88", "0.3"),
    ],
)
def test_a_constant_is_told_and_replaced(constant, taken, value):
    gpu = load_gpu("a100")
    assert format_constant(gpu, constant) == taken
    assert format_constant(with_constant(gpu, constant, value), constant) == value
