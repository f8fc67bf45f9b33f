"""Tests of validation: correct kernels pass, and each kind of wrong kernel is found and named."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import CodegenError, VerifyError
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.cli import main
from graphflow.codegen import ObjectTask, compile_object, host_target, make_object
from graphflow.kernels.conversion import conversion, fill_region
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.interpolation import resize
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import selection
from graphflow.kernels.definitions.movements.segments import Segment, copied
from graphflow.kernels.definitions.reductions import normalization, reduction
from graphflow.kernels.definitions.windows import convolution, pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel
from graphflow.kernels.recipes import Placements, Staged
from graphflow.layout import blocked, channels_last_padded, row_major
from graphflow.models import ModelBuilder
from graphflow.models.zoo.single_patterns import PATTERNS, probe
from graphflow.pipeline import services
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.compiler_stages import validated
from graphflow.pipeline.request import CompileRequest
from graphflow.tir import Literal, PrimFunc, interpret, parse, to_text
from graphflow.validation import (
    Check,
    Elements,
    Evaluation,
    OverBudget,
    Unsolved,
    check_kernel,
    with_errors,
)
from graphflow.validation import check as check_module
from graphflow.validation import expected as expected_module
from graphflow.validation.check import Checker
from support.fuzz.fuzz_cases import compile_case, make_case
from support.schedules.scheduled_chains import offer_packed_relu, packed_relu_model
from support.seeds import seeds

SHAPE = (1, 6, 3, 4)
PADDED = channels_last_padded(SHAPE, 8)
SAME, TWICE = (
    resize.Coordinates(Fraction(1), Fraction(0)),
    resize.Coordinates(Fraction(1, 2), Fraction(-1, 4)),
)


# Single elements --------------------------------------------------------------------------------

DEFINITIONS: dict[str, PrimFunc] = {
    "convolution": convolution.convolution(
        SHAPE, (4, 3, 3, 3), Window.of((3, 3), pads=[1, 1, 1, 1]), groups=2, bias=True
    ),
    "transposed": convolution.transposed_convolution(
        SHAPE, (6, 2, 3, 3), (7, 9), strides=[2, 2], groups=2
    ),
    "gather": selection.gather(SHAPE, 1, [4, 2, 0, 1, 5]),
    "segments": copied(
        [SHAPE, SHAPE], [Segment(0, 0, 2, 1, 1, 4), Segment(1, 1, 2, 0, 1, 4)], "float32"
    ),
    "softmax": reduction.softmax(SHAPE, [1]),
    "log_sum_exp": reduction.log_sum_exp(SHAPE, [2, 3]),
    "layer": normalization.layer_normalization(SHAPE, 2, (3, 4), (3, 4)),
    "group": normalization.group_normalization(SHAPE, 3, 6),
    "lrn": normalization.local_response_normalization(SHAPE, 3),
    "resize": resize.resize_linear(SHAPE, (1, 6, 6, 8), [SAME, SAME, TWICE, TWICE]),
    "mean": pooling.average_pool(SHAPE, Window.of([2, 2], pads=[1, 0, 0, 1])),
    "argmax": reduction.arg_reduce("max", SHAPE, 1, last=True),
    "gemm": linear.gemm((3, 5), (5, 4), (4,), alpha=0.5, beta=2.0),
    "reflect": selection.pad(SHAPE, (0, 0, 2, 1), (0, 0, 1, 3), "reflect"),
    "crop": selection.pad(SHAPE, (0, 1, -1, 0), (0, 2, 0, 1), value=3.0),
    "blocks": selection.depth_to_space((1, 8, 2, 3), 2),
    "scalar": reduction.reduce("sum", (3, 4), [0, 1], keepdims=False),
    "integers": elementwise.binary("div", (5,), (3, 1), "int8"),
    "pack": conversion(row_major(SHAPE), PADDED, "float32", Literal(2.0, "float32")),
    "window": conversion(row_major(SHAPE), PADDED.halo((0, 1, 0, 0), (0, 0, 2, 0)), "float32"),
    "fill": fill_region(PADDED, PADDED.region("pad(1)"), "float32", Literal(7.0, "float32")),
}
UNTOUCHED = -1234.5


def random_arrays(func: PrimFunc) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {b.name: rng.integers(-4, 5, b.shape).astype(b.dtype) for b in func.inputs}


def evaluation(func: PrimFunc, arrays: dict[str, Any], limit: int = 10**6) -> Evaluation:
    flat = {name: array.reshape(-1) for name, array in arrays.items()}
    return Evaluation(Elements.of(func), flat, limit)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_single_elements_are_those_of_the_whole(name: str) -> None:
    func = DEFINITIONS[name]
    arrays = random_arrays(func)
    whole = interpret(func, arrays, undefined=UNTOUCHED)
    (output,) = func.outputs
    single = evaluation(func, arrays)
    with np.errstate(all="ignore"):  # the last one first: nothing may rest on the order
        found = [single.element(output, k) for k in reversed(range(output.size))]
    for value, expected in zip(reversed(found), whole[output.name].reshape(-1), strict=True):
        if value is None:
            assert expected == UNTOUCHED
        else:
            assert value.tobytes() == expected.tobytes()


def test_an_element_costs_what_it_needs() -> None:
    func = convolution.convolution((1, 64, 50, 50), (32, 64, 3, 3))
    arrays = random_arrays(func)
    (output,) = func.outputs
    single = evaluation(func, arrays, limit=2 * (64 * 9 + 1))
    assert single.element(output, 5) is not None and single.element(output, 99) is not None
    with pytest.raises(OverBudget):
        single.element(output, 7)


ACCUMULATED = """
@primfunc
def f(x: f32[4, 3], y: out[f32[3]]):
    for i in serial(0, 3):
        y[i] = f32(0.0)
    for k in serial(0, 4):
        for j in serial(0, 3):
            y[j] += x[k, j]
