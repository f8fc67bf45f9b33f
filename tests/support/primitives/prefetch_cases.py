"""Random applications of `prefetch`: windows of any buffer, at any loop, some of them outside."""

from __future__ import annotations

from graphflow.arith import IndexExpr, Var, const, minimum
from graphflow.schedule import prefetch
from graphflow.tir import PrimFunc, buffers_of, loops_of, parse
from support.kernels.random_kernels import Number
from support.primitives.choices import Arguments
from support.primitives.loop_cases import one_of
from support.primitives.primitive_cases import PrimitiveCase


def packed_kernel(number: Number) -> PrimFunc:
    """A product with packed weights, of which each row tile needs all of a panel."""
    panels, rows, depth = number(1, 3), number(1, 2), number(1, 3)
    kind = ("serial", "vectorized")[number(0, 1)]
    scope = ("scratch", "register")[number(0, 3) == 0]
    return parse(f"""
@primfunc
def packed(x: f32[{rows}, {depth}], w: f32[{panels}, {depth}, 32], y: out[f32[{panels}, {rows}, 32]]):
    for panel in serial(0, {panels}):
        for row in serial(0, {rows}):
            t = alloc(f32[32], {scope})
            for z in serial(0, 32):
                t[z] = f32(0.0)
            for k in serial(0, {depth}):
                for c in {kind}(0, 32):
                    t[c] += x[row, k] * w[panel, k, c]
            for s in serial(0, 32):
                y[panel, row, s] = t[s]
""")  # noqa: E501


def _window(func: PrimFunc, number: Number) -> Arguments:
    loops = list(loops_of(func.body))
    long = [b for b in buffers_of(func) if b.shape and b.dtype == "float32" and b.shape[-1] >= 16]
    if not loops or not long:
        return None
    buffer = long[number(0, len(long) - 1)]
    loop = loops[number(0, len(loops) - 1)]
    names = [inner.var.name for inner in loops]

    def index(extent: int) -> IndexExpr:
        if number(0, 2):
            return const(number(0, extent - (number(0, 5) > 0)))
        return minimum(Var(one_of(names, number) or "") + 1, extent - 1)

    starts = [index(extent) for extent in buffer.shape[:-1]]
    return loop.var.name, buffer.name, (*starts, (16 * number(0, buffer.shape[-1] // 16 - 1), 16))


PREFETCH_CASES = (PrimitiveCase(prefetch, _window, packed_kernel),)
