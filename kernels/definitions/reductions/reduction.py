"""Reductions over axes, softmax, and the index of the maximum or minimum (ArgMax, ArgMin).

In: a logical shape, axes, a kind.  Out: a PrimFunc with parameters x and y.  What follows a
reduction, such as the division of a mean, is a stage of its own and uses the logical count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import (
    UNARY_VALUES,
    compared,
    divide,
    square,
    subtract,
)
from graphflow.kernels.definitions.stages import Loop, Shape


class Reduction(Struct, frozen=True):
    """`finish(op over axes of term(x))`; `finish` is given the number of elements too."""

    op: tir.ReduceOp
    term: Callable[[tir.Expr], tir.Expr] | None = None
    finish: Callable[[tir.Expr, int], tir.Expr] | None = None
    finish_name: str = "finish"


def _plain(op: str) -> Callable[[tir.Expr], tir.Expr]:
    return lambda x: UNARY_VALUES[op](x)


def _root(total: tir.Expr, _: int) -> tir.Expr:
    return UNARY_VALUES["sqrt"](total)


def _logarithm(total: tir.Expr, _: int) -> tir.Expr:
    return UNARY_VALUES["log"](total)


REDUCTIONS = {
    "sum": Reduction(tir.ReduceOp.ADD),
    "mean": Reduction(tir.ReduceOp.ADD, finish=divide, finish_name="divide"),
    "prod": Reduction(tir.ReduceOp.MUL),
    "min": Reduction(tir.ReduceOp.MIN),
    "max": Reduction(tir.ReduceOp.MAX),
    "l1": Reduction(tir.ReduceOp.ADD, _plain("abs")),
    "l2": Reduction(tir.ReduceOp.ADD, square, _root),
    "sum_square": Reduction(tir.ReduceOp.ADD, square),
    "log_sum": Reduction(tir.ReduceOp.ADD, None, _logarithm),
}


def reduce(
    kind: str,
    x_shape: Shape,
    axes: Iterable[int],
    keepdims: bool = True,
    dtype: str = "float32",
    name: str = "",
) -> tir.PrimFunc:
    """`y = kind over axes of x`; with `keepdims` the reduced axes stay with extent 1.

    `kind` is one of `REDUCTIONS`.  No axes means that nothing is reduced.
    """
    name = name or f"reduce_{kind}"
    how = REDUCTIONS[kind]
    reduced = stages.normalized_axes(axes, len(x_shape))
    y_shape = without_axes(x_shape, reduced, keepdims)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", y_shape, dtype)
    if how.finish is None:
        stage = axes_stage(name, how.op, x, y, reduced, term=how.term)
        return stages.kernel_of_stages(name, (x,), (y,), (stage,))
    total = tir.Buffer("total", y_shape, dtype)
    gather = axes_stage(f"{name}_sum", how.op, x, total, reduced, term=how.term)
    loops = stages.loops_over("j", y_shape)
    value = how.finish(stages.element(total, loops), prod(x_shape[axis] for axis in reduced))
    finish = stages.elementwise_stage(f"{name}_{how.finish_name}", y, loops, value)
    return stages.kernel_of_stages(name, (x,), (y,), (gather, finish))


def reach(x_shape: Shape, below: bool) -> tir.PrimFunc:
    """`y` is how far the elements of x, float32, reach below zero, or above it: the largest
    |min(x, 0)|, or |max(x, 0)|; −∞ where x has no elements.

    An element that is NaN reaches nowhere below zero, and NaN above it.  The absolute value leaves
    the numbers as they are, but for the sign of those below zero and of zeros, and shows that a
    maximum of integers finds the largest one (`graphflow/codegen/magnitudes.py`).
    """

    def beside_zero(x: tir.Expr) -> tir.Expr:
        zero = stages.literal(0, "float32")
        kept, other = (x, zero) if below else (zero, x)
        return tir.Unary("abs", tir.Select(compared("lt", x, 0), kept, other))

    name = "reach_below_zero" if below else "reach_above_zero"
    x, y = tir.Buffer("x", x_shape, "float32"), tir.Buffer("y", (), "float32")
    axes = tuple(range(len(x_shape)))
    stage = axes_stage(name, tir.ReduceOp.MAX, x, y, axes, term=beside_zero)
    return stages.kernel_of_stages(name, (x,), (y,), (stage,))


def log_sum_exp(x_shape: Shape, axes: Iterable[int], dtype: str = "float32") -> tir.PrimFunc:
    """`y = largest + log(Σ exp(x − largest))` over axes, which overflows only if y does.

    The reduced axes stay with extent 1.  If the largest element is infinite it is not subtracted,
    as inf − inf is NaN.
    """
    stages.require_floats("log_sum_exp", dtype)
    reduced = stages.normalized_axes(axes, len(x_shape))
    y_shape = without_axes(x_shape, reduced, True)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", y_shape, dtype)

    def finite(largest: tir.Expr) -> tir.Expr:
        is_finite = compared("lt", tir.Unary("abs", largest), float("inf"))
        return tir.Select(is_finite, largest, stages.literal(0, dtype))

    sums = _sums_of_powers("lse", x, reduced, finite)
    out = stages.loops_over("d", y_shape)
    shift = finite(tir.Load(sums.largest, kept_variables(out, reduced)))
    value = tir.Binary(
        "add", tir.Unary("log", tir.Load(sums.total, kept_variables(out, reduced))), shift
    )
    stage = stages.elementwise_stage("lse_log", y, out, value)
    return stages.kernel_of_stages("log_sum_exp", (x,), (y,), (*sums.stages, stage))


def arg_reduce(
    kind: str,
    x_shape: Shape,
    axis: int,
    last: bool = False,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y` is the index along axis of the maximum or minimum of x, int64; of equal ones the first,
    or last.

    `kind` is max or min; the axis stays with extent 1.  NaN is taken for the extreme.  Two stages:
    the extreme, then the smallest (or largest) index at which it occurs.
    """
    reduced = stages.normalized_axes((axis,), len(x_shape))
    if x_shape[reduced[0]] == 0:
        raise InvalidModel(f"axis {axis} of shape {x_shape} is empty and has no {kind}")
    y_shape = without_axes(x_shape, reduced, True)
    inner = without_axes(x_shape, reduced, False)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", y_shape, "int64")
    best = tir.Buffer("best", inner, dtype)
    loops, along = stages.loops_over("j", y_shape), stages.loops_over("s", (x_shape[reduced[0]],))
    where = _joined_indices(len(x_shape), reduced, loops, along)
    element = tir.Load(x, where)
    is_best = _is_extreme(element, tir.Load(best, kept_variables(loops, reduced)))
    op = tir.ReduceOp.MAX if last else tir.ReduceOp.MIN
    place = tir.Select(is_best, tir.IndexValue(along[0][0]), stages.neutral(op, "int64"))
    extreme = axes_stage(f"arg{kind}_best", REDUCTIONS[kind].op, x, best, reduced)
    stage = stages.reduction_stage(f"arg{kind}", op, y, loops, along, place)
    return stages.kernel_of_stages(f"arg{kind}", (x,), (y,), (extreme, stage))


