"""Vector statements as instructions of the target.

In: the schedule of a kernel whose lanes are chosen, and the target.  Out: the schedule in which the
vectorized loops that an instruction of the target performs are calls of it.  Which instructions
there are is data (`codegen.instruction_set`): a new one is taken here without a change.

What always holds: `replace` proves that a call performs what the loop did.  A loop that is no
instance of an instruction stays a loop, and so does one whose lanes do not follow one another in
memory, as instructions have them.
"""

from __future__ import annotations

from functools import lru_cache

from graphflow import tir
from graphflow.arith import Var, variables
from graphflow.base.errors import ScheduleError
from graphflow.base.processors import MATRIX_LANES
from graphflow.base.target import Target
from graphflow.codegen import (
    MATRIX_FACTORS,
    fits_matrices,
    instructions_of,
    matrix_product,
    multiplies_matrices,
)
from graphflow.kernels.recipes.analysis.byte_sums import sums_terms_in_lanes
from graphflow.kernels.recipes.analysis.narrow_sums import SUM
from graphflow.schedule import (
    Handle,
    Schedule,
    divide_loop,
    mark_unrolled,
    replace,
    unroll_loop,
    vectorize_loop,
)


def in_instructions(s: Schedule, target: Target) -> Schedule:
    """`for lane in vectorized(0, 8): c[lane] += a * b[lane]` → `fma8(c[0:8], a, b[0:8])`.

    For each vectorized loop that an instruction of the target performs.
    """
    known = _by_shape(target)
    loops = [
        x
        for x in tir.loops_of(s.func.body)
        if x.kind is tir.LoopKind.VECTORIZED or _sums_in_lanes(x)
    ]
    fitting = [(x, known[shape]) for x in loops if (shape := _shape(x)) in known]
    places = s.handles(loop for loop, _ in fitting)
    for place, (_, definitions) in zip(places, fitting, strict=True):
        for definition in definitions:
            if s.present((place,)):
                s = s.attempt_all(_replaced, place, definition)
    s = _in_matrix_products(s, target)
    for place in s.handles(x for x in tir.loops_of(s.func.body) if _sums_in_lanes(x)):
        s = s.attempt_all(_terms_apart, place)
    return s


def byte_sums_in_instructions(s: Schedule, target: Target) -> Schedule:
    """`for lane in (0, 32): for b: c[lane] += a[b] * w[lane, b]` → two calls of `dot4_16`.

    For each loop that sums products of bytes in lanes; as vectors where no instruction does.
    """
    for place in s.handles(x for x in tir.loops_of(s.func.body) if sums_terms_in_lanes(x)):
        lanes, extent = target.computed_lanes(SUM), s.loop(place).extent or 1
        if extent > lanes and extent % lanes == 0:
            names = (s.fresh("{}o", place), s.fresh("{}v", place))
            s = s.apply(divide_loop, s[place], lanes, names, "perfect")
            outer, place = s.made["parts"]
            s = s.apply(mark_unrolled, s[outer])
        s = _in_first_instruction(s, place, target)
    return s


def _in_first_instruction(s: Schedule, place: Handle, target: Target) -> Schedule:
    """A loop as the first instruction that performs it, or with its terms apart."""
    for definition in _by_shape(target).get(_shape(s.loop(place)), ()):
        tried = s.attempt_all(_replaced, place, definition)
        if tried.func is not s.func:
            return tried
        s = tried
    return s.attempt_all(_terms_apart, place)


def _in_matrix_products(s: Schedule, target: Target) -> Schedule:
    """`for row: for lane: for group: for byte: S` → `matrix_product_14x16(c, a, b)`, for each such
    nest; ScheduleError where a nest does not unify with the product."""
    found = [(x, one) for x in tir.loops_of(s.func.body) if (one := _matrices(x, target))]
    places = s.handles(loop for loop, _ in found)
    for place, (_, product) in zip(places, found, strict=True):
        s = s.apply(replace, s[place], product)
    return s


