"""Products in matrix registers: the code of them, and which sums stay in registers."""

import ctypes
import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.errors import CodegenError
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import emit_ir, host_target, instruction, matrix_product, multiplies_matrices
from graphflow.codegen.instruction_set import is_instruction
from graphflow.codegen.matrices import is_matrix_product, sums_of_products
from graphflow.llvm import host_features as features_of_host
from graphflow.schedule import Schedule, replace
from graphflow.tir import interpret
from support.kernels.integer_products import without_matrices
from support.native import Native

TARGET = PROCESSORS["sapphirerapids"]


def product(
    rows: int = 28, columns: int = 32, steps: int = 4, of_row: str = "14*i", register: int = 14
) -> tir.PrimFunc:
    """A product in matrices of `register` rows that begin at `of_row`, 16 groups and 16 columns."""
    func = tir.parse(f"""
    @primfunc
    def f(x: u8[{rows}, {64 * steps}], w: i8[{16 * steps}, {columns}, 4], y: inout[i32[{rows}, {columns}]]):
        for k in serial(0, {steps}):
            for i in unrolled(0, 2):
                for j in unrolled(0, {columns // 16}):
                    for m in serial(0, {register}):
                        for v in serial(0, 16):
                            for g in serial(0, 16):
                                for b in serial(0, 4):
                                    y[{of_row} + m, 16*j + v] += cast(i32, x[{of_row} + m, 64*k + 4*g + b]) * cast(i32, w[16*k + g, 16*j + v, b])
    """)  # noqa: E501
    return Schedule.of(func).apply(replace, "m", matrix_product(register, 16)).func


def moves(func: tir.PrimFunc, target: object = TARGET) -> dict[str, int]:
    """How often each AMX intrinsic is called in the code of a kernel."""
    text = emit_ir(func, "f", target)  # type: ignore[arg-type]
    names = re.findall(r"call void @llvm\.x86\.(\w+)", text)
    return {name: names.count(name) for name in dict.fromkeys(names)}


def feeds(func: tir.PrimFunc) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x, w, y = (p.buffer for p in func.params)
    return {
        "x": rng.integers(0, 256, x.shape).astype("uint8"),
        "w": rng.integers(-128, 128, w.shape).astype("int8"),
        "y": rng.integers(-999, 999, y.shape).astype("int32"),
    }


def test_sums_stay_in_registers_while_a_loop_runs() -> None:
    """Four sums are loaded before the loop, and two operands of each side in it."""
    assert moves(product()) == {
        "ldtilecfg": 1, "tileloadd64": 4 + 4, "tdpbusd": 4, "tilestored64": 4, "tilerelease": 1,
    }  # fmt: skip


def test_sums_that_overlap_are_stored_in_each_iteration() -> None:
    """The two of one i stay in registers for both j, with the operand that these share."""
    func = product(of_row="13*i")
    assert moves(func)["tilestored64"] == 4 and moves(func)["tileloadd64"] == 2 * (2 + 3)


def test_more_sums_than_registers_are_stored_in_each_iteration() -> None:
    func = product(columns=64)
    assert moves(func)["tilestored64"] == 8


def test_sums_that_a_loop_moves_along_do_not_stay() -> None:
    func = tir.parse("""
    @primfunc
    def f(x: u8[64, 64], w: i8[16, 16, 4], y: inout[i32[64, 16]]):
        for i in serial(0, 4):
            for m in serial(0, 16):
                for v in serial(0, 16):
                    for g in serial(0, 16):
                        for b in serial(0, 4):
                            y[16*i + m, v] += cast(i32, x[16*i + m, 4*g + b]) * cast(i32, w[g, v, b])
    """)  # noqa: E501
    made = Schedule.of(func).apply(replace, "m", matrix_product(16, 16)).func
    loop = next(iter(tir.loops_of(made.body)))
    assert sums_of_products(loop) is None
    assert moves(made)["tileloadd64"] == 3


