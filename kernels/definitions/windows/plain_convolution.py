"""The convolution that a kernel begins with, where it has a definition in transformed tiles.

In: a kernel.  Out: its convolution of stride 1 with 3 taps along each axis, or why it has none that
is one.  What always holds: the stage found is, statement by statement, that of
`convolution.convolution`, of which only the numbers that it adds up from may be others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Var, constant_value, variables
from graphflow.base.fields import replace
from graphflow.kernels.definitions.scalar_functions import as_type
from graphflow.kernels.definitions.windows.convolution import convolution
from graphflow.kernels.definitions.windows.filtering import TAPS, Filtering, filtering_of
from graphflow.kernels.definitions.windows.window import Window

FLOAT, WORD, SUM = "float32", "int16", "int32"

TYPES = ((FLOAT, FLOAT, FLOAT), (WORD, WORD, SUM))
"""The types of an image, of weights and of sums for which there are transformed tiles."""

SIDES = 2, 3
"""The axes of an image that its windows slide along."""


class NotFilterable(Exception):
    """Why a kernel has no such definition."""


class Convolution(Struct, frozen=True):
    """The convolution in a kernel: its stage, operands and result, and what it adds up from."""

    stage: tir.Block
    x: tir.Buffer
    w: tir.Buffer
    y: tir.Buffer
    start: tir.Store
    pads: tuple[int, ...]
    """Rows and columns of padding in front of the image; elements in front of a sequence."""

    @property
    def sums_integers(self) -> bool:
        """Whether it adds up integers."""
        return self.y.dtype == SUM

    @property
    def taps(self) -> int:
        """The products of each output and pair of channels."""
        return prod(self.w.shape[2:])

    def filters(self, tile: int) -> tuple[Filtering, Filtering]:
        """The matrices along the rows and the columns of its tiles."""
        return filtering_of(len(self.pads), tile)


def plain_convolution(func: tir.PrimFunc) -> Convolution:
    """The convolution that a kernel begins with; NotFilterable where it has none that is one of
    3 or 3×3 weights with stride 1, of float32 or of 16-bit integers, without groups and dilation,
    and nothing else that reduces.
    """
    blocks = [s for s in func.body if isinstance(s, tir.Block)]
    reducing = [b for b in blocks if any(isinstance(s, tir.Reduce) for s in tir.walk(b.body))]
    if len(reducing) != 1 or blocks[0] is not reducing[0]:
        raise NotFilterable(f"{func.name} does not begin with its only reduction")
    block = reducing[0]
    loops = [s for s in tir.walk(block.body) if isinstance(s, tir.For)]
    update = next(s for s in tir.walk(block.body) if isinstance(s, tir.Reduce))
    start = next((s for s in tir.walk(block.body) if isinstance(s, tir.Store)), None)
    factors = _factors(update.value)
    if len(loops) not in (5, 7) or start is None or factors is None:
        raise NotFilterable(f"{func.name} is no convolution of images or sequences")
    data, weight = factors
    x, w, y = data.buffer, weight.buffer, update.buffer
    axes = len(x.shape) - 2
    if len(loops) != 3 + 2 * axes or w.shape[2:] != (TAPS,) * axes or x.shape[1] != w.shape[1]:
        raise NotFilterable(f"{func.name} has no weights of {TAPS} taps along each axis")
    if (x.dtype, w.dtype, y.dtype) not in TYPES or x not in func.inputs or w not in func.inputs:
        raise NotFilterable(
            f"{func.name} has no operands of float32 or of 16-bit integers that are given"
        )
    places, taps = ([loop.var for loop in part] for part in (loops[2 : 2 + axes], loops[-axes:]))
    begins = [
        constant_value(k + o - place)
        for place, o, k in zip(data.indices[2:], places, taps, strict=True)
    ]
    if any(begin is None or begin < 0 for begin in begins):
        raise NotFilterable(f"{func.name} has strides or dilations")
    ends = [
        n + TAPS - 1 - size - int(begin or 0)
        for n, size, begin in zip(y.shape[2:], x.shape[2:], begins, strict=True)
    ]
    found = Convolution(block, x, w, y, start, tuple(int(begin or 0) for begin in begins))
    starts_from = {v for load in tir.loads_in((start,)) for e in load.indices for v in variables(e)}
    if starts_from - {loops[1].var}:
        raise NotFilterable(f"{func.name} adds up from other numbers than one for each channel")
    if min(ends) < 0 or not _is_plain(found, (*found.pads, *ends), [loop.var for loop in loops]):
        raise NotFilterable(f"{func.name} is no convolution of images or sequences")
    return found


def _factors(value: tir.Expr) -> tuple[tir.Load, tir.Load] | None:
    """What a product multiplies, both factors as they are or cast to the type of the sum."""
    match value:
        case tir.Binary("mul", tir.Load() as left, tir.Load() as right):
            return left, right
        case tir.Binary("mul", tir.Cast(tir.Load() as left), tir.Cast(tir.Load() as right)):
            return left, right
        case _:
            return None


def _is_plain(found: Convolution, pads: Sequence[int], loops: Sequence[Var]) -> bool:
    """Whether the stage is that of a convolution's definition, with these pads and loops."""
    window = Window.of(found.w.shape[2:], pads=pads)
    expected = convolution(found.x.shape, found.w.shape, window, dtype=found.y.dtype)
    names = dict(zip((loop.var for loop in tir.loops_of(expected.body)), loops, strict=True))
    operands = dict(zip(expected.inputs, (found.x, found.w), strict=True))

    def read(e: tir.Expr) -> tir.Expr:
        if not isinstance(e, tir.Load):
            return e
        return as_type(tir.Load(operands[e.buffer], e.indices), found.y.dtype)

    def changed(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.For):
            return replace(stmt, var=names[stmt.var])
        return replace(stmt, value=found.start.value) if isinstance(stmt, tir.Store) else stmt

    body = tir.map_expressions(tir.substitute_body(expected.body, dict(names)), read)
    body = tir.rename_buffers(body, {expected.outputs[0]: found.y})
    (stage,) = tir.map_body(body, changed)
    return isinstance(stage, tir.Block) and stage.body == found.stage.body