"""
OVERWRITTEN = """
@primfunc
def f(x: f32[3], y: out[f32[3]], z: out[f32[3]]):
    for i in serial(0, 3):
        y[i] = x[i]
    for j in serial(0, 3):
        z[j] = y[j]
    for k in serial(0, 3):
        y[k] = f32(1.0)
"""
SHIFTED = """
@primfunc
def f(x: f32[4], y: out[f32[4]]):
    for i in serial(0, 4):
        y[i] = x[i]
    for j in serial(1, 4):
        y[j] = y[j - 1]
"""
HIDDEN = """
@primfunc
def f(x: f32[4], y: out[f32[4]]):
    for i in serial(0, 4):
        for j in serial(0, 2):
            y[i] = x[i]
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ACCUMULATED, "loops over j are not the outermost"),
        (OVERWRITTEN, "y is read before it is complete"),
        (SHIFTED, "y is read before it is complete"),
    ],
)
def test_what_is_not_made_of_stages_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Unsolved, match=reason):
        Elements.of(parse(text))


def test_loops_of_one_iteration_may_stand_anywhere() -> None:
    func = parse("""
@primfunc
def f(x: f32[4, 3], y: out[f32[3]]):
    for k in serial(2, 3):
        for j in serial(0, 3):
            y[j] = x[k, j]
""")
    single = evaluation(func, {"x": np.arange(12, dtype="float32").reshape(4, 3)})
    assert single.element(func.outputs[0], 1) == 7.0


def test_a_loop_that_repeats_a_store_is_run_as_it_stands() -> None:
    func = parse(HIDDEN)
    single = evaluation(func, {"x": np.arange(4, dtype="float32")})
    assert single.element(func.outputs[0], 3) == 3.0


# Error bounds -----------------------------------------------------------------------------------


