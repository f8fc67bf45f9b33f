"""`prepare_constants`: constants are packed and let go of, one after the other."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

import graphflow as gf
import graphflow.runtime.constant_block as constant_block
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import ProgramSpec
from graphflow.runtime.constant_block import NOTHING_BORROWED, prepare_constants
from graphflow.runtime.native_code import NativeCode
from graphflow.runtime.step_table import Arena, StepTable


def products(widths: Sequence[int]) -> ProgramSpec:
    """The program of products whose weights are packed before the first run."""
    build = ModelBuilder(seed=4)
    value = build.input("x", (16, widths[0]))
    for inputs, outputs in pairwise(widths):
        value = build.node("MatMul", [value, build.weight(inputs, outputs)])
    build.output(value)
    options = gf.Options(threads=1, workers=0)
    return compile_graph(CompileRequest(build.model(), options=options)).spec


class Watched(NativeCode):
    """Native code that notes how many constants there are whenever it executes a table."""

    def __init__(self, spec: ProgramSpec, initial: dict[int, np.ndarray]) -> None:
        super().__init__(spec, 1)
        self.initial, self.counts = initial, list[int]()

    def walk(self, arena: Arena, table: StepTable, job: int) -> None:
        self.counts.append(len(self.initial))
        super().walk(arena, table, job)


@pytest.mark.parametrize("at_once", [1, 1 << 30])
def test_constants_are_let_go_of_while_others_wait(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = products([48, 80, 96, 112])
    whole = prepare_constants(spec, NativeCode(spec, 1), NOTHING_BORROWED, dict(spec.constants))
    monkeypatch.setattr(constant_block, "LET_GO_AT_ONCE", at_once)
    initial = dict(spec.constants)
    code = Watched(spec, initial)
    block = prepare_constants(spec, code, NOTHING_BORROWED, initial)
    assert code.counts == ([3, 2, 1] if at_once == 1 else [3])
    assert not initial
    assert len(spec.prepare) == 3
    runs = spec.run_constant_bytes
    np.testing.assert_array_equal(block.memory[:runs], whole.memory[:runs])
    assert block.memory[:runs].any()
