"""Small models with padded layouts pinned on their edges, run by the interpreter, natively and in
onnxruntime."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime

import graphflow as gf
from graphflow.base.errors import LayoutConflict
from graphflow.base.options import Options
from graphflow.codegen import host_target
from graphflow.flow.candidates import variants
from graphflow.kernels.recipes import KernelVariant, kernel_variants
from graphflow.lower import Lowered
from graphflow.models import ModelBuilder
from graphflow.tir import Role
from graphflow.tir.meaning.to_python import compile_to_python
from support.placing import piece

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

FAMILIES = ("blocked", "channels_last_padded")
"""The families of layouts that pad the channels."""

POISONS = (np.nan, -42.0, 42.0)

TOLERANCE = 1e-5
"""Of ‖y − y_reference‖ / ‖y_reference‖ over what is finite."""

HUGE = 1e30
"""Numbers above are compared apart from the others, so that they do not drown them."""


class Net(ModelBuilder):
    """A builder with short words for what the tests here need."""

    def __init__(self, seed: int = 0, opset: int = 18) -> None:
        super().__init__(seed, opset)

    def integers(self, *values: int) -> str:
        """A constant of int64, as axes and shapes are."""
        return self.constant(np.array(values, np.int64))

    def point(self, x: str, channels: int, **options: Any) -> str:
        """A 1x1 convolution: every element of the input meets every channel of the output."""
        return self.conv(x, channels, 1, **options)

    def sum_channels(self, x: str, op: str = "ReduceSum", **options: Any) -> str:
        """A reduction over axis 1."""
        return self.node(op, [x, self.integers(1)], **options)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime, each operator by itself as the model says."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def reference(model: onnx.ModelProto, inputs: Arrays) -> dict[str, Array]:
    """The outputs by name, by onnxruntime."""
    peer = session(model)
    names = [output.name for output in peer.get_outputs()]
    return dict(zip(names, peer.run(None, dict(inputs)), strict=True))


def normal_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Normally distributed numbers for each graph input that has no default."""
    rng = np.random.default_rng(seed)
    defaults = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name not in defaults:
            kind = value.type.tensor_type
            shape = [d.dim_value for d in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[value.name] = np.asarray(rng.standard_normal(shape) * 3).astype(dtype)
    return found


def with_specials(inputs: Arrays, *values: float) -> dict[str, Array]:
    """The inputs with each of `values` at one place, far from the others."""
    found: dict[str, Array] = {}
    for name, array in inputs.items():
        changed = array.copy()
        for k, value in enumerate(values):
            changed.reshape(-1)[((k + 1) * array.size // (len(values) + 1) + k) % array.size] = (
                value
            )
        found[name] = changed
    return found


def assert_same(actual: Array, expected: Array, what: str = "") -> None:
    """NaN and both infinities in the same places, the rest within `TOLERANCE`; integers equal."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype, what
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected, what)
        return
    for name, test in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
        here, there = test(actual), test(expected)
        assert np.array_equal(here, there), (
            f"{what}: {name} in {int(here.sum())} places, expected in {int(there.sum())}, "
            f"different in {int((here != there).sum())}"
        )
    finite = np.isfinite(expected)
    a, e = actual[finite].astype(np.float64), expected[finite].astype(np.float64)
    for part in (np.abs(e) > HUGE, np.abs(e) <= HUGE):
        error, scale = np.linalg.norm(a[part] - e[part]), np.linalg.norm(e[part])
        assert error <= TOLERANCE * scale + 1e-30, f"{what}: error {error} of {scale}"


def assert_all_same(actual: Arrays, expected: Arrays, what: str = "") -> None:
    """`assert_same` of each output."""
    assert list(actual) == list(expected), what
    for name in expected:
        assert_same(actual[name], expected[name], f"{what} {name}")


def compile_pinned(
    model: onnx.ModelProto, pins: Mapping[str, Any], poison: bool = False, target: Any = None
) -> gf.Executable:
    """The model with layouts pinned, for two threads; runs may override its inputs' defaults."""
    options = Options(threads=2, poison=poison)
    chosen = host_target() if target is None else target
    inputs = {value.name for value in model.graph.input}
    defaults = [tensor.name for tensor in model.graph.initializer if tensor.name in inputs]
    return gf.compile(
        model, target=chosen, layouts=dict(pins), options=options, overridable=defaults
    )


def check(
    model: onnx.ModelProto,
    pins: Mapping[str, Any],
    *more: Arrays,
    stakes: bool | None = True,
    plain: bool = True,
    target: Any = None,
) -> gf.Executable:
    """Run against onnxruntime, natively, with each poison and where asked plain; an executable.

    `more` are inputs besides normally distributed ones.  `stakes` says whether the plan must (True)
    or must not (False) leave padding undefined or write a constant there; None: either.
    """
    treated = compile_pinned(model, pins, poison=True, target=target)
    choices = treated.compiled.plan.choices.values()
    padded = treated.poisoned > 0 or any(choice.pad_value is not None for choice in choices)
    assert stakes is None or padded is stakes, f"{treated.poisoned} elements are poisoned"
    untreated = compile_pinned(model, pins, target=target) if plain else treated
    for k, inputs in enumerate((normal_inputs(model), *more)):
        expected = reference(model, inputs)
        if plain:
            assert_all_same(untreated.run(inputs), expected, f"inputs {k}")
        for value in POISONS:
            assert_all_same(treated.run(inputs, poison=value), expected, f"inputs {k}, {value}")
    return untreated


@contextmanager
def no_masks() -> Iterator[None]:
    """While it lasts, reductions over padded axes have only the variants that run over the
    padding."""

    def bare(*given: Any) -> tuple[KernelVariant, ...]:
        found = kernel_variants(*given)
        return tuple(variant for variant in found if variant.demands) or found

    with mock.patch.object(variants, "kernel_variants", bare):
        yield


def family_outcomes(
    model: onnx.ModelProto, edges: Sequence[str], *more: Arrays, stakes: bool | None = True
) -> dict[str, str]:
    """For each padded family pinned on `edges`: `"right"`, or why it was refused.

    Where it is not refused it must be right.  A refusal names the node without such a variant, the
    pin and the variants there are."""
    found: dict[str, str] = {}
    for family in FAMILIES:
        try:
            check(model, dict.fromkeys(edges, family), *more, stakes=stakes,
                  plain=family == FAMILIES[0])  # fmt: skip
        except LayoutConflict as error:
            text = str(error)
            assert "has no variant with" in text and "pinned to" in text and "variants are" in text
            found[family] = text
        else:
            found[family] = "right"
    return found


def run_physical(lowered: Lowered, inputs: Arrays, undefined: float = np.nan) -> dict[str, Array]:
    """The outputs by name: each lowered kernel interpreted in the order of its calls.

    Memory is a list for each storage, filled with `undefined`, and for each workspace of a call; a
    kernel's parameters are parts of them, so that windows and fills see what was there before.
    """
    physical = lowered.physical
    memory: dict[str, list[Any]] = {}
    for name, spec in physical.storages.items():
        kind = np.dtype(spec.dtype)
        start = np.full(spec.elements, undefined if kind.kind == "f" else 0, kind)
        if spec.contents is not None:
            start = np.asarray(spec.contents).reshape(-1)
        elif name in inputs:
            start = np.asarray(inputs[name]).reshape(-1)
        assert start.size == spec.elements and start.dtype == kind, name
        memory[name] = list(start)
    for prepare in (True, False):
        for call, step in lowered.calls:
            if call.prepare is prepare:
                func = lowered.kernels[step.symbol].func
                places = [call.placements[p.buffer.name] for p in call.definition.params]
                given = [memory[p.storage][piece(p)] for p in places]
                for param in func.params[len(given) :]:
                    kind = np.dtype(param.buffer.dtype).type
                    given.append([kind(undefined)] * param.buffer.size)
                with np.errstate(all="ignore"):
                    compile_to_python(func, undefined=undefined)(*given)
                for place, contents, param in zip(
                    places, given[: len(places)], call.definition.params, strict=True
                ):
                    if param.role is Role.OUTPUT:
                        memory[place.storage][piece(place)] = contents
    found: dict[str, Array] = {}
    for name in physical.outputs:
        spec = physical.storages[f"output:{name}"]
        shape = physical.values[name].layout.logical_shape
        found[name] = np.array(memory[f"output:{name}"], spec.dtype).reshape(shape)
    return found
