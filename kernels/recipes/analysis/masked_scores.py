"""Scores of which a mask decides that they are small, whatever sum of products they are made of.

In: the value of a score as an expression of one load, the sum of products, and of masks and scales.
Out: an upper bound of the score where the sum is within bounds, as an expression of the masks.
What always holds: the expression is monotone in the sum, so that it is largest at one of two ends;
a NaN that the score can be within these bounds makes the upper bound NaN or infinite.

    s / 8 + mask[i, j]                     →  max(b / 8 + mask[i, j], -b / 8 + mask[i, j])
    select(seen[i, j], s / 8, lowest)      →  select(seen[i, j], inf, lowest)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, substitute
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace

ZERO = tir.Literal(0.0, "float32")
INFINITE = tir.Literal(float("inf"), "float32")

MOST_EXCLUDED = -1000.0
"""A score above that is not taken for one of an excluded key.  It decides about speed alone: where
other scores of the row are nearly as low, all keys are computed."""

KEY_BLOCK = 8
"""Keys that a band looks at together: a look folds the lanes of a vector once a block."""

KEY = Var("key.excluded")
"""Stands for a key."""

SUM = tir.Load(tir.Buffer("sum.of_products", ()), ())
"""Stands for the sum of products in a score."""


class MaskInput(Struct, frozen=True):
    """An input that excludes keys of a softmax: along `key_axis`, for the rows along `row_axis`, or
    for all of them.

    `shows` is the element that does not exclude a key, and `fill` the input whose only element is
    the score of an excluded one; None where masks are added to scores, and where it is a constant.
    """

    name: str
    key_axis: int
    row_axis: int | None
    shows: bool | None
    fill: str | None


class MaskedScore(Struct, frozen=True):
    """The `value` of a score in terms of `SUM`, at the index `key`, which counts `keys`."""

    value: tir.Expr
    key: Var
    keys: int


@lru_cache(maxsize=1024)
def masked_score(func: tir.PrimFunc) -> MaskedScore:
    """The scores of which the stages of a kernel take powers; ScheduleError where there are none,
    or no mask excludes any of their keys."""
    writers: dict[tir.Buffer, list[tir.Store | tir.Reduce]] = {}
    for write in tir.writes_in(func.body):
        writers.setdefault(write.buffer, []).append(write)
    for write in tir.writes_in(func.body):
        match write.value:
            case tir.Unary("exp", tir.Binary("sub", tir.Load() as x, tir.Load() as most)):
                own = [e for e in x.indices if e not in most.indices]
                if len(own) == 1 and isinstance(own[0], Var):
                    value = _inlined(x, writers)
                    require_masked(value, SUM, own[0])
                    keys = x.buffer.shape[x.indices.index(own[0])]
                    if keys <= KEY_BLOCK:
                        raise ScheduleError(f"{keys} keys are no more than are looked at together")
                    return MaskedScore(value, own[0], keys)
    raise ScheduleError("no powers of masked scores are taken")


def _inlined(value: tir.Expr, writers: dict[tir.Buffer, list[tir.Store | tir.Reduce]]) -> tir.Expr:
    """An expression with what stages store in the place of loads of it, and `SUM` for a sum."""

    def change(e: tir.Expr) -> tir.Expr:
        if not isinstance(e, tir.Load) or not (found := writers.get(e.buffer)):
            return e
        if any(isinstance(write, tir.Reduce) for write in found):
            return SUM
        store, pairs = found[0], zip(found[0].indices, e.indices, strict=True)
        if len(found) > 1 or not all(isinstance(v, Var) or v is i for v, i in pairs):
            raise ScheduleError(f"{e.buffer.name} is not written by one store of each element")
        names = {v: i for v, i in zip(store.indices, e.indices, strict=True) if isinstance(v, Var)}
        return _inlined(with_indices(store.value, names), writers)

    return tir.map_expr(value, change)


def with_indices(value: tir.Expr, names: dict[Var, IndexExpr]) -> tir.Expr:
    """An expression with other indices in the place of variables."""

    (stmt,) = tir.substitute_body((tir.Store(SUM.buffer, (), value),), names)
    assert isinstance(stmt, tir.Store)
    return stmt.value


def with_names(load: tir.Load, names: Mapping[Var, IndexExpr]) -> tir.Load:
    """A load with other indices in the place of variables."""
    return replace(load, indices=tuple(substitute(e, names) for e in load.indices))


def mask_inputs(func: tir.PrimFunc, row: Var) -> tuple[MaskInput, ...]:
    """The parameters each of which decides by itself which keys are excluded from a `row`."""
    try:
        score = masked_score(func)
    except ScheduleError:
        return ()
    names = {param.buffer.name for param in func.params}
    found = _masks_in(score.value, score.key, row)
    return tuple(mask for mask in found if mask.name in names)


def _masks_in(value: tir.Expr, key: Var, row: Var) -> Iterator[MaskInput]:
    match value:
        case tir.Select(condition, left, right) if depends_on(left, SUM) != depends_on(right, SUM):
            shows = depends_on(left, SUM)
            fill = right if shows else left
            mask = condition.operand if isinstance(condition, tir.Unary) else condition
            if not isinstance(mask, tir.Load):
                return
            shows = shows == (mask is condition)
            if isinstance(fill, tir.Load) and not fill.indices:
                yield from _mask(mask, key, row, shows, fill.buffer.name)
            elif isinstance(fill, tir.Literal) and fill.value <= MOST_EXCLUDED:
                yield from _mask(mask, key, row, shows, None)
        case tir.Binary("add", left, right):
            for added, rest in ((left, right), (right, left)):
                if isinstance(added, tir.Load) and depends_on(rest, SUM):
                    yield from _mask(added, key, row, None, None)
                    yield from _masks_in(rest, key, row)


def _mask(
    load: tir.Load, key: Var, row: Var, shows: bool | None, fill: str | None
) -> Iterator[MaskInput]:
    if key in load.indices:
        rows = load.indices.index(row) if row in load.indices else None
        yield MaskInput(load.buffer.name, load.indices.index(key), rows, shows, fill)


def depends_on(value: tir.Expr, base: tir.Load) -> bool:
    """Whether an expression reads an element, such as the sum of products."""
    return any(node == base for node in tir.walk_expr(value))


def require_masked(value: tir.Expr, base: tir.Load, key: Var) -> None:
    """ScheduleError where no mask decides a score for its `key`, or the sum `base` does not enter
    it by monotone steps."""
    _require_monotone(value, base)
    if not _varies(value, base, key):
        raise ScheduleError("no mask excludes keys: scores are made of sums of products alone")


def _require_monotone(value: tir.Expr, base: tir.Load) -> None:
    if value == base or not depends_on(value, base):
        return
    match value:
        case tir.Select(condition, left, right) if not _decides(condition, base):
            _require_monotone(left, base)
            _require_monotone(right, base)
            return
        case tir.Unary("neg", operand):
            _require_monotone(operand, base)
            return
        case tir.Binary("add" | "sub" | "mul", left, right) if not (
            depends_on(left, base) and depends_on(right, base)
        ):
            _require_monotone(left, base)
            _require_monotone(right, base)
            return
        case tir.Binary("div", left, right) if not depends_on(right, base):
            _require_monotone(left, base)
            return
    raise ScheduleError(f"{tir.expr_text(value)} is not known to be monotone in the sum")


def _decides(condition: tir.Condition, base: tir.Load) -> bool:
    return isinstance(condition, tir.EXPRESSIONS) and depends_on(condition, base)


def _varies(value: tir.Expr, base: tir.Load, key: Var) -> bool:
    """Whether anything but the sum differs from key to key."""
    rest = tir.exchanged(value, base, INFINITE)
    return key in tir.expression_variables(rest)


def needs_bound(value: tir.Expr, base: tir.Load) -> bool:
    """Whether an upper bound of an excluded score depends on the sum."""
    return depends_on(_where_excluded(value, base), base)


def upper_bound(value: tir.Expr, base: tir.Load, bound: tir.Expr) -> tir.Expr:
    """What a score is at most, where the sum is within ± `bound`, a positive number."""
    excluded = _where_excluded(value, base)
    if not depends_on(excluded, base):
        return excluded
    ends = (bound, tir.Unary("neg", bound))
    high, low = (tir.exchanged(excluded, base, end) for end in ends)
    return tir.Binary("max", high, low)


def _where_excluded(value: tir.Expr, base: tir.Load) -> tir.Expr:
    """The score, infinite where a selection at its end takes a side that depends on the sum."""
    match value:
        case tir.Select(condition, left, right) if depends_on(left, base) != depends_on(
            right, base
        ):
            shown = depends_on(left, base)
            return tir.Select(condition, INFINITE if shown else left, right if shown else INFINITE)
    return value
