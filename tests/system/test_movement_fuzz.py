"""Fuzzing of expansions: results agree with onnxruntime's where channels are moved and scaled.

support/movement_models.py makes the models.  Targets, threads and poison go by the seed; for every
second pair of seeds prices are random, so that plans have expansions that would not pay.
"""

from __future__ import annotations

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.options import Options
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.fuzz_cases import Case, compile_case
from support.fuzz_reference import Peer, differs
from support.movement_models import random_moving_model
from support.padded import normal_inputs

TARGETS = (host_target(), avx2_target())
POISONS = (np.nan, 42.0)


def check(seed: int) -> bool:
    """Whether results of the model of a seed can be compared; asserts that they agree."""
    model = random_moving_model(seed)
    inputs = normal_inputs(model, seed)
    expected = Peer(model).reference(inputs, seed)
    if expected.refused:
        return False
    poison = bool(seed // 2 % 2 or seed // 8 % 2)
    options = Options(threads=1 + seed // 4 % 2, poison=poison, workers=0)
    if seed // 2 % 2:
        executable = compile_case(Case(model, inputs, expected.outputs, {}, prices=seed))
    else:
        executable = gf.compile(model, target=TARGETS[seed % 2], options=options)
    for value in POISONS if poison else POISONS[:1]:
        wrong = differs(executable.run(inputs, poison=value), expected.outputs)
        assert not wrong, f"seed {seed}, poison {value}: {wrong}"
    if seed % 20 == 0:
        wrong = differs(interpret_graph(import_model(model, {}), inputs), expected.outputs)
        assert not wrong, f"seed {seed}, interpreted: {wrong}"
    return True


def test_random_models_that_move_and_scale_channels() -> None:
    assert sum(map(check, range(16))) > 12


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 2000, 100))
def test_many_such_models(start: int) -> None:
    assert sum(map(check, range(start, start + 100))) > 75