def _is_extreme(element: tir.Expr, extreme: tir.Expr) -> tir.Expr:
    """Whether an element equals the extreme, or is NaN, which is taken for the extreme."""
    equal = tir.Comparison("eq", element, extreme)
    if element.dtype not in tir.FLOATS:
        return equal
    return tir.Binary("or", equal, tir.Comparison("ne", element, element))


def hardmax(x_shape: Shape, axes: Iterable[int], dtype: str = "float32") -> tir.PrimFunc:
    """`y = 1` at the first maximum over `axes` together, in row-major order, else 0.

    Three stages: the maximum, the first position at which it occurs, and the comparison with that
    position.  NaN is larger than any number.
    """
    reduced = stages.normalized_axes(axes, len(x_shape))
    inner = without_axes(x_shape, reduced, False)
    extents = [x_shape[axis] for axis in reduced]
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    largest = tir.Buffer("largest", inner, dtype)
    first = tir.Buffer("first", inner, "int64")
    loops, along = stages.loops_over("j", inner), stages.loops_over("s", extents)
    element = tir.Load(x, _joined_indices(len(x_shape), reduced, loops, along))
    is_largest = _is_extreme(element, stages.element(largest, loops))
    position = tir.IndexValue(stages.linearize(stages.indices_of(along), extents))
    place = tir.Select(is_largest, position, stages.neutral(tir.ReduceOp.MIN, "int64"))
    out = stages.loops_over("d", x_shape)
    own = tir.IndexValue(stages.linearize([out[axis][0] for axis in reduced], extents))
    chosen = tir.Comparison("eq", own, tir.Load(first, kept_variables(out, reduced)))
    value = tir.Select(chosen, stages.literal(1, dtype), stages.literal(0, dtype))
    body = (
        axes_stage("hardmax_max", tir.ReduceOp.MAX, x, largest, reduced),
        stages.reduction_stage("hardmax_first", tir.ReduceOp.MIN, first, loops, along, place),
        stages.elementwise_stage("hardmax_one", y, out, value),
    )
    return stages.kernel_of_stages("hardmax", (x,), (y,), body)


