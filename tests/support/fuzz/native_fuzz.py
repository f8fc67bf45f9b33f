"""The comparison of native code with the interpreter for one random kernel.

In: a `NativeCase` or a `BuiltCase`, and a target.  Out: nothing, or a text with all that is needed
to see it again.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from graphflow import tir
from graphflow.api.building import build
from graphflow.base.dtypes import STORED
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from support.kernels.native_kernels import FUNCTIONS, NativeCase, is_rounded
from support.kernels.random_kernels import UserKernel
from support.native import Array, Native, flushed_denormals
from support.strategies import INTEGER_KERNELS, input_arrays

TARGETS = tuple({t.vector_bytes: t for t in (host_target(), avx2_target())}.values())

ORDINARY = (*range(180), 320)
"""The seeds that run by default; the last one is here for a mutant."""

BUILT = range(100)
"""The seeds of kernels as users write them that run by default."""

FUNCTION_ULPS = {"float32": 3.0, "float64": 4.0}
"""What graphflow.codegen.math promises (2.5), and half a unit as the reference is rounded; of the C
library and of numpy in double precision, a unit or two each."""
PRODUCTS_ULPS = 8.0
"""Of the sum of magnitudes: at most five products and sums with a start, each rounded once."""


@dataclass(frozen=True)
class Expected:
    """What a case must give: outputs by name, and by how much the rounded ones may differ."""

    outputs: dict[str, Array]
    tolerances: dict[str, Array]


def expected(case: NativeCase) -> Expected:
    """What the interpreter gives."""
    func, arrays = case.func, case.arrays
    with flushed_denormals(case.flush):
        outputs = tir.interpret(func, arrays)
        rounded = [name for name in outputs if is_rounded(name)]
        if rounded:
            outputs |= {n: tir.interpret(_widened(func), arrays)[n] for n in rounded if n[0] == "f"}
            sizes = tir.interpret(_magnitudes(func), arrays)
    tolerances = {}
    for name in rounded:
        size = np.abs(outputs[name] if name[0] == "f" else sizes[name])
        ulps = FUNCTION_ULPS[str(size.dtype)] if name[0] == "f" else PRODUCTS_ULPS
        with np.errstate(all="ignore"):
            least = np.finfo(size.dtype).tiny
            tolerances[name] = ulps * np.spacing(np.maximum(size, least)).astype(np.float64)
    return Expected(outputs, tolerances)


def _widened(func: tir.PrimFunc) -> tir.PrimFunc:
    """`func` with elementary functions in double precision, rounded to single once."""

    def wide(expr: tir.Expr) -> tir.Expr:
        return tir.Cast(expr, "float64")

    def change(expr: tir.Expr) -> tir.Expr:
        match expr:
            case tir.Unary() if expr.op in FUNCTIONS and expr.dtype == "float32":
                return tir.Cast(tir.Unary(expr.op, wide(expr.operand)), "float32")
            case tir.Binary(op="pow") if expr.dtype == "float32":
                return tir.Cast(tir.Binary("pow", wide(expr.left), wide(expr.right)), "float32")
        return expr

    return replace(func, body=tir.map_expressions(func.body, change))


def _magnitudes(func: tir.PrimFunc) -> tir.PrimFunc:
    """`func` with the absolute values of what is added up in sums of products."""

    def change(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.Store | tir.Reduce) and stmt.buffer.name.startswith("s"):
            return replace(stmt, value=tir.Unary("abs", stmt.value))
        return stmt

    return replace(func, body=tir.map_body(func.body, change))


def difference(case: NativeCase, *targets: Target) -> str:
    """How native code for one of the targets differs from the interpreter, at the first element
    that does; "" if none does."""
    want = expected(case)
    found = (_difference_on(target, case, want) for target in targets)
    return next(filter(None, found), "")


def _difference_on(target: Target, case: NativeCase, want: Expected) -> str:
    native = Native(case.func, target)
    with flushed_denormals(case.flush):
        got = native(case.arrays, case.slices)
    for name, array in want.outputs.items():
        same = _same(got[name], array, want.tolerances.get(name), case.flush)
        if not same.all():
            index = tuple(int(n) for n in np.argwhere(~same)[0])
            found = f"{name}{list(index)} is {got[name][index]!r}, not {array[index]!r}"
            return f"{found}, on {target.name}\n{_case_text(case)}"
    return ""


def whole_loop(func: tir.PrimFunc) -> tuple[int, int]:
    """All iterations of its parallel loop; one where it has none."""
    loops = (x for x in tir.loops_of(func.body) if x.kind is tir.LoopKind.PARALLEL)
    return 0, next((loop.extent or 0 for loop in loops), 1)


def _case_text(case: NativeCase) -> str:
    inputs = "\n".join(f"{name} = {a.tolist()}" for name, a in case.arrays.items())
    flush = ", denormals flushed" if case.flush else ""
    slices = ", ".join(f"{low}:{high}" for low, high in case.slices)
    title = f"seed {case.seed} ({case.family}{flush}), slices {slices}"
    return f"{title}\n{tir.to_text(case.func)}\n{inputs}"


def _same(got: Array, want: Array, tolerance: Array | None, flush: bool) -> Array:
    """Where two arrays are equal: bit by bit without a tolerance, but all NaNs alike."""
    if want.dtype.name in STORED:
        codes = f"u{want.dtype.itemsize}"
        with np.errstate(all="ignore"):
            nan = np.isnan(got.astype("float64")) & np.isnan(want.astype("float64"))
        return np.asarray(nan | (got.view(codes) == want.view(codes)))
    if want.dtype.kind != "f":
        return np.asarray(got == want)
    nan = np.isnan(got) & np.isnan(want)
    if tolerance is None:
        kind = np.uint32 if want.dtype == np.float32 else np.uint64
        if flush:
            # A denormal that is copied or compared, not computed, may stay as it is.
            got, want = _flushed(got), _flushed(want)
        return np.asarray(nan | (got.view(kind) == want.view(kind)))
    with np.errstate(all="ignore"):
        near = np.abs(got.astype(np.float64) - want) <= tolerance
    # A sum that overflows, or holds an infinity, depends on its order.
    return np.asarray(nan | (got == want) | near | ~np.isfinite(tolerance))


def _flushed(array: Array) -> Array:
    tiny = np.finfo(array.dtype).tiny
    return np.where(np.abs(array) < tiny, np.copysign(array.dtype.type(0), array), array)


@dataclass(frozen=True)
class BuiltCase:
    """A kernel as users write it, and what two runs of its program are given by name: arrays, some
    of them with the strides that a window permits, and scalars."""

    seed: int
    func: tir.PrimFunc
    runs: tuple[dict[str, Any], ...]


def built_case(seed: int) -> BuiltCase:
    """The case of this seed, always the same."""
    random = Random(seed)
    maker = UserKernel(random.randint, replace(INTEGER_KERNELS, stage="scheduled"))
    func = maker.func()
    runs = []
    for run in range(2):
        given: dict[str, Any] = input_arrays(func, 2 * seed + run, True)
        for param in func.params:
            array = given.get(param.buffer.name)
            if param.strided and array is not None and array.ndim:
                given[param.buffer.name] = np.repeat(array, 2, axis=-1)[..., ::2]
        runs.append(given | {v.name: random.randrange(n) for v, n in maker.scalars.items()})
    return BuiltCase(seed, func, tuple(runs))


def built_difference(case: BuiltCase, target: Target) -> str:
    """How the program of a kernel differs from the interpreter, or why it was not built; "" where
    neither is so.  Every fourth one is validated too."""
    options = Options(cache="off", validate=case.seed % 4 == 0)
    head = f"seed {case.seed}, on {target.name}\n{tir.to_text(case.func)}"
    try:
        program = build(case.func, target=target, threads=1 + case.seed % 2, options=options)
    except GraphflowError as error:
        return f"{error}\n{head}"
    names = [var.name for var in case.func.scalars]
    for given in case.runs:
        scalars = {name: given[name] for name in names}
        arrays = {name: array for name, array in given.items() if name not in names}
        before = {name: array.copy() for name, array in arrays.items()}
        got = program.run(given)
        for name, want in tir.interpret(case.func, arrays, scalars=scalars).items():
            same = _same(got[name], want, None, False)
            if not same.all():
                index = tuple(int(n) for n in np.argwhere(~same)[0])
                found = f"{name}{list(index)} is {got[name][index]!r}, not {want[index]!r}"
                return f"{found} for {given}, {head}"
        if any((arrays[name] != array).any() for name, array in before.items()):
            return f"an array of the caller is changed, {head}"
    return ""