def bounds_of(func: PrimFunc, arrays: dict[str, Any]) -> tuple[Any, Any]:
    bounded, buffers = with_errors(func)
    (output,) = func.outputs
    found = interpret(bounded, arrays)
    return found[output.name], found[buffers[output].name]


def test_exact_sums_of_products_leave_no_tolerance() -> None:
    func = DEFINITIONS["convolution"]
    assert not np.any(bounds_of(func, random_arrays(func))[1])


@pytest.mark.parametrize("name", ["convolution", "softmax", "log_sum_exp", "layer", "lrn", "mean"])
def test_bounds_hold_in_double_precision(name: str) -> None:
    func = DEFINITIONS[name]
    rng = np.random.default_rng(1)
    arrays = {b.name: rng.standard_normal(b.shape).astype("float32") for b in func.inputs}
    values, bounds = bounds_of(func, arrays)
    wide = parse(to_text(func).replace("f32", "f64"))
    exact = interpret(wide, {name: array.astype("float64") for name, array in arrays.items()})
    error = np.abs(exact[func.outputs[0].name] - values)
    assert np.any(error) and np.all(error <= bounds)
    assert np.all(bounds < 1e-4 * np.maximum(np.abs(values), 1.0))


@pytest.mark.parametrize(
    "func",
    [
        pooling.max_pool(SHAPE, Window.of([2, 2])),
        DEFINITIONS["argmax"],
        elementwise.unary("relu", SHAPE),
    ],
)
def test_what_only_chooses_has_no_bounds(func: PrimFunc) -> None:
    assert not with_errors(func)[1]


def test_where_rounding_decides_nothing_is_claimed() -> None:
    text = """
@primfunc
def f(x: f32[2], y: out[f32[2]]):
    t = alloc(f32[2])
    for i in serial(0, 2):
        t[i] = x[i] * f32(0.1)
    for j in serial(0, 2):
        y[j] = select(data(t[j] < f32(0.3)), f32(1.0), f32(2.0))
"""
    _, bounds = bounds_of(parse(text), {"x": np.array([3.0, 7.0], "float32")})
    assert np.isinf(bounds[0]) and bounds[1] == 0.0


# Mutants of one kernel --------------------------------------------------------------------------


def lowered(
    definition: PrimFunc, placements: Placements = (), change: Callable[[str], str] = str
) -> LoweredKernel:
    """The kernel of a definition, its text changed behind the compiler's back."""
    task = KernelTask("k0", definition, placements, Staged(), host_target())
    kernel = make_kernel(task, Trace(Options()))
    return replace(kernel, func=parse(change(to_text(kernel.func))))


def checked(kernel: LoweredKernel) -> Check:
    code = compile_object(kernel.func, kernel.symbol, host_target())
    return check_kernel((kernel, code), Trace(Options()))