def softmax(
    x_shape: Shape, axes: Iterable[int], dtype: str = "float32", counted: Iterable[int] = ()
) -> tir.PrimFunc:
    """`y = exp(x − max) · (1 / Σ exp(x − max))`, max and sum over `axes` together.

    Of the axes in `counted`, which are among these, only the first elements count: as many as the
    inputs behind x say, one for each.  Zeros are written behind them.

    Since opset 13 softmax is over one axis; before, it was over all axes from k on.  The sum is
    between 1 and the number of its terms or NaN, so its reciprocal is a normal number or NaN, and a
    product is within 1.5 ulp of the quotient; one division serves a whole row.
    """
    stages.require_floats("softmax", dtype)
    reduced = stages.normalized_axes(axes, len(x_shape))
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    counts = {
        axis: tir.Buffer(f"count{number}", (), "int64")
        for number, axis in enumerate(stages.normalized_axes(counted, len(x_shape)))
    }
    sums = _sums_of_powers("softmax", x, reduced, lambda largest: largest, counts)
    share = tir.Buffer("share", sums.total.shape, dtype)
    rows, out = stages.loops_over("f", share.shape), stages.loops_over("d", x_shape)
    one = tir.Binary("div", stages.literal(1, dtype), stages.element(sums.total, rows))
    powers = stages.element(sums.powers, out)
    scaled = tir.Binary("mul", powers, tir.Load(share, kept_variables(out, reduced)))
    value = _given(scaled, 0, stages.indices_of(out), counts)
    divided = (
        stages.elementwise_stage("softmax_share", share, rows, one),
        stages.elementwise_stage("softmax_scale", y, out, value),
    )
    inputs = (x, *counts.values())
    return stages.kernel_of_stages("softmax", inputs, (y,), (*sums.stages, *divided))


class _SumsOfPowers(Struct, frozen=True):
    """The stages and buffers of `powers = exp(x − shift(largest))` and their `total` over axes."""

    largest: tir.Buffer
    powers: tir.Buffer
    total: tir.Buffer
    stages: tuple[tir.Stmt, ...]


def _sums_of_powers(
    prefix: str,
    x: tir.Buffer,
    reduced: tuple[int, ...],
    shift: Callable[[tir.Expr], tir.Expr],
    counts: Mapping[int, tir.Buffer] = MappingProxyType({}),
) -> _SumsOfPowers:
    """The sums over the axes `reduced`; names of stages begin with `prefix`.

    `shift` of the largest element is subtracted, so that no power overflows.  Along the axes in
    `counts` the powers of elements behind the count are zeros, and such elements are not read.
    """
    inner = without_axes(x.shape, reduced, False)
    largest = tir.Buffer("largest", inner, x.dtype)
    powers = tir.Buffer("powers", x.shape, x.dtype)
    total = tir.Buffer("total", inner, x.dtype)
    loops = stages.loops_over("e", x.shape)
    shifted = subtract(
        stages.element(x, loops), shift(tir.Load(largest, kept_variables(loops, reduced)))
    )
    statements = (
        axes_stage(f"{prefix}_max", tir.ReduceOp.MAX, x, largest, reduced, counts=counts),
        stages.elementwise_stage(
            f"{prefix}_exp",
            powers,
            loops,
            _given(tir.Unary("exp", shifted), 0, stages.indices_of(loops), counts),
        ),
        axes_stage(f"{prefix}_sum", tir.ReduceOp.ADD, powers, total, reduced, "j", "s"),
    )
    return _SumsOfPowers(largest, powers, total, statements)