def test_registers_have_one_shape_in_a_function() -> None:
    parts = [
        f"""
        for m{rows} in serial(0, {rows}):
            for v{rows} in serial(0, 16):
                for g{rows} in serial(0, 16):
                    for b{rows} in serial(0, 4):
                        y[m{rows}, v{rows}] += cast(i32, x[m{rows}, 4*g{rows} + b{rows}]) * cast(i32, w[g{rows}, v{rows}, b{rows}])"""  # noqa: E501
        for rows in (16, 15, 14, 13, 12, 11, 10, 9)
    ]
    head = "@primfunc\ndef f(x: u8[16, 64], w: i8[16, 16, 4], y: inout[i32[16, 16]]):\n"
    body = "\n".join(line[4:] for part in parts for line in part.split("\n") if line)
    s = Schedule.of(tir.parse(head + body))
    for rows in (16, 15, 14, 13, 12, 11, 10, 9):
        s = s.apply(replace, f"m{rows}", matrix_product(rows, 16))
    with pytest.raises(CodegenError, match=r"matrices of \d+ rows of 64 bytes need a register"):
        emit_ir(s.func, "f", TARGET)


@pytest.mark.parametrize("of_row", ["14*i", "13*i"])
def test_products_are_those_of_their_definition(of_row: str) -> None:
    """In matrix registers where this processor has them, and without."""
    func = product(of_row=of_row)
    given = feeds(func)
    expected = interpret(func, given)["y"]
    for target in (host_target(), without_matrices(host_target())):
        np.testing.assert_array_equal(Native(func, target)(given)["y"], expected)


def test_targets_without_matrix_registers_execute_the_definition() -> None:
    assert moves(product(), without_matrices(TARGET)) == {}
    assert not multiplies_matrices(without_matrices(TARGET))


def test_names_of_products() -> None:
    assert instruction("matrix_product_14x16") == matrix_product(14, 16)
    assert is_instruction(matrix_product(2, 2))
    for name in ("matrix_product_17x16", "matrix_product_1x16", "matrix_product_16x17", "matrix"):
        with pytest.raises(KeyError, match="2 to 16 rows and groups"):
            instruction(name)


BRAIN = ("bfloat16", "bfloat16")


def brain_product(rows: int = 28, steps: int = 3) -> tir.PrimFunc:
    """A product of bfloat16 numbers in two registers of rows by two of columns."""
    func = tir.parse(f"""
    @primfunc
    def f(x: bf16[{rows}, {32 * steps}], w: bf16[{16 * steps}, 32, 2], y: inout[f32[{rows}, 32]]):
        for k in serial(0, {steps}):
            for i in unrolled(0, 2):
                for j in unrolled(0, 2):
                    for m in serial(0, 14):
                        for v in serial(0, 16):
                            for g in serial(0, 16):
                                for b in serial(0, 2):
                                    y[14*i + m, 16*j + v] += cast(f32, x[14*i + m, 32*k + 2*g + b]) * cast(f32, w[16*k + g, 16*j + v, b])
    """)  # noqa: E501
    return Schedule.of(func).apply(replace, "m", matrix_product(14, 16, BRAIN)).func


def flushing(target: Target) -> Target:
    return dataclasses.replace(target, name=f"{target.name}-flushing", flushes_denormals=True)


def test_products_of_brain_floats_in_registers() -> None:
    func = brain_product()
    assert moves(func, flushing(TARGET)) == {
        "ldtilecfg": 1, "tileloadd64": 4 + 4, "tdpbf16ps": 4, "tilestored64": 4, "tilerelease": 1,
    }  # fmt: skip
    assert moves(func, TARGET) == {}  # they take denormals for zeros
    assert moves(func, flushing(without_matrices(TARGET))) == {}
    assert not multiplies_matrices(TARGET, BRAIN) and multiplies_matrices(flushing(TARGET), BRAIN)


def test_products_of_brain_floats_are_those_of_their_definition() -> None:
    """Sums of small multiples of 1/64 are exact in any order."""
    func, rng = brain_product(), np.random.default_rng(0)
    x, w, y = (p.buffer for p in func.params)
    given = {b.name: (rng.integers(-64, 65, b.shape) / 8).astype("bfloat16") for b in (x, w)}
    given["y"] = (rng.integers(-999, 999, y.shape) / 64).astype("float32")
    expected = interpret(func, given)["y"]
    for target in (host_target(), flushing(host_target()), without_matrices(host_target())):
        np.testing.assert_array_equal(Native(func, target)(given)["y"], expected)


def test_names_of_products_of_brain_floats() -> None:
    assert instruction("brain_product_14x16") == matrix_product(14, 16, BRAIN)
    assert is_instruction(matrix_product(2, 2, BRAIN))
    with pytest.raises(KeyError, match="brain_product_"):
        instruction("brain_product_17x16")