def swap(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text, text
        return text.replace(old, new)

    return change


def padded(pad_x: float | str = "undef", pad_y: float | str | None = 3.0) -> Placements:
    return (("x", PADDED, pad_x), ("y", PADDED, pad_y))


POOL, SUM = (
    pooling.max_pool(SHAPE, Window.of([3, 3], pads=[1, 1, 1, 1])),
    reduction.reduce("sum", SHAPE, [1]),
)
SUMMED: Placements = (("x", PADDED, "undef"), ("y", row_major((1, 1, 3, 4)), None))
RELU = elementwise.unary("relu", SHAPE)
PACK = DEFINITIONS["pack"]


@pytest.mark.parametrize(
    ("definition", "placements"),
    [
        (POOL, padded()), (SUM, SUMMED), (RELU, padded(0.0, "undef")), (PACK, ()),
        (DEFINITIONS["softmax"], padded()), (DEFINITIONS["fill"], ()), (DEFINITIONS["window"], ()),
        (DEFINITIONS["integers"], ()), (DEFINITIONS["argmax"], ()), (DEFINITIONS["layer"], ()),
        (RELU, (("x", blocked(SHAPE, 1, 4), "undef"), ("y", row_major(SHAPE), None))),
    ],
)  # fmt: skip
def test_correct_kernels_pass(definition: PrimFunc, placements: Placements) -> None:
    check = checked(lowered(definition, placements))
    assert check.difference is None and check.method == "all" and check.unjudged == 0
    assert check.rounds == ("ordinary", "special")
    assert check.compared == 2 * sum(b.size for b in definition.outputs)


WINDOWED: Placements = (("x", row_major(SHAPE), None), ("y", PADDED, None))
NEGATIVE = elementwise.unary("neg", SHAPE)

ELEMENT = "x[0, i1, i2, i3]"
ONLY_ABOVE_ZERO = swap(f"< f32(0.0)), f32(0.0), {ELEMENT}", f"> f32(0.0)), {ELEMENT}, f32(0.0)")

MUTANTS: dict[str, tuple[PrimFunc, Placements, Callable[[str], str], str]] = {
    "another place": (
        SUM,
        SUMMED,
        swap("x[0, i2_i3 // 4, i2_i3 % 4, r0]", "x[0, i2_i3 // 4, 0, r0]"),
        r"y\[0, 0, 0, 1\] \(place \[0, 0, 0, 1\] of NCHW\) must be \S+ and is \S+; 8 of the 12 ",
    ),
    "one term too few": (SUM, SUMMED, swap("vectorized(0, 6)", "vectorized(0, 5)"), "must be"),
    "undefined padding": (
        SUM,
        SUMMED,
        swap("vectorized(0, 6)", "vectorized(0, 7)"),
        "depends on padding that is undefined",
    ),
    "no beginning": (
        SUM,
        SUMMED,
        lambda text: without_line(text, "f32(0.0)"),
        "depends on what its output held before",
    ),
    "a guard dropped": (POOL, padded(), swap("kh_rest < 2", "kh_rest < 3"), "must be"),
    "padding forgotten": (
        RELU,
        padded(),
        swap("vectorized(6, 8)", "vectorized(6, 7)"),
        r"the padding of y at \[0, 0, 0, 7\] .* must hold 3.0 and holds -1234.5, as do 12 of",
    ),
    "another padding": (
        RELU,
        padded(),
        swap("f32(3.0)", "f32(-3.0)"),
        "must hold 3.0 and holds -3.0, as do 24 of 24",
    ),
    "not its own": (
        RELU,
        WINDOWED,
        swap("vectorized(0, 6)", "vectorized(0, 8)"),
        r"to place \[0, 0, 0, 6\] of NHWC.* of y, which is not its own, and to 23 more",
    ),
    "elements missing": (
        RELU,
        padded(),
        swap("vectorized(0, 6)", "vectorized(0, 5)"),
        r"y\[0, 5, 0, 0\] \(place \[0, 0, 0, 5\] .*never written, as are 12 of 72",
    ),
    "behind its memory": (
        PACK,
        (),
        swap("p2 in serial(0, 4)", "p2 in serial(0, 5)"),
        "0 bytes behind the memory of dst",
    ),
    "before its memory": (
        PACK,
        (),
        swap("p2 in serial(0, 4)", "p2 in serial(-1, 4)"),
        "bytes before the memory of dst",
    ),
    "places to be left alone": (
        DEFINITIONS["fill"],
        (),
        swap("vectorized(6, 8)", "vectorized(5, 8)"),
        r"dst\[0, 0, 0, 5\] .* must be left alone and is 7.0",
    ),
    "an input written": (
        NEGATIVE,
        (),
        lambda text: swap("x: f32[1, 6, 3, 4]", "x: out[f32[1, 6, 3, 4]]")(
            text + "            x[0, i1, 0, 0] = f32(1.0)\n"
        ),
        "writes to its input x",
    ),
    "another slice's results": (
        NEGATIVE,
        (),
        swap("-x[0, i1, i2, i3]", "select(i1 >= 1, y[0, max(i1 - 1, 0), i2, i3], x[0, 0, i2, i3])"),
        "depends on the slices in which its parallel loop is run",
    ),
    "the sign of zero": (
        NEGATIVE,
        (),
        swap("= -x[0", "= f32(0.0) - x[0"),
        "must be -0.0 and is 0.0",
    ),
    "NaN lost": (RELU, (), ONLY_ABOVE_ZERO, r"must be (nan|-0.0) and is 0.0; .*\(special inputs\)"),
    "a function too coarse": (
        elementwise.unary("exp", SHAPE),
        (),
        swap(f"exp({ELEMENT})", f"exp({ELEMENT} * f32(1.000001))"),
        "give or take",
    ),
}


def without_line(text: str, part: str) -> str:
    return "\n".join(line for line in text.splitlines() if part not in line)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str) -> None:
    definition, placements, change, message = MUTANTS[name]
    assert checked(lowered(definition, placements)).difference is None
    check = checked(lowered(definition, placements, change))
    assert check.difference is not None
    assert re.search(message, check.difference), check.difference


