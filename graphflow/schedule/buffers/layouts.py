"""Primitives that put a buffer into a layout, and a loop nest into the order of a buffer.

In: a kernel, a buffer, and a layout with what its padding holds; or a nest that accesses the
buffer.  Out: the kernel with the buffer's accesses at physical indices and its padding stated; or
with one loop for each physical axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Literal as Literals
from typing import TypeAlias, TypeVar, cast

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.dtypes import CARRIERS, FLOATING
from graphflow.base.errors import GraphflowError, ScheduleError
from graphflow.base.fields import replace
from graphflow.layout import IndexMap, Layout, dtype_limits, physical_vars, row_major, solve_indices
from graphflow.schedule.buffers.relocation import relocated
from graphflow.schedule.conditions.conditions import simplify
from graphflow.schedule.facts import dependence, padding, soundness
from graphflow.schedule.loops.parts import fission
from graphflow.schedule.places import obligations, place_names
from graphflow.schedule.places.places import exchange_at, find, find_buffer
from graphflow.schedule.steps.frame import Rewrite


class PadFunction(Struct, frozen=True):
    """A pad value that depends on the physical index, and on the transformed buffer itself.

    `value` is an expression over `indices`; a load in it must be of the transformed buffer.  None
    means that nobody may access the padding.
    """

    indices: tuple[arith.Var, ...]
    value: tir.Expr | arith.IndexExpr | None


StatedPad: TypeAlias = Literals["undef"] | float | int | None
"""What padding holds: a number, anything for "undef"; None where nobody may touch it."""

PadValue: TypeAlias = StatedPad | PadFunction

PadGiven: TypeAlias = PadValue | Callable[..., PadValue | tir.Expr | arith.IndexExpr]
"""A pad value, or a function of the physical index that returns one; see `transform_layout`."""

Returned = TypeVar("Returned")

LayoutGiven: TypeAlias = Layout | Callable[..., Sequence[arith.IndexExpr]]
"""A layout, or a function from logical to physical indices; its box is the smallest that fits."""


def transform_layout(
    func: tir.PrimFunc, buffer: str, layout: LayoutGiven, pad_value: PadGiven = None
) -> Rewrite:
    """`S[a[i]]` → `S[a'[layout(i)]]`, with what the padding of a' holds stated.

    `layout` may be a function such as `lambda i: (i // 4, i % 4)`.  `pad_value` is None (nothing
    may access the padding), `"undef"` (it may be read and holds anything), a number, a
    `PadFunction`, or a function of the physical index that returns one of these, an index
    expression such as `4*io + ii`, or a scalar expression.  If that function has one parameter
    more, the first one gives elements of the buffer: `lambda at, io, ii: at(0, ii)`.

    A padding stage `<buffer>_padding` writes the padding of a buffer that the kernel writes: at the
    end for an output, after the last stage that writes it for an allocated buffer.  For a buffer
    that is only read, the stage is at the start and assumes the padding.  A buffer that has such a
    stage keeps it, and gets one more, with a number.  The interface changes: the caller must pass
    the buffer in this layout.  ScheduleError where the index map is not proven injective.

    Makes the stage of the padding, if there is one, in the role `padding`.
    """
    old = find_buffer(func, buffer)
    has_functions = callable(layout) or callable(pad_value)
    layout = layout_of(layout, old.shape)
    if layout.logical_shape != old.shape:
        raise ScheduleError(
            f"the layout is for shape {layout.logical_shape}, and {buffer} has {old.shape}"
        )
    _may_move(func, old, layout)
    new = replace(old, shape=layout.physical_shape, separators=layout.separators)
    pad_value = _pad_value_of(pad_value, new)
    check = obligations.require(
        layout.index_map.check(layout.logical_shape), "the index map is injective"
    )
    body = _relaid(func.body, old, new, layout)
    written = old not in func.inputs
    stage = padding_stage(func, new, layout, pad_value, written)
    params = tuple(replace(p, buffer=new) if p.buffer == old else p for p in func.params)
    at = _stage_position(func, old) if written else 0
    body = (*body[:at], *stage, *body[at:])
    simplified = simplify(replace(func, params=params, body=body)).func
    soundness.require_consistent(simplified)
    claim = f"{layout.describe()} is injective, so each element keeps a place of its own"
    made = {"padding": tuple(block.name for block in stage)}
    kept = (buffer, layout, pad_value) if has_functions else None
    return Rewrite(simplified, (check, obligations.structural(claim)), made=made, arguments=kept)


def layout_of(layout: LayoutGiven, shape: Sequence[int]) -> Layout:
    """The layout itself, or the one that a function from logical to physical indices describes.

    ScheduleError where the function does not fit the shape, or no inverse of it is found.
    """
    if isinstance(layout, Layout):
        return layout

    def outputs(*inputs: arith.Var) -> tuple[arith.IndexExpr, ...]:
        found = given_by("layout", layout, inputs, f"the {len(inputs)} indices of {list(shape)}")
        items = tuple(found) if isinstance(found, Sequence) else (found,)
        odd = [one for one in items if not isinstance(one, arith.IndexExpr | int)]
        if odd:
            raise ScheduleError(f"the layout function returns {odd[0]!r}, which is no index")
        return tuple(arith.as_index(one) for one in items)

    return Layout.of(IndexMap.from_function(len(shape), outputs, shape), shape)


def given_by(
    what: str, function: Callable[..., Returned], arguments: Sequence[object], taken: str
) -> Returned:
    """What a user's function returns; ScheduleError, which names it, where it raises."""
    try:
        return function(*arguments)
    except GraphflowError:
        raise
    except Exception as error:
        raise ScheduleError(f"the {what} function fails on {taken}: {error}") from error


