"""The stages of a kernel that multiplies transformed tiles, found by what they read and write.

In: a definition.  Out: its `FilteredStages`, None where it is no such kernel: one stage multiplies
an intermediate with an input at each position of a tile, stages before it transform tiles of
another input, and stages behind it transform the sums back and store them at their places.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import prod

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Var, variables
from graphflow.base.dtypes import DTYPES
from graphflow.cost import TransformedTiles

GUARDS, STAGES = 2, 8
"""The stages that look at elements of floats first, and those that every such kernel has."""


class StageLoops(Struct, frozen=True):
    """A stage: its block, its loops from the outermost in, and the buffer that it writes."""

    block: str
    loops: tuple[Var, ...]
    extents: tuple[int, ...]
    writes: tir.Buffer
    reads: tuple[tir.Buffer, ...]
    additions: int
    """Additions and subtractions in its statements, each written once."""
    operations: int
    """All operations in its statements."""


class FilteredStages(Struct, frozen=True):
    """The stages in their order; `tails` are elementwise stages that follow.

    `guards` are the stages that look at elements of floats, none where integers are added up.  `x`
    is the image, `u` are the transformed weights, `y` is the output, and `w` are the plain weights,
    which rows of tiles with large elements read.
    """

    guards: tuple[StageLoops, ...]
    data: StageLoops
    rows: StageLoops
    columns: StageLoops
    products: StageLoops
    output_rows: StageLoops
    output_columns: StageLoops
    started: StageLoops
    untiled: StageLoops
    tails: tuple[StageLoops, ...]
    x: tir.Buffer
    u: tir.Buffer
    w: tir.Buffer | None
    y: tir.Buffer
    counted: tuple[bool, bool]
    """Whether a run may give fewer rows of tiles, and fewer tiles of a row."""

    @property
    def stages(self) -> tuple[StageLoops, ...]:
        """The stages without the tails, in their order."""
        return (
            *self.guards, self.data, self.rows, self.columns, self.products,
            self.output_rows, self.output_columns, self.started, self.untiled,
        )  # fmt: skip

    @property
    def tile(self) -> int:
        """The extent of a tile of outputs along each axis that it is transformed along."""
        return self.started.extents[4]

    @property
    def axes(self) -> int:
        """The axes along which tiles are transformed: two of an image, one of a sequence."""
        return len(self.x.shape) - 2

    @property
    def work(self) -> TransformedTiles:
        """What the cost model asks of such a kernel."""
        return TransformedTiles(
            self.tile,
            self.u.shape[1],
            (self.columns.additions, self.output_columns.additions),
            self.x.shape[0],
            *self.tiles,
            prod(self.guards[0].extents[3:]) if self.guards else 0,
            self.channels,
            sum(tail.operations for tail in self.tails),
            DTYPES[self.u.dtype].itemsize,
            bool(self.guards),
            self.axes,
            self.counted,
        )

    @property
    def tiles(self) -> tuple[int, int]:
        """The rows of tiles of an image, and the tiles of a row."""
        return self.products.extents[3], self.products.extents[4]

    @property
    def channels(self) -> tuple[int, int]:
        """The input channels and the output channels."""
        return self.u.shape[2], self.u.shape[3]


@lru_cache(maxsize=1024)
def filtered_stages(definition: tir.PrimFunc) -> FilteredStages | None:
    """The stages of a definition with transformed tiles; None for any other kernel."""
    blocks = [s for s in definition.body if isinstance(s, tir.Block)]
    stages = [_stage(block) for block in blocks]
    if len(stages) < STAGES or len(definition.outputs) != 1 or None in stages:
        return None
    all_of_them = [stage for stage in stages if stage is not None]
    for guards in (GUARDS, 0):
        found = _found(definition, all_of_them[:guards], all_of_them[guards:])
        if found is not None:
            return found
    return None


def _found(
    definition: tir.PrimFunc, guards: list[StageLoops], others: list[StageLoops]
) -> FilteredStages | None:
    """The stages, if the `others` are those that every such kernel has and its tails."""
    if len(others) < STAGES:
        return None
    data, rows, columns, products, output_rows, output_columns, started, untiled = others[:STAGES]
    inputs = {buffer for buffer in definition.inputs if buffer.shape}
    factors = [b for b in products.reads if b in inputs]
    if len(products.loops) != 7 or len(factors) != 1 or len(factors[0].shape) != 4:
        return None
    if any(a.writes not in b.reads for a, b in pairwise(others[:STAGES])):
        return None
    given = [b for b in data.reads if b in inputs]
    plain = [b for b in output_columns.reads if b in inputs and b not in given]
    if len(given) != 1 or len(plain) != bool(guards):
        return None
    if guards and guards[-1].writes not in output_columns.reads:
        return None
    return FilteredStages(
        tuple(guards),
        data,
        rows,
        columns,
        products,
        output_rows,
        output_columns,
        started,
        untiled,
        tuple(others[STAGES:]),
        given[0],
        factors[0],
        plain[0] if plain else None,
        definition.outputs[0],
        _counted(definition, data),
    )


def _counted(definition: tir.PrimFunc, data: StageLoops) -> tuple[bool, bool]:
    """Whether the rows and the columns that the data stage takes of an image end at counts; of a
    sequence only the rows that it is cut to."""
    (block,) = (s for s in definition.body if isinstance(s, tir.Block) and s.name == data.block)
    indices = [
        e.left.index
        for write in tir.writes_in(block.body)
        for e in tir.walk_expr(write.value)
        if isinstance(e, tir.Comparison) and isinstance(e.left, tir.IndexValue)
    ]
    _, row, column, *_ = data.loops
    by_row, by_column = (any(var in variables(index) for index in indices) for var in (row, column))
    is_sequence = len(definition.outputs[0].shape) == 3
    return by_row, by_column and not is_sequence


def _stage(block: tir.Block) -> StageLoops | None:
    loops = [*tir.loops_of(block.body)]
    writes = list(dict.fromkeys(s.buffer for s in tir.writes_in(block.body)))
    reads = dict.fromkeys(load.buffer for load in tir.loads_in(block.body))
    extents = [loop.extent for loop in loops]
    if len(writes) != 1 or None in extents:
        return None
    return StageLoops(
        block.name,
        tuple(loop.var for loop in loops),
        tuple(n for n in extents if n is not None),
        writes[0],
        tuple(reads),
        sum(
            isinstance(e, tir.Binary) and e.op in ("add", "sub")
            for stmt in tir.writes_in(block.body)
            for e in tir.walk_expr(stmt.value)
        ),
        sum(
            not isinstance(e, tir.Load | tir.Literal)
            for stmt in tir.writes_in(block.body)
            for e in tir.walk_expr(stmt.value)
        ),
    )
