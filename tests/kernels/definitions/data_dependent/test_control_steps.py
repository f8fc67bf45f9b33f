"""Tests of the kernels between the parts of branches and loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import tir
from graphflow.base.sizes import SizeFormula
from graphflow.kernels.definitions.data_dependent.control_steps import computed_size

FORMULAS = {
    "a sum": SizeFormula("quotient", (2, -3, 5, 1)),
    "a quotient": SizeFormula("quotient", (3, 1, -7, 4)),
    "a product": SizeFormula("product"),
    "the lesser": SizeFormula("lesser"),
    "the lesser of numbers too": SizeFormula("lesser", (9, 4)),
}


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
@settings(derandomize=True, max_examples=25, deadline=None)
@given(values=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_a_kernel_computes_what_the_formula_says(
    formula: SizeFormula, values: tuple[int, int]
) -> None:
    func = computed_size(formula, 2)
    given_values = {f"size{k}": np.array(n) for k, n in enumerate(values)}
    assert int(tir.interpret(func, given_values)["size"]) == formula.value(values)