def _pad_value_of(pad_value: PadGiven, buffer: tir.Buffer) -> PadValue:
    """A pad value; what a function returns for the indices of `buffer` becomes a `PadFunction`."""
    if isinstance(pad_value, PadFunction) and isinstance(pad_value.value, arith.IndexExpr):
        return replace(pad_value, value=_index_value(pad_value.value, buffer, pad_value.indices))
    if not callable(pad_value):
        return pad_value
    indices = physical_vars(len(buffer.shape))
    takes_elements = _parameters_of(pad_value) == len(indices) + 1

    def element(*at: arith.IndexLike) -> tir.Load:
        return tir.Load(buffer, tuple(arith.as_index(index) for index in at))

    arguments = (element, *indices) if takes_elements else indices
    value = given_by("pad", pad_value, arguments, f"the {len(indices)} axes of {buffer.name}")
    if isinstance(value, tir.Undef):
        return "undef"
    if isinstance(value, arith.IndexExpr):
        value = _index_value(value, buffer, indices)
    return PadFunction(indices, value) if isinstance(value, tir.EXPRESSIONS) else value


def _parameters_of(function: Callable[..., object]) -> int | None:
    """The number of parameters of a function; None where Python cannot tell."""
    try:
        return len(signature(function).parameters)
    except ValueError:
        return None


def _index_value(
    index: arith.IndexExpr, buffer: tir.Buffer, indices: Sequence[arith.Var]
) -> tir.Expr:
    """An index expression over the physical indices of a buffer as a value of its type.

    ScheduleError where the type cannot hold each value that the index has in the buffer's box.
    """
    box = {var: (0, extent - 1) for var, extent in zip(indices, buffer.shape, strict=True)}
    stray = sorted(var.name for var in arith.variables(index) - box.keys())
    if stray:
        raise ScheduleError(
            f"the pad value {index} uses {stray[0]}, which is no index of {buffer.name}"
        )
    low, high = arith.bounds(index, box)
    dtype = buffer.dtype
    least, most = dtype_limits(dtype)
    if low is None or high is None or not least <= low <= high <= most:
        raise ScheduleError(f"{dtype} cannot hold the pad value {index}, from {low} to {high}")
    carrier = "int32" if dtype == "bool" else CARRIERS.get(dtype, (dtype,))[0]
    value = tir.IndexValue(index, carrier)
    return value if carrier == dtype else tir.Cast(value, dtype)


def _may_move(func: tir.PrimFunc, buffer: tir.Buffer, layout: Layout) -> None:
    for stage in padding.padding_stages(func, buffer):
        if padding.padding_kind(stage) is padding.PaddingKind.NONE:
            raise ScheduleError(
                f"{buffer.name} has padding that nobody may touch; give it both layouts in one step"
            )
    own = any(isinstance(s, tir.Allocate) and s.buffer == buffer for s in func.body)
    if layout.is_padded and not own and buffer not in {p.buffer for p in func.params}:
        raise ScheduleError(
            f"{buffer.name} is allocated inside a loop, where a stage for its padding cannot "
            "stand; lift it first"
        )


