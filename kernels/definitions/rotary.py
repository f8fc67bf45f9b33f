"""Rotary embedding: pairs of elements of each head are rotated by angles of their position.

In: the shapes of heads, and how many of their elements are rotated.  Out: a PrimFunc.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import tir
from graphflow.arith import IndexExpr
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import add, multiply, subtract
from graphflow.kernels.definitions.stages import Loop, Shape


def rotated(
    x_shape: Shape, heads: int, width: int, interleaved: bool, dtype: str = "float32"
) -> tir.PrimFunc:
    """`y` is x with the first `width` elements of each head rotated, in pairs `a`, `b`:
    `a·cos − b·sin` and `a·sin + b·cos`.

    x is (batch, heads, length, size), or (batch, length, heads · size); `cosines` and `sines` are
    (batch, length, width / 2).  The pairs are neighbours if `interleaved`, else element k and
    k + width / 2.
    """
    batch, length = x_shape[0], x_shape[-2]
    size = x_shape[-1] if len(x_shape) == 4 else x_shape[-1] // heads
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    half = width // 2
    cosines, sines = (
        tir.Buffer(name, (batch, length, half), dtype) for name in ("cosines", "sines")
    )

    # The axes in the order of memory, in which threads share rows.
    split = len(x_shape) == 4
    extents = (batch, heads, length) if split else (batch, length, heads)

    def placed(loops: Sequence[Loop], element: IndexExpr) -> tuple[IndexExpr, ...]:
        *around, last, _ = stages.indices_of(loops)
        return (*around, last, element) if split else (*around, last * size + element)

    loops = stages.loops_over("i", (*extents, half))
    b, one, other, k = stages.indices_of(loops)
    at = (b, other if split else one, k)
    places = [
        placed(loops, place) for place in ((2 * k, 2 * k + 1) if interleaved else (k, k + half))
    ]
    left, right = (tir.Load(x, place) for place in places)
    cosine, sine = tir.Load(cosines, at), tir.Load(sines, at)
    values = (
        subtract(multiply(left, cosine), multiply(right, sine)),
        add(multiply(left, sine), multiply(right, cosine)),
    )
    pair = tuple(tir.Store(y, place, value) for place, value in zip(places, values, strict=True))
    parts = [tir.Block("pairs", tir.nest(loops, pair))]
    if size > width:
        loops = stages.loops_over("r", (*extents, size - width))
        place = placed(loops, loops[-1][0] + width)
        parts.append(stages.store_stage("rest", y, loops, place, tir.Load(x, place)))
    return stages.kernel_of_stages("rotated", (x, cosines, sines), (y,), parts)