def _matrices(loop: tir.For, target: Target) -> tir.PrimFunc | None:
    """The product in matrix registers of the target that a nest of four loops adds up."""
    nest = [loop]
    while len(nest[-1].body) == 1 and isinstance(inner := nest[-1].body[0], tir.For):
        nest.append(inner)
    update = nest[-1].body[0] if len(nest) == 4 and len(nest[-1].body) == 1 else None
    if not isinstance(update, tir.Reduce) or update.buffer.scope != "scratch":
        return None
    if any(x.kind is not tir.LoopKind.SERIAL for x in nest):
        return None
    read = sorted(load.dtype for load in tir.loads_in((update,)))
    factors = next((types for types in MATRIX_FACTORS if sorted(types) == read), None)
    rows, lanes, groups, terms = (x.extent or 0 for x in nest)
    fits = lanes == MATRIX_LANES and fits_matrices(rows, groups)
    if factors is None or not fits or not multiplies_matrices(target, factors):
        return None
    product = matrix_product(rows, groups, factors)
    sums, _, weights = (param.buffer for param in product.params)
    return product if (sums.dtype, weights.shape[-1]) == (update.buffer.dtype, terms) else None


def _sums_in_lanes(loop: tir.For) -> bool:
    """Whether each iteration of a serial loop sums one term or several in a register of its own."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    updates = [x for x in tir.walk((loop,)) if isinstance(x, tir.Reduce)]
    return (
        loop.kind is tir.LoopKind.SERIAL
        and isinstance(inner, tir.For | tir.Reduce)
        and len(updates) == 1
        and updates[0].buffer.scope == "register"
        and updates[0].indices[-1] is loop.var
    )


def _terms_apart(s: Schedule, place: Handle) -> Schedule:
    """`for lane: for b in (0, 4): S` → `for lane in vectorized: {S; S; S; S}`, where no instruction
    sums the terms."""
    for inner in s.handles(x for x in s.loop(place).body if isinstance(x, tir.For)):
        s = s.apply(unroll_loop, s[inner])
    return s.apply(vectorize_loop, s[place])


def _replaced(s: Schedule, place: Handle, definition: tir.PrimFunc) -> Schedule:
    s = s.apply(replace, s[place], definition)
    (made,) = s.made["call"]
    (call,) = (call for call in tir.calls_in(s.func.body) if call.name == s[made])
    for window, param in zip(call.windows, definition.params, strict=True):
        if not param.strided and not tir.is_dense(window, param.buffer):
            raise ScheduleError(
                f"the elements of {window.buffer.name} that {call.name} takes do not follow one "
                "another in memory"
            )
    return s


@lru_cache(maxsize=16)
def _by_shape(target: Target) -> dict[object, tuple[tir.PrimFunc, ...]]:
    """The instructions of a target that update what they write in one loop, by its shape."""
    found: dict[object, tuple[tir.PrimFunc, ...]] = {}
    for definition in instructions_of(target):
        (only,) = definition.body
        shape = _shape(only)
        if shape is not None:
            found[shape] = (*found.get(shape, ()), definition)
    return found


def _shape(stmt: tir.Stmt) -> object:
    """What the updates in one loop have in common with those that they may be unified with.

    That is the extent, the operators and types, and which elements depend on the loop; where the
    loop has another one inside, as dot products have, also that one's extent.  None for other
    statements.
    """
    extents: tuple[int | None, ...]
    match stmt:
        case tir.For(body=(tir.For() as inner,)):
            extents, body = (stmt.extent, inner.extent), inner.body
        case tir.For(body=body):
            extents = (stmt.extent,)
        case _:
            return None
    if not all(isinstance(update, tir.Reduce) for update in body):
        return None
    return *extents, *(_update_shape(update, stmt.var) for update in body)


def _update_shape(update: tir.Stmt, lane: Var) -> object:
    assert isinstance(update, tir.Reduce)
    nodes = [(type(x), x.dtype, _detail(x, lane)) for x in tir.walk_expr(update.value)]
    across = any(lane in variables(index) for index in update.indices)
    return update.op, update.buffer.dtype, across, *nodes


def _detail(node: tir.Expr, lane: Var) -> object:
    """The operator of an operation; whether the element of a load depends on the lane."""
    match node:
        case tir.Load():
            return any(lane in variables(index) for index in node.indices)
        case tir.Unary() | tir.Binary():
            return node.op
        case _:
            return None