def _stage_position(func: tir.PrimFunc, buffer: tir.Buffer) -> int:
    """Where a padding stage goes: at the end for an output, else after the last write."""
    if buffer in func.outputs:
        return len(func.body)
    touching = (
        k
        for k, stmt in enumerate(func.body)
        if stmt == tir.Allocate(buffer) or padding.writes_to((stmt,), buffer)
    )
    return 1 + max(touching, default=-1)


def _relaid(body: tir.Body, old: tir.Buffer, new: tir.Buffer, layout: Layout) -> tir.Body:
    if new == old and layout == row_major(old.shape):
        return body
    return relocated(body, old, new, layout.physical_index)


def padding_stage(
    func: tir.PrimFunc, new: tir.Buffer, layout: Layout, pad_value: PadValue, written: bool
) -> tuple[tir.Block, ...]:
    """The stage that writes the padding of `new`, or assumes it where it is not `written`.

    Nothing where the layout has no padding.
    """
    if not layout.is_padded:
        return ()
    name, number = f"{new.name}_padding", 1
    while any(stage.name == name for stage in padding.padding_stages(func, new)):
        number += 1
        name = f"{new.name}_padding_of{number}"
    name, *loops = place_names.stage_names(func, name, len(new.shape))
    names = tuple(map(arith.Var, loops))
    logical = layout.is_logical(names)
    pad, kind = _pad_expression(new, names, pad_value)
    stmt: tir.Body
    if pad is None:
        # The load only locates the padding; the claim is that nothing may access it.
        stmt = (
            tir.Assume(logical, tir.Comparison("ne", tir.Load(new, names), tir.Undef(new.dtype))),
        )
    elif written:
        stmt = (tir.If(arith.negation(logical), (tir.Store(new, names, pad),)),)
    elif isinstance(pad, tir.Literal) and pad.value != pad.value:
        raise ScheduleError(f"{new.name}: no comparison can state that its padding is NaN")
    else:
        stmt = (tir.Assume(logical, tir.Comparison("eq", tir.Load(new, names), pad)),)
    body = tir.nest(tuple(zip(names, new.shape, strict=True)), stmt)
    notes = ((tir.BlockNote.PADDING_OF, new.name), (tir.BlockNote.PADDING, kind.value))
    return (tir.Block(name, body, notes),)


def _pad_expression(
    buffer: tir.Buffer, names: tuple[arith.Var, ...], pad_value: PadValue
) -> tuple[tir.Expr | None, padding.PaddingKind]:
    match pad_value:
        case None:
            return None, padding.PaddingKind.NONE
        case "undef":
            return tir.Undef(buffer.dtype), padding.PaddingKind.UNDEF
        case PadFunction():
            return _pad_function(buffer, names, pad_value)
        case int() | float():
            return _literal(pad_value, buffer), padding.PaddingKind.VALUE
    raise ScheduleError(f'a pad value is None, "undef", a number or a PadFunction: {pad_value!r}')


def _literal(value: float | int, buffer: tir.Buffer) -> tir.Literal:
    dtype = buffer.dtype
    if dtype not in FLOATING:
        low, high = dtype_limits(buffer.dtype)
        if value != value or int(value) != value or not low <= value <= high:
            raise ScheduleError(f"{buffer.dtype} cannot hold the pad value {value}")
        return tir.Literal(bool(value) if dtype == "bool" else int(value), buffer.dtype)
    return tir.Literal(float(value), buffer.dtype)


def _pad_function(
    buffer: tir.Buffer, names: tuple[arith.Var, ...], pad: PadFunction
) -> tuple[tir.Expr | None, padding.PaddingKind]:
    if pad.value is None:
        return None, padding.PaddingKind.NONE
    assert not isinstance(
        pad.value, arith.IndexExpr
    )  # `_pad_value_of` made a scalar expression of it
    values: dict[arith.Var, arith.IndexExpr] = dict(zip(pad.indices, names, strict=True))
    probe = tir.substitute_body((tir.Store(buffer, names, pad.value),), values)
    for access in tir.accesses(probe):
        if access.kind is tir.AccessKind.READ and access.buffer != buffer:
            raise ScheduleError(
                f"the pad value of {buffer.name} reads {access.buffer.name} of shape "
                f"{access.buffer.shape}; it may read {buffer.name} of shape {buffer.shape} alone"
            )
    stmt = probe[0]
    assert isinstance(stmt, tir.Store)
    problem = next(tir.type_errors(stmt), None)
    if problem is not None:
        raise ScheduleError(f"the pad value of {buffer.name} has the wrong type: {problem}")
    is_undef = isinstance(stmt.value, tir.Undef)
    return stmt.value, padding.PaddingKind.UNDEF if is_undef else padding.PaddingKind.VALUE