def test_a_constant_that_may_be_assumed_is_there() -> None:
    """A maximum over the whole box is right where the padding is −∞, and wrong elsewhere."""
    largest = reduction.reduce("max", SHAPE, [1])
    output = ("y", row_major((1, 1, 3, 4)), None)
    boxed = swap("vectorized(0, 6)", "vectorized(0, 8)")
    assert (
        checked(lowered(largest, (("x", PADDED, float("-inf")), output), boxed)).difference is None
    )
    for pad_x in (5.0, "undef"):
        assert checked(lowered(largest, (("x", PADDED, pad_x), output), boxed)).difference


def test_padding_that_the_plan_relies_on_must_follow_from_the_definition() -> None:
    """`undef` asks nothing of the padding, but what flow concluded of it has to hold."""
    whole_box = swap("i1 in vectorized(0, 6)", "i1 in vectorized(0, 8)")
    right = lowered(RELU, padded("undef", "undef"), whole_box)
    wrong = lowered(
        RELU,
        padded("undef", "undef"),
        lambda text: whole_box(text).replace("f32(0.0), x[", "f32(0.0), f32(1.0) * x[")
        .replace("f32(1.0) * x[0, i2, i3, i1])", "select(i1 < 6, x[0, i2, i3, i1], f32(1.0)))"),
    )  # fmt: skip
    for kernel in (right, wrong):
        assert checked(kernel).difference is None
    claimed = [
        replace(k, task=replace(k.task, claimed="relu: the variant")) for k in (right, wrong)
    ]
    assert checked(claimed[0]).difference is None
    assert "the padding of y at [0, 0, 0, 6]" in str(checked(claimed[1]).difference)


# Samples ----------------------------------------------------------------------------------------

BIG = (1, 20, 40, 40)
LARGE = pooling.max_pool(BIG, Window.of([3, 3], pads=[1, 1, 1, 1]))
PLACES: Placements = tuple(
    (n, channels_last_padded(BIG, 32), v) for n, v in (("x", "undef"), ("y", 3.0))
)


def test_remainders_are_among_the_samples() -> None:
    """Only the last element of some 32,000 is wrong."""
    right = lowered(LARGE, PLACES)
    check = checked(right)
    assert check.difference is None and check.method == "sampled"
    assert 0 < check.compared < 2 * LARGE.outputs[0].size
    text = to_text(right.func)
    last = '    with block("spoil"):\n        y[0, 39, 39, 19] = f32(0.125)\n'
    wrong = checked(replace(right, func=parse(text + last)))
    assert "y[0, 19, 39, 39]" in str(wrong.difference)


def test_what_cannot_be_afforded_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "MOST_BYTES", 1000)
    check = checked(lowered(LARGE, PLACES))
    assert check.method == "none" and check.difference is None and "MB" in str(check.reason)