def test_another_kernel_of_that_name_is_no_product() -> None:
    other = tir.parse("""
    @primfunc
    def matrix_product_2x2(c: inout[i32[2, 16]]):
        for row in serial(0, 2):
            for lane in serial(0, 16):
                c[row, lane] += i32(1)
    """)
    assert not is_matrix_product(other)


@pytest.mark.parametrize("granted", [True, False])
def test_the_system_grants_matrix_registers(
    granted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process asks once; where the system refuses, the processor counts as one without."""
    asked: list[tuple[int, ...]] = []

    def request(*numbers: ctypes.c_long) -> int:
        asked.append(tuple(number.value for number in numbers))
        return 0 if granted else -1

    module = "graphflow.llvm.granted_features"
    shown = tmp_path / "cpuinfo"
    shown.write_text("processor\t: 0\nflags\t\t: avx2 amx_tile sse4_1 amx_int8 abm\n")
    monkeypatch.setattr(f"{module}.ctypes.CDLL", lambda _: SimpleNamespace(syscall=request))
    found = features_of_host.__wrapped__(shown)
    assert asked == [(158, 0x1023, 18)]
    assert found == {"avx2", "sse4.1", "lzcnt", *(("amx-tile", "amx-int8") if granted else ())}


def begun(value: str, rows: int = 28, filled: str = "i") -> tir.PrimFunc:
    """Two sums of 14 rows that begin with `value`, with the row `filled` of 32 columns each."""
    func = tir.parse(f"""
    @primfunc
    def f(x: u8[{rows}, 128], w: i8[32, 32, 4], b: i32[{rows}, 2, 16], y: out[i32[28, 2, 16]]):
        c = alloc(i32[{rows}, 2, 16], scratch)
        for i in serial(0, {rows}):
            for j in unrolled(0, 2):
                for l in vectorized(0, 16):
                    c[{filled}, j, l] = {value}
        for k in serial(0, 2):
            for r in unrolled(0, 2):
                for n in unrolled(0, 2):
                    for m in serial(0, 14):
                        for v in serial(0, 16):
                            for g in serial(0, 16):
                                for t in serial(0, 4):
                                    c[14*r + m, n, v] += cast(i32, x[14*r + m, 64*k + 4*g + t]) * cast(i32, w[16*k + g, 16*n + v, t])
        for p in serial(0, 28):
            for q in unrolled(0, 2):
                for u in vectorized(0, 16):
                    y[p, q, u] = c[p, q, u]
    """)  # noqa: E501
    return Schedule.of(func).apply(replace, "m", matrix_product(14, 16)).func


def assert_native(func: tir.PrimFunc) -> None:
    rng = np.random.default_rng(1)
    given = {
        "x": rng.integers(0, 256, func.param("x").shape).astype("uint8"),
        "w": rng.integers(-128, 128, func.param("w").shape).astype("int8"),
        "b": rng.integers(-(2**30), 2**30, func.param("b").shape).astype("int32"),
    }
    expected = interpret(func, given)["y"]
    for target in (host_target(), without_matrices(host_target())):
        np.testing.assert_array_equal(Native(func, target)(given)["y"], expected)


@pytest.mark.parametrize("value", ["b[3, j, l]", "b[0, 1 - j, l]"])
def test_sums_begin_with_one_row_in_memory(value: str) -> None:
    """Nothing is filled: each register of sums loads the row as each of its own."""
    func = begun(value)
    assert moves(func)["tileloadd64"] == 4 + 4 and moves(func)["tilestored64"] == 4
    assert emit_ir(func, "f", TARGET).count(", i64 0)") == 4
    assert_native(func)


def test_sums_that_begin_with_zero() -> None:
    func = begun("i32(0)")
    assert moves(func)["tilezero"] == 4 and moves(func)["tileloadd64"] == 4
    assert_native(func)


@pytest.mark.parametrize("value", ["b[i, j, l]", "b[0, j, 15 - l]", "b[0, j, 0]", "i32(1)"])
def test_sums_that_begin_with_anything_else_are_filled(value: str) -> None:
    func = begun(value)
    assert "i64 0)" not in emit_ir(func, "f", TARGET) and "tilezero" not in moves(func)
    assert_native(func)


def test_rows_that_no_product_adds_to_are_filled() -> None:
    func = begun("b[3, j, l]", rows=30)
    assert moves(func)["tileloadd64"] == 4 + 4
    assert "i64 0)" not in emit_ir(func, "f", TARGET)
    assert_native(func)
