"""Costs of matrices, counted by hand."""

from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.script import Work


def test_a_product_moves_each_matrix_once():
    assert cost.multiply_cost(3, 5, 2) == Work("encode", 4 * (15 + 10 + 6), launches=1, flops=2 * 3 * 5 * 2)


def test_columns_are_made_orthonormal_one_after_the_other():
    # One column of 10: squared (20), summed (10), divided (20).
    assert cost.orthogonalise_cost(10, 1) == Work("encode", 4 * 50, launches=5, flops=30)
    # Of three, 3 pairs: seven passes over the second of each, and the first is read twice while any are left.
    assert cost.orthogonalise_cost(10, 3) == Work("encode", 4 * (150 + 40 + 210), launches=23, flops=10 * (9 + 12))
    assert cost.orthogonalise_cost(10, 0) == Work("encode", 0, launches=0)