def sequential_buffer_access(
    func: tir.PrimFunc, place: str, buffer: str, names: Sequence[str], whole_box: bool = False
) -> Rewrite:
    """A nest that touches `buffer[e(i)]` → the nest over e's values, in the order of the buffer.

    `place` is the outermost loop of the nest, or a block around it.  The loops whose variables the
    buffer's indices use become one serial loop for each physical axis, called `names` from the
    outermost in.  Where the new loops have more points than the old ones, a condition excludes
    those.  With `whole_box` they run over all of the buffer's box, its padding included.
    Statements before the loops of the nest, such as the initialization of a reduction, are first
    split off by `fission`, where no later one of them needs what the nest computes.  ScheduleError
    where the indices have no inverse, where the nest is not perfect then, and where the iterations
    are not proven independent of their order.

    Makes the new loops in the role `axes`, in the order of `names`.  A loop that runs once is
    simplified away; its handle is that of a place that is gone.
    """
    stmt, domain = find(func, place)
    outermost = stmt.body[0] if isinstance(stmt, tir.Block) and len(stmt.body) == 1 else stmt
    if not isinstance(outermost, tir.For):
        raise ScheduleError(f"{place} is not a loop nest, nor a block around one")
    old = find_buffer(func, buffer)
    before = _initialization(outermost, old, domain)
    if before:
        return _split_first(func, outermost, before, buffer, names, whole_box)
    nest, body = _output_nest(outermost, old, domain)
    indices = _indices(body, old, nest, domain)
    inner = domain
    for loop in nest:
        inner = inner.inside(loop.var, loop.start, loop.stop)
    ranges = inner.ranges()
    axes = tuple(arith.Var(name) for name in names)
    place_names.require_names(*names)
    place_names.require_fresh(
        func, *(n for n in names if n not in {loop.var.name for loop in nest})
    )
    if len(set(names)) != len(names) or len(axes) != len(indices):
        raise ScheduleError(f"{buffer} has {len(indices)} axes; give each a name of its own")
    probe = physical_vars(len(axes))
    known = solve_indices(dict(zip(probe, indices, strict=True)), ranges)
    lost = [loop.var.name for loop in nest if loop.var not in known]
    if lost:
        raise ScheduleError(f"{lost[0]} cannot be found again from the indices of {buffer}")
    proofs = _any_order(nest, body, domain)
    rename: dict[arith.Var, arith.IndexExpr] = dict(zip(probe, axes, strict=True))
    values = {loop.var: arith.substitute(known[loop.var], rename) for loop in nest}
    spans = _spans(indices, ranges)
    if whole_box:  # a load that a condition skips may have indices outside
        spans = [
            (min(0, low), max(n, high)) for (low, high), n in zip(spans, old.shape, strict=True)
        ]
    new = _physical_nest(nest, body, indices, dict(zip(axes, spans, strict=True)), values)
    inside = (replace(stmt, body=new),) if isinstance(stmt, tir.Block) else new
    done = exchange_at(func, place, inside)
    places = {loop.var.name: _followers(loop.var, indices, names) for loop in nest}
    made = {"axes": tuple(names)}
    return Rewrite(simplify(done).func, proofs, places, made)


def _initialization(outer: tir.For, buffer: tir.Buffer, domain: arith.Domain) -> int:
    """How many statements of a loop come before a nest in it that alone touches the buffer."""
    touching = [a.indices for a in tir.accesses((outer,), domain) if a.buffer == buffer]
    wanted = frozenset().union(*(arith.variables(e) for indices in touching for e in indices))
    if wanted <= {outer.var, *(axis.var for axis in domain.axes)}:
        return 0
    here = [any(a.buffer == buffer for a in tir.accesses((stmt,))) for stmt in outer.body]
    return len(here) - 1 if here[-1] and here.count(True) == 1 else 0


