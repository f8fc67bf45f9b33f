"""The stages of a kernel that multiplies transformed tiles, found by what they read and write.

In: a definition.  Out: its `FilteredStages`, None where it is no such kernel: one stage multiplies
an intermediate with an input at each position of a tile, stages before it transform tiles of
another input, and stages behind it transform the sums back and store them at their places.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from graphflow import tir
from graphflow.arith import Var
from graphflow.cost import TransformedTiles

STAGES = 10
"""The stages of such a kernel without its tails."""


@dataclass(frozen=True, slots=True)
class StageLoops:
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


@dataclass(frozen=True, slots=True)
class FilteredStages:
    """The stages in their order; `tails` are elementwise stages that follow.

    `x` is the image, `u` are the transformed weights, `w` the plain ones, `y` is the output.
    """

    zeros: StageLoops
    bounded: StageLoops
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
    w: tir.Buffer
    y: tir.Buffer

    @property
    def stages(self) -> tuple[StageLoops, ...]:
        """The stages without the tails, in their order."""
        return (
            self.zeros, self.bounded, self.data, self.rows, self.columns, self.products,
            self.output_rows, self.output_columns, self.started, self.untiled,
        )  # fmt: skip

    @property
    def tile(self) -> int:
        """The extent of a tile of outputs."""
        return self.output_columns.extents[3]

    @property
    def work(self) -> TransformedTiles:
        """What the cost model asks of such a kernel."""
        return TransformedTiles(
            self.tile,
            self.u.shape[0],
            (self.rows.additions, self.output_rows.additions),
            self.x.shape[0],
            *self.tiles,
            self.x.shape[3],
            self.channels,
            sum(tail.operations for tail in self.tails),
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
    found = [stage for stage in stages if stage is not None]
    first, tails = found[:STAGES], tuple(found[STAGES:])
    products = first[5]
    inputs = set(definition.inputs)
    factors = [b for b in products.reads if b in inputs]
    if len(products.loops) != 7 or len(factors) != 1 or len(factors[0].shape) != 4:
        return None
    chain = first[2:]
    if any(a.writes not in b.reads for a, b in pairwise(chain)):
        return None
    given = [b for b in first[2].reads if b in inputs]
    plain = [b for b in first[7].reads if b in inputs and b not in given]
    if len(given) != 1 or len(plain) != 1 or first[1].writes not in first[7].reads:
        return None
    (
        zeros, bounded, data, rows, columns, products, output_rows, output_columns, started, untiled
    ) = first  # fmt: skip
    return FilteredStages(
        zeros,
        bounded,
        data,
        rows,
        columns,
        products,
        output_rows,
        output_columns,
        started,
        untiled,
        tails,
        given[0],
        factors[0],
        plain[0],
        definition.outputs[0],
    )


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