def test_large_kernels_go_without_special_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "MOST_SPECIAL_BYTES", 1000)
    check = checked(lowered(LARGE, PLACES))
    assert check.rounds == ("ordinary",) and check.difference is None


def test_logarithms_are_taken_of_positive_numbers() -> None:
    func = elementwise.unary("log", SHAPE)
    check = checked(lowered(func))
    assert check.difference is None and check.compared > 0 and not check.unjudged
    found = Checker(lowered(func), compile_object(lowered(func).func, "k0", host_target()))
    arrays, expected = found.ordinary()
    assert np.all(arrays["x"] > 0) and found.positive
    assert all(np.isfinite(value) for value in expected[func.outputs[0]].values())


def test_an_element_may_be_too_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_module, "MOST", 5)
    check = checked(lowered(LARGE, PLACES))
    assert check.method == "none" and "one element takes more" in str(check.reason)


def test_definitions_that_cannot_be_sampled_are_run_whole_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    func = parse(ACCUMULATED)
    monkeypatch.setattr(expected_module, "ALL", 10)
    assert checked(lowered(func)).method == "all"
    monkeypatch.setattr(expected_module, "ALL_OR_NOTHING", 10)
    check = checked(lowered(func))
    assert check.method == "none" and "all takes 15 iterations" in str(check.reason)


def test_checks_are_the_same_each_time() -> None:
    kernel = lowered(DEFINITIONS["softmax"], padded())
    assert checked(kernel) == checked(kernel)
    renamed = replace(kernel, symbol="k7", func=replace(kernel.func, name="k7"))
    assert replace(checked(renamed), symbol="k0") == checked(kernel)


# Programs ---------------------------------------------------------------------------------------


def network() -> onnx.ModelProto:
    """Convolutions of odd channel counts, a pool, a residual sum, softmax."""
    build = ModelBuilder(seed=3, name="network")
    x = build.input("x", (1, 3, 10, 10))
    x = build.relu(build.conv(x, 18, 3, pads=[1, 1, 1, 1]))
    y = build.relu(build.conv(x, 18, 3, pads=[1, 1, 1, 1]))
    z = build.node("MaxPool", [build.add(x, y)], ["pooled"], kernel_shape=[3, 3])
    build.output(build.node("Softmax", [build.conv(z, 7, 1)], ["y"], axis=1))
    return build.model()


def here(**more: Any) -> Options:
    return Options(workers=0, threads=1, **more)


def test_a_program_is_validated_and_says_so() -> None:
    exe = gf.compile(network(), options=here(validate=True))
    found = exe.report()["validation"]
    assert found["kernels"] == len(exe.compiled.lowered.kernels)
    assert found["all_elements"] + found["sampled"] == found["kernels"]
    assert found["not_validated"] == [] and found["compared_elements"] > 0
    assert "validate" in exe.compiled.timings["steps"]


def test_nothing_is_run_unless_asked_for() -> None:
    exe = gf.compile(network(), options=here())
    assert exe.compiled.validation is None and exe.report()["validation"] is None


def test_worker_processes_give_the_same_checks() -> None:
    alone = compile_graph(CompileRequest(network(), options=here(validate=True))).validation
    helped = compile_graph(
        CompileRequest(network(), options=Options(threads=1, workers=2, validate=True))
    ).validation
    assert alone is not None and helped is not None and alone.checks == helped.checks


def spoiled(monkeypatch: pytest.MonkeyPatch, part: str, change: Callable[[str], str]) -> list[str]:
    """From now on kernels whose text has `part` are miscompiled; gives their symbols."""
    symbols: list[str] = []

    def make(task: ObjectTask, trace: Trace) -> bytes:
        func, symbol, target = task
        text = to_text(func)
        if part in text and change(text) != text:
            symbols.append(symbol)
            task = (parse(change(text)), symbol, target)
        return make_object(task, trace)

    monkeypatch.setattr(services, "make_object", make)
    return symbols