def _split_first(
    func: tir.PrimFunc,
    outer: tir.For,
    before: int,
    buffer: str,
    names: Sequence[str],
    whole_box: bool,
) -> Rewrite:
    """The access in order of the nest that is left when what comes before it is split off."""
    loop = outer.var.name
    try:
        parts = fission(func, loop, before, "_compute")
    except obligations.Unproven as error:
        reason = f"what comes before the nest in {loop} cannot be split off: {error.reason}"
        raise obligations.Unproven(reason, error.proof) from None
    (second,) = parts.made["second"]
    done = sequential_buffer_access(parts.func, second, buffer, names, whole_box)
    later = done.places.get(second, (second,))
    places = {**parts.places, **done.places, loop: (loop, *later)}
    return Rewrite(done.func, (*parts.proofs, *done.proofs), places, done.made)


def _output_nest(
    outer: tir.For, buffer: tir.Buffer, domain: arith.Domain
) -> tuple[tuple[tir.For, ...], tir.Body]:
    """The perfect nest from `outer` down to the innermost loop that the buffer's indices use."""
    first = next((a for a in tir.accesses((outer,), domain) if a.buffer == buffer), None)
    if first is None:
        raise ScheduleError(f"the loop {outer.var} does not touch {buffer.name}")
    wanted = frozenset().union(*(arith.variables(e) for e in first.indices))
    nest, body = [outer], outer.body
    while not wanted <= {loop.var for loop in nest}:
        below = body[0] if len(body) == 1 else None
        if not isinstance(below, tir.For):
            missing = sorted(v.name for v in wanted - {loop.var for loop in nest})
            raise ScheduleError(f"the loop {missing[0]} is not in a perfect nest below {outer.var}")
        nest.append(below)
        body = below.body
    return tuple(nest), body


def _indices(
    body: tir.Body, buffer: tir.Buffer, nest: tuple[tir.For, ...], domain: arith.Domain
) -> tuple[arith.IndexExpr, ...]:
    found = {a.indices for a in tir.accesses(body, domain) if a.buffer == buffer}
    if len(found) != 1:
        raise ScheduleError(f"the body of {nest[-1].var} touches {buffer.name} at several places")
    return next(iter(found))


def _any_order(
    nest: tuple[tir.For, ...], body: tir.Body, domain: arith.Domain
) -> tuple[arith.Proof, ...]:
    for loop in nest:
        domain = domain.inside(loop.var, loop.start, loop.stop)
    moving = tuple(loop.var for loop in nest)
    differ = arith.disjunction(
        arith.negation(arith.equal(v, arith.Var(v.name + "'"))) for v in moving
    )
    condition = f"the iterations of {', '.join(map(str, moving))} may run in any order"
    return dependence.ordered_commute(body, body, domain, moving, differ, condition)


def _spans(indices: tuple[arith.IndexExpr, ...], ranges: arith.Ranges) -> list[tuple[int, int]]:
    """For each index the smallest interval, end excluded, that it stays in."""
    box = [arith.bounds(index, ranges) for index in indices]
    if any(low is None or high is None for low, high in box):
        raise ScheduleError("the indices of the buffer are not bounded")
    return [(cast(int, low), cast(int, high) + 1) for low, high in box]


def _physical_nest(
    nest: tuple[tir.For, ...],
    body: tir.Body,
    indices: tuple[arith.IndexExpr, ...],
    axes: dict[arith.Var, tuple[int, int]],
    values: dict[arith.Var, arith.IndexExpr],
) -> tir.Body:
    ends = {axis: (low, high - 1) for axis, (low, high) in axes.items()}
    keep: list[arith.Predicate] = [
        arith.within(
            values[loop.var],
            arith.substitute(loop.start, values),
            arith.substitute(loop.stop, values),
        )
        for loop in nest
    ]
    keep += [
        arith.equal(arith.substitute(e, values), axis)
        for e, axis in zip(indices, axes, strict=True)
    ]
    guard = arith.simplify_predicate(arith.conjunction(keep), ends)
    new = tir.substitute_body(body, values)
    if guard != arith.TRUE:
        new = (tir.If(guard, new),)
    for axis, (low, high) in reversed(axes.items()):
        new = (tir.For(axis, arith.const(low), arith.const(high), tir.LoopKind.SERIAL, new),)
    return new


def _followers(
    var: arith.Var, indices: tuple[arith.IndexExpr, ...], names: Sequence[str]
) -> tuple[str, ...]:
    return tuple(n for e, n in zip(indices, names, strict=True) if var in arith.variables(e))
