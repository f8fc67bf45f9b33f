"""How constant operands are packed: panel after panel, each read once from front to back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from graphflow.arith import FloorMod, IndexExpr, Var, variables
from graphflow.kernels.recipes.roles import Roles
from graphflow.layout import IndexMap, Layout
from graphflow.tir import Buffer


def packed_layout(
    roles: Roles,
    buffer: Buffer,
    lane: int,
    width: int,
    layouts: Mapping[str, Layout],
    group: int = 0,
) -> Layout:
    """The layout of a constant operand that runs along the lanes, in panels of `width`.

    `layouts` are those of the other operands: the reduction runs in the order of the data operand.
    Panels do not cross from one `group` of channels into the next.
    """
    access = roles.reads[buffer.name][0]
    if len(access.indices) == 1:
        whole = group or buffer.shape[0]
        size = buffer.shape[0] - whole + -(-whole // width) * width
        return Layout.of(IndexMap.identity(1), buffer.shape, (size,))
    lane_of = next(k for k, e in enumerate(access.indices) if e is roles.axes[lane])
    order, blocked = _reduction_order(roles, layouts)
    axes = [k for v in order for k, e in enumerate(access.indices) if e is v and k != lane_of]
    split = None
    if blocked is not None:
        split = next(
            ((k, blocked[1]) for k, e in enumerate(access.indices) if e is blocked[0]), None
        )
    return packed_weights(buffer.shape, lane_of, width, tuple(axes), split, group)


def _reduction_order(
    roles: Roles, layouts: Mapping[str, Layout]
) -> tuple[list[Var], tuple[Var, int] | None]:
    """Reduction variables by falling stride in the data operand, and the one that is blocked."""
    data = next((n for n in layouts if n in roles.reads and roles.reads[n]
                 and any(v in variables(e) for v, _ in roles.reduction
                         for e in roles.reads[n][0].indices)), None)  # fmt: skip
    order = [v for v, _ in roles.reduction]
    if data is None:
        return order, None
    access, layout = roles.reads[data][0], layouts[data]
    physical = layout.physical_index(access.indices)
    strides = layout.buffer(data, "float32").strides
    key: dict[Var, int] = {}
    blocked: tuple[Var, int] | None = None
    for var in order:
        touched = [s for e, s in zip(physical, strides, strict=True) if var in variables(e)]
        key[var] = max(touched, default=0)
        for e in physical:
            if isinstance(e, FloorMod) and e.numerator is var:
                blocked = (var, e.divisor)
    return sorted(order, key=lambda v: (-key[v], order.index(v))), blocked


@lru_cache(maxsize=4096)
def packed_weights(
    shape: tuple[int, ...],
    lane: int,
    width: int,
    order: tuple[int, ...],
    blocked: tuple[int, int] | None = None,
    group: int = 0,
) -> Layout:
    """Logical weight axes → `[lane // width, order …, lane % width]`, one panel after another.

    `order` are the other axes from the outermost in; `blocked = (axis, b)` splits one of them, its
    rest innermost before the lanes.  With a `group` the lane axis is first cut into groups.
    """

    def place(*i: Var) -> list[IndexExpr]:
        within = i[lane] % group if group else i[lane]
        out: list[IndexExpr] = [i[lane] // group] if group else []
        out.append(within // width)
        tail: list[IndexExpr] = []
        for axis in order:
            if blocked is not None and axis == blocked[0]:
                out.append(i[axis] // blocked[1])
                tail.append(i[axis] % blocked[1])
            else:
                out.append(i[axis])
        return [*out, *tail, within % width]

    index_map = IndexMap.from_function(len(shape), place, shape)
    smallest = Layout.of(index_map, shape).physical_shape
    return Layout.of(index_map, shape, (*smallest[:-1], width))