def test_the_kernel_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = spoiled(monkeypatch, "exp(", swap("exp(", "tanh("))
    with pytest.raises(VerifyError) as caught:
        gf.compile(network(), options=here(validate=True))
    message = str(caught.value)
    assert message.startswith("1 of ") and len(symbols) == 1
    assert f"{symbols[0]} (" in message and "variant " in message
    assert "y[0, 0, 0, 0]" in message and "must be" in message
    assert f"--dump DIR (Options(dump=DIR)) and look at DIR/kernels/{symbols[0]}.*" in message
    assert "in stage validate" in caught.value.__notes__


def test_all_kernels_that_differ_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def shifted(text: str) -> str:
        return re.sub(r"(dst\[[^=]*\] = )(src)", r"\1f32(1.0) + \2", text)

    symbols = spoiled(monkeypatch, "src: f32", shifted)
    with pytest.raises(VerifyError) as caught:
        gf.compile(network(), options=here(validate=True, dump=str(tmp_path)))
    assert len(symbols) > 1 and f"{tmp_path}/kernels/{symbols[0]}.*" in str(caught.value)
    assert all(f"  {symbol} (" in str(caught.value) for symbol in symbols)


def test_a_processor_that_cannot_run_them_is_refused() -> None:
    target = replace(host_target(), features="+feature-of-tomorrow")
    compiled = compile_graph(CompileRequest(network(), options=here()))
    objects = dict(compiled.spec.objects)
    request = CompileRequest(network(), target=target, options=here(validate=True))
    with pytest.raises(CodegenError, match=r"the program to validate .* lacks feature-of-tomorrow"):
        validated(compiled.lowered, objects, request, checks_here)


def checks_here(tasks: Mapping[str, tuple[LoweredKernel, bytes]]) -> dict[str, Check]:
    trace = Trace(Options())
    return {symbol: check_kernel(task, trace) for symbol, task in tasks.items()}


def test_the_command_line_validates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, saved = str(tmp_path / "n.onnx"), tmp_path / "n.gfx"
    onnx.save(network(), path)
    command = ["compile", path, "--threads", "1", "--validate", "-o", str(saved)]
    assert main(command) == 0 and saved.exists()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("validated ") for line in lines) == 1
    assert gf.load(saved).report()["validation"]["kernels"] > 0
    saved.unlink()
    spoiled(monkeypatch, "exp(", swap("exp(", "tanh("))
    assert main(command) == 1 and not saved.exists()
    assert "differ from their definitions" in capsys.readouterr().err


def test_kernels_that_a_user_scheduled_are_validated() -> None:
    exe = gf.compile(packed_relu_model(), offers=offer_packed_relu, options=here(validate=True))
    assert "as scheduled" in str(exe.explain("r"))
    assert exe.report()["validation"]["not_validated"] == []


@pytest.mark.parametrize(
    "pattern",
    [pytest.param(p, marks=[pytest.mark.slow] * (k % 3 > 0)) for k, p in enumerate(PATTERNS)],
)
def test_the_probes_of_the_zoo_are_validated(pattern: str) -> None:
    """`.ci/run` validates networks that are made of all of these patterns."""
    model = probe(pattern, 20, seed=1)
    validation = compile_graph(CompileRequest(model, options=here(validate=True))).validation
    assert validation is not None and not validation.skipped
    assert sum(check.unjudged for check in validation.checks) == 0


@pytest.mark.parametrize("seed", seeds(6, 12))
def test_random_graphs_in_padded_layouts_are_validated(seed: int) -> None:
    """The networks of the zoo have next to no padding; random prices give plans that do."""
    compiled = compile_case(make_case(seed)).compiled
    objects = dict(compiled.spec.objects)
    request = CompileRequest(b"", target=compiled.target, options=here(validate=True))
    found = validated(compiled.lowered, objects, request, checks_here)
    assert found is not None and not found.skipped