def log_softmax(x_shape: Shape, axes: Iterable[int], dtype: str = "float32") -> tir.PrimFunc:
    """`y = x − max − log Σ exp(x − max)`, max and sum over `axes` together, as in `softmax`.

    Both stages that need x − max compute it: one of its own would write and read another row.
    """
    stages.require_floats("log_softmax", dtype)
    reduced = stages.normalized_axes(axes, len(x_shape))
    inner = without_axes(x_shape, reduced, False)
    x, y = tir.Buffer("x", x_shape, dtype), tir.Buffer("y", x_shape, dtype)
    largest, total = (tir.Buffer(name, inner, dtype) for name in ("largest", "total"))
    rows, out = stages.loops_over("j", inner), stages.loops_over("d", x_shape)
    kept = kept_variables(out, reduced)
    exp = UNARY_VALUES["exp"]

    def power(value: tir.Expr) -> tir.Expr:
        return exp(subtract(value, stages.element(largest, rows)))

    difference = subtract(stages.element(x, out), tir.Load(largest, kept))
    value = subtract(difference, tir.Unary("log", tir.Load(total, kept)))
    body = (
        axes_stage("log_softmax_max", tir.ReduceOp.MAX, x, largest, reduced),
        axes_stage("log_softmax_sum", tir.ReduceOp.ADD, x, total, reduced, "j", "s", power),
        stages.elementwise_stage("log_softmax_log", y, out, value),
    )
    return stages.kernel_of_stages("log_softmax", (x,), (y,), body)


def without_axes(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """`shape` with `axes` reduced: removed, or of extent 1 with `keepdims`."""
    if keepdims:
        return tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def kept_variables(loops: tuple[Loop, ...], axes: tuple[int, ...]) -> tuple[IndexExpr, ...]:
    """The variables of the loops whose axes are not in `axes`."""
    return tuple(var for axis, (var, _) in enumerate(loops) if axis not in axes)


def axes_stage(
    name: str,
    op: tir.ReduceOp,
    x: tir.Buffer,
    out: tir.Buffer,
    axes: tuple[int, ...],
    prefix: str = "i",
    reduce_prefix: str = "r",
    term: Callable[[tir.Expr], tir.Expr] | None = None,
    counts: Mapping[int, tir.Buffer] = MappingProxyType({}),
) -> tir.Block:
    """`out = op over axes of term(x)`; without a term, of x itself.

    Along the axes in `counts` only elements before the count are read.  Loops are called
    `prefix`k for the axes of `out`, and `reduce_prefix`k for the reduced ones.
    """
    loops = stages.loops_over(prefix, out.shape)
    reduce_loops = stages.loops_over(reduce_prefix, [x.shape[axis] for axis in axes])
    indices = _joined_indices(len(x.shape), axes, loops, reduce_loops)
    value: tir.Expr = tir.Load(x, indices)
    if term is not None:
        value = term(value)
    value = _given(value, stages.neutral(op, out.dtype).value, indices, counts)
    return stages.reduction_stage(name, op, out, loops, reduce_loops, value)


def _given(
    value: tir.Expr,
    fill: float,
    indices: Sequence[IndexExpr],
    counts: Mapping[int, tir.Buffer],
) -> tir.Expr:
    """`value` where the indices along the axes in `counts` are below the counts, else `fill`."""
    for axis, count in counts.items():
        literal = stages.literal(fill, value.dtype)
        value = tir.kept_below_count(indices[axis], count, value, literal)
    return value


def _joined_indices(
    rank: int, axes: tuple[int, ...], loops: tuple[Loop, ...], reduce_loops: tuple[Loop, ...]
) -> tuple[IndexExpr, ...]:
    """The index of the reduced tensor in loops over the result, of any rank, and over the reduced
    axes."""
    others = kept_variables(loops, axes) if len(loops) == rank else stages.indices_of(loops)
    outer, inner = iter(others), iter(stages.indices_of(reduce_loops))
    return tuple(next(inner if axis in axes else outer) for axis in range(rank))
