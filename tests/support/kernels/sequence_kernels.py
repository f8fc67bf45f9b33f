"""Kernels for sequences of primitives: typical ones by name, and random ones."""

from collections.abc import Callable

from graphflow.tir import PrimFunc, parse
from support.kernels.random_kernels import Number
from support.primitives.let_cases import let_kernel
from support.primitives.primitive_cases import effect_kernel
from support.primitives.window_cases import with_windows

KERNELS = {
    "blur": parse("""
@primfunc
def blur(x: i64[14], y: out[i64[10]]):
    t = alloc(i64[12])
    for i in serial(0, 12):
        t[i] = x[i] + x[i + 1] + x[i + 2]
    for j in serial(0, 10):
        y[j] = t[j] + t[j + 1] + t[j + 2]
"""),
    "lets": parse("""
@primfunc
def lets(x: i64[12], w: i64[4], y: out[i64[12]]):
    for i in serial(0, 3):
        with let(w[i] * w[3]) as u:
            for j in serial(0, 4):
                with let(x[4*i + j] * u[()]) as t:
                    with let(t[()] < i64(9)) as c:
                        if data(c[()]):
                            y[4*i + j] = t[()]
                        else:
                            y[4*i + j] = t[()] + u[()]
                y[4*i + j] += w[j]
"""),
    "windows": parse("""
@primfunc
def windows(x: i64[4, 6], y: out[i64[4, 4]]):
    t = alloc(i64[4, 6])
    for a in serial(0, 4):
        with t[a, 0:6] as w:
            for b in serial(0, 6):
                w[b] = x[a, b] * x[a, 0]
    for i in serial(0, 4):
        with t[i, 1:5] as v:
            with y[i, 0:4] as u:
                for j in serial(0, 4):
                    u[j] = v[j]
                    u[j] += v[3 - j]
"""),
    "prefetches": parse("""
@instruction
def prefetch16(line: f32[16]):
    pass

@primfunc
def prefetches(x: f32[2, 3], w: f32[2, 3, 16], y: out[f32[2, 2, 16]]):
    u = alloc(f32[2, 3, 16])
    for a in serial(0, 2):
        for b in serial(0, 3):
            for d in serial(0, 16):
                u[a, b, d] = w[a, b, d] + f32(1.0)
    for p in serial(0, 2):
        for r in serial(0, 2):
            for z in serial(0, 16):
                y[p, r, z] = f32(0.0)
            for k in serial(0, 3):
                for c in serial(0, 16):
                    y[p, r, c] += x[r, k] * u[p, k, c]
                prefetch16(u[min(p + 1, 1), k, 0:16])
            prefetch16(w[p, r, 0:16], name="later")
"""),
}

SEQUENCE_KERNELS: dict[str, Callable[[Number], PrimFunc]] = {
    **{name: lambda number, func=func: func for name, func in KERNELS.items()},  # type: ignore[misc]
    "random": effect_kernel,
    "lets and windows": lambda number: with_windows(let_kernel(number), number),
}
"""By name a function of random numbers, which the typical ones do not take."""
