"""Models that move and scale channels, compared with onnxruntime.

In: a seed.  Out: whether its results can be compared, after they were.  Targets, threads and poison
go by the seed; for every second pair of seeds prices are random, so that plans have expansions that
would not pay.
"""

import numpy as np
import onnx

import graphflow as gf
from graphflow.base.options import Options
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.fuzz.fuzz_cases import Case, compile_case
from support.fuzz.fuzz_reference import Peer, differs
from support.padded import normal_inputs

TARGETS = (host_target(), avx2_target())
POISONS = (np.nan, 42.0)


def agrees(model: onnx.ModelProto, seed: int) -> bool:
    """Whether the results for inputs of a seed can be compared; asserts that they agree."""
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
