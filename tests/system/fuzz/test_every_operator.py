"""Tests of every operator that has a kernel: random models of one node, compiled and run natively,
against ONNX's reference evaluator or onnxruntime.

Each operator has a strategy in operator_cases.py or operator_structures.py of support/models, or an
entry in `ELSEWHERE` that names the module with its tests.  `pytest -m slow` runs many examples.
"""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.frontends import OPERATORS
from support.models.operator_cases import STRATEGIES as ELEMENTWISE
from support.models.operator_cases import Case, Choices, Constant
from support.models.operator_structures import STRATEGIES as STRUCTURES
from support.paths import TESTS
from support.single import single

STRATEGIES = {**ELEMENTWISE, **STRUCTURES}

ELSEWHERE = {
    "BitCast": "frontends/rewrites/test_classical",
    "Constant": "frontends/tensors/test_folding",
    "ConvInteger": "frontends/operators/test_ops_quantized",
    "DFT": "frontends/operators/test_ops_signal",
    "DeformConv": "frontends/operators/test_ops_sampling",
    "GRU": "frontends/operators/test_ops_recurrent",
    "GridSample": "frontends/operators/test_ops_sampling",
    "LSTM": "frontends/operators/test_ops_recurrent",
    "MaxUnpool": "frontends/operators/test_data_shapes",
    "NonMaxSuppression": "frontends/operators/test_data_shapes",
    "QLinearConv": "frontends/operators/test_ops_quantized",
    "QLinearMatMul": "frontends/operators/test_ops_quantized",
    "RMSNormalization": "frontends/operators/test_ops_normalization",
    "RNN": "frontends/operators/test_ops_recurrent",
    "Resize": "frontends/operators/test_operators",
    "RoiAlign": "frontends/operators/test_ops_sampling",
    "RotaryEmbedding": "frontends/operators/test_ops_rotary",
    "STFT": "frontends/operators/test_ops_signal",
    "TensorScatter": "frontends/operators/test_data_shapes",
    "Upsample": "frontends/operators/test_operators",
}
"""Operators whose nodes need more than a few lines, and the module that tests them."""

PEER = frozenset(STRUCTURES) - {"NonZero"} | {
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN",
    "LayerNormalization", "ReduceL1", "ReduceL2", "ReduceMean", "ReduceProd",
    "ReduceSum", "ReduceSumSquare", "ReduceLogSum",
}  # fmt: skip
"""Operators compared with onnxruntime where it has the kernel.

Others are computed by numpy in the reference evaluator: onnxruntime's vector kernels clamp the
arguments of Erf, Sigmoid and Tanh, its maxima and minima lose NaNs, and its LogSoftmax of float64
gives numbers where there is an infinity.
"""

OPTIONS = gf.Options(workers=0, threads=1, fallback=None)
EXAMPLES, MANY = 2, 150


def quick(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=settings.default.derandomize,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def test_every_operator_has_a_strategy_or_a_module_of_its_own() -> None:
    covered = set(STRATEGIES) | set(ELSEWHERE)
    assert not set(OPERATORS) - covered, "write a strategy, or name the module that tests these"
    assert not covered - set(OPERATORS), "these have no kernels"
    assert not set(STRATEGIES) & set(ELSEWHERE)
    for op, module in ELSEWHERE.items():
        text = (TESTS / f"{module}.py").read_text(encoding="utf-8")
        assert f'"{op}"' in text or f"{op} " in text, f"{module} does not speak of {op}"


@pytest.mark.parametrize("op", sorted(STRATEGIES))
def test_random_nodes(op: str) -> None:
    run_many(op, EXAMPLES)


def run_many(op: str, examples: int) -> None:
    @quick(examples)
    @given(st.data())
    def test(data: st.DataObject) -> None:
        check(STRATEGIES[op](Choices(data)))

    test()


def check(case: Case) -> None:
    """Compile, run and compare the results of one case."""
    fixed = [item is None or isinstance(item, Constant) for item in case.inputs]
    live = [np.asarray(x) for x, known in zip(case.inputs, fixed, strict=True) if not known]
    constants = {k: getattr(item, "array", None) for k, item in enumerate(case.inputs) if fixed[k]}
    model = single(
        case.op, live, case.opset, constants, case.outputs, case.result, **case.attributes
    )
    feeds = {info.name: array for info, array in zip(model.graph.input, live, strict=True)}
    want = case.want if case.want is not None else oracle(case.op, model, feeds)
    (got,) = gf.compile(model, options=OPTIONS).run(feeds).values()
    assert (got.dtype, got.shape) == (want.dtype, want.shape), describe(case)
    if case.exact or got.dtype.kind in "biu":
        same = (
            (got == want) & (np.signbit(got) == np.signbit(want))
            if got.dtype.kind == "f"
            else got == want
        )
        if got.dtype.kind == "f":
            same |= np.isnan(got) & np.isnan(want)
        assert np.all(same), f"{describe(case)}\n{got[~same][:9]} is to be {want[~same][:9]}"
        return
    np.testing.assert_allclose(
        got, want, rtol=case.tolerance, atol=case.tolerance, err_msg=describe(case)
    )


def oracle(op: str, model: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    """What onnxruntime or the reference evaluator gives."""
    if op in PEER:
        try:
            options = ort.SessionOptions()
            options.log_severity_level, options.intra_op_num_threads = 4, 1
            session = ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return session.run(None, feeds)[0]
        except (
            ort.capi.onnxruntime_pybind11_state.NotImplemented,
            ort.capi.onnxruntime_pybind11_state.Fail,
        ):
            pass
    with np.errstate(all="ignore"):
        return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])


def describe(case: Case) -> str:
    inputs = [getattr(item, "array", item) for item in case.inputs]
    given = [None if a is None else f"{a.dtype}{list(a.shape)}" for a in inputs]
    small = [a for a in inputs if a is not None and a.size <= 24]
    return f"{case.op}-{case.opset} {given} {case.attributes} {small}"
