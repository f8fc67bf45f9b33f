"""Kernels with configuration state and memories of an accelerator, run natively."""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError, VerifyError
from graphflow.codegen import avx2_target, host_target, instruction
from graphflow.kernels.recipes.schedules.on_host import on_host
from graphflow.schedule import Schedule, require_memories, set_memory
from graphflow.tir import PrimFunc, calls_in, fields_of, interpret, loops_of, parse, to_text, verify
from support.schedules.accelerator import ACC, MATMUL, SPAD, mapped, scheduled_matmul, tiled

HEAD = "mode = config(act=i32)\n\n@primfunc\ndef k(x: i32[4], y: out[i32[4]]):\n    "


def matrices() -> tuple[dict[str, Any], Any]:
    random = np.random.default_rng(0)
    given = {name: random.integers(-128, 128, (12, 12)).astype("int8") for name in "ab"}
    product = given["a"].astype("int32") @ given["b"].astype("int32")
    return given, np.maximum(3 * product, 0)


def run(func: PrimFunc) -> tuple[Any, dict[str, Any]]:
    state: dict[str, Any] = {}
    return interpret(func, matrices()[0], state=state)["y"], state


def test_a_matmul_on_an_accelerator_by_primitives_alone() -> None:
    before, after = mapped(), scheduled_matmul()
    names = [call.definition.name for call in calls_in(after.func.body)]
    assert names == [
        "zero", "set_accumulate", "load", "preload", "load", "product", "set_relu", "store"
    ]  # fmt: skip
    for s in (tiled(), before, after):
        verify(s.func, "scheduled")
        np.testing.assert_array_equal(run(s.func)[0], matrices()[1])
    # The state is set three times, where it was set once for each of 27 and 9 and 9 tiles.
    assert run(before.func)[1] == run(after.func)[1]
    assert "            set_accumulate(1)" in to_text(before.func)
    assert "\n    set_accumulate(1)" in to_text(after.func)
    assert set(after.fields) == {"array.accumulate", "output.scale", "output.relu"}
    assert len(require_memories(after.func)) == 7


def test_it_runs_natively_by_the_definitions_of_its_instructions() -> None:
    given, expected = matrices()
    for s in (Schedule.of(MATMUL), scheduled_matmul()):
        np.testing.assert_array_equal(gf.build(s).run(given)["y"], expected)


def test_memories_are_checked_before_code_is_generated() -> None:
    s = tiled()
    with pytest.raises(GraphflowError, match=r"access: t\[.*\] is stored in acc, which only zero"):
        gf.build(s)
    s = mapped().apply(set_memory, "t", "global")
    with pytest.raises(GraphflowError, match="caller: zero takes to in acc, and gets t in global"):
        gf.build(s)
    with pytest.raises(GraphflowError, match="capacity: spad has 64 bytes, and buffers of 608 by"):
        gf.build(s.apply(set_memory, "t", SPAD))
    assert s.apply(set_memory, "t", ACC).func == mapped().func


def test_a_kernel_on_the_host_has_neither() -> None:
    func = on_host(scheduled_matmul().func)
    assert fields_of(func) == () and not calls_in(func.body)
    verify(func, "scheduled")
    np.testing.assert_array_equal(interpret(func, matrices()[0])["y"], matrices()[1])
    assert on_host(MATMUL) is MATMUL


def test_state_that_nothing_keeps_between_kernels_is_refused() -> None:
    func = parse(HEAD + "for i in serial(0, 4):\n        y[i] = x[i] * mode.act")
    with pytest.raises(VerifyError, match=r"mode\.act at i=0 may see what it held before, and a"):
        on_host(func)
    for kernel in (func, Schedule.of(func)):
        with pytest.raises(VerifyError, match=r"a program keeps no state .* give mode\.act as"):
            gf.build(kernel)


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_state_that_outlives_a_kernel_is_passed_to_it(target: gf.Target) -> None:
    """By an `inout` parameter, beside a scalar; the interpreter keeps the field itself."""
    body = """for i in serial(0, n):
            y[i] = select(data(mode.act == i32(1)), max(x[i], i32(0)), x[i])
        mode.act = max(i32(1) - mode.act, index(n - 3, i32))"""
    text = f"""
    mode = config(act=i32)

    @primfunc
    def toggle(x: i32[4], y: inout[i32[4]], {{}}n: index):
        assume(unless(n >= 0 and n <= 4), bool(False))
        {{}}{body}
        {{}}
    """
    kept = gf.kernel(text.format("", "", "").rstrip())
    passed = text.format(
        "act: inout[i32[()]], ", "mode.act = act[()]\n        ", "act[()] = mode.act"
    )
    exe = gf.build(passed, target=target)
    x, y = np.array([-1, 2, -3, 4], "int32"), np.zeros(4, "int32")
    act, state = np.array(1, "int32"), {"mode.act": np.int32(1)}
    for n in (3, 4, 1, 2):
        wanted = interpret(kept, {"x": x, "y": y}, scalars={"n": n}, state=state)["y"]
        found = exe.run({"x": x, "y": y, "act": act, "n": n})
        act = found["act"]
        assert (found["y"] == wanted).all() and act == state["mode.act"]


def test_what_is_assumed_of_state_is_proven() -> None:
    claim = "assume(unless(False), mode.act == i32(1))\n    y[0] = x[0]"
    func = on_host(parse(HEAD + "mode.act = i32(1)\n    " + claim))
    assert "assume" not in to_text(func)
    for before in ("mode.act = i32(2)", "mode.act = x[0]"):
        with pytest.raises(VerifyError, match=r"assumes of mode\.act is not proven"):
            on_host(parse(HEAD + before + "\n    " + claim))


AVERAGE = """
def average(to: out[u8[32]], a: u8[32], b: u8[32]):
    for l in serial(0, 32):
        to[l] = cast(u8, cast(u16, a[l]) + cast(u16, b[l]) + u16(1) >> u16(1))
"""


@pytest.mark.parametrize(
    ("mark", "kept"),
    [('@instruction(llvm="llvm.x86.avx2.pavg.b", feature="avx2")', True), ("@primfunc", False)],
)
def test_calls_of_instructions_stay_calls(mark: str, kept: bool) -> None:
    """Those that name an operation of LLVM do; other calls become statements."""
    func = parse("@primfunc" + AVERAGE.replace("average", "k"))
    s = Schedule.of(func).replace("l", parse(mark + AVERAGE))
    assert calls_in(s.func.body)
    assert bool(calls_in(on_host(s.func).body)) is kept


def test_calls_of_known_instructions_stay_calls() -> None:
    fma = instruction("fma8")
    text = to_text(fma).split("def fma8", 1)[1]
    s = Schedule.of(parse("@primfunc\ndef k" + text))
    s = s.replace(next(loops_of(s.func.body)).var.name, fma)
    assert calls_in(on_host(s.func).body)
