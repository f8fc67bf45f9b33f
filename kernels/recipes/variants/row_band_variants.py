"""The variants of kernels that compute two products in one pass over bands of rows, with prices.

In: a definition with `RowBands`, its constants, the layouts in which inputs are offered, the
target. Out: a variant for each choice of layouts of its inputs, in bands as wide as is cheapest;
where a band does not fit, or a step is refused, the refusal.

What always holds: the rows of a band are lanes.  An input or output that lies in rows is transposed
on the way, a band at a time, or packed so that the rows are contiguous where it is constant; other
inputs are read element by element, where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from graphflow import cost, tir
from graphflow.arith import IndexExpr, Var, terms_of, variables
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.band_products import (
    ONE_PASS,
    BandProduct,
    RowBands,
    row_bands_of,
    rows_of_bands,
)
from graphflow.kernels.recipes.analysis.kernel_context import ALONE, KernelContext
from graphflow.kernels.recipes.analysis.known_contents import KnownContents
from graphflow.kernels.recipes.analysis.masked_scores import (
    KEY_BLOCK,
    SUM,
    masked_score,
    needs_bound,
)
from graphflow.kernels.recipes.analysis.operand_layouts import Offers
from graphflow.kernels.recipes.analysis.positions import flat_offset, touched
from graphflow.kernels.recipes.analysis.shared_loops import joined_stages
from graphflow.kernels.recipes.analysis.variant import (
    KernelVariant,
    Padding,
    RefusedVariant,
    SharedLoops,
)
from graphflow.kernels.recipes.variants.stage_variants import statement_cycles
from graphflow.layout import IndexMap, Layout, row_major
from graphflow.schedule import Refusal

MOST_VECTORS = 4
"""Vectors of a band: with more, too few elements of a sum fit the registers beside them."""

MOST_MASKED_VECTORS = 2
"""The same where bands leave out keys: wider ones leave out fewer, and their tiles have fewer keys.
By price four vectors are 1 % cheaper; with them a decoder of 1,024 tokens took 173 ms, not 158."""

LEFT_OUT = "but for keys that a mask excludes"
"""What the name of a variant ends with whose bands leave out such keys."""


def row_band_variants(
    definition: tir.PrimFunc,
    constants: frozenset[str],
    target: Target,
    context: KernelContext = ALONE,
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants of a definition with two sums of products for each row; nothing for others.

    Bands are as wide as the fewest rows of a run at most: a run of one row would compute a vector.
    """
    bands = row_bands_of(definition)
    if isinstance(bands, Refusal):
        return
    beside = rows_of_bands(definition)
    fewest = min((n for axis, n in context.fewest if axis in beside), default=None)
    packed = constants | _shared_by_planes(bands)
    refusal = _refusal(bands, definition, packed, target, fewest)
    if refusal is not None:
        yield RefusedVariant(ONE_PASS, refusal)
        return
    whole = _refused_mask(bands)
    if whole is not None:
        yield RefusedVariant(f"{ONE_PASS}, {LEFT_OUT}", whole)
    lanes = target.computed_lanes("float32")
    most = MOST_VECTORS if whole is not None else MOST_MASKED_VECTORS
    for layouts in _layouts(bands, definition, packed, context.offered, lanes):
        recipes = [
            replace(recipe, leaves_out=whole is None)
            for recipe in _recipes(bands, definition, packed, target, fewest)
            if recipe.vectors <= most
        ]
        priced = [
            (_cycles(bands, layouts, recipe, target, context.known), recipe) for recipe in recipes
        ]
        cycles, recipe = min(priced, key=lambda item: item[0])
        yield _variant(bands, definition, constants, layouts, recipe, cycles)


def _refusal(
    bands: RowBands,
    definition: tir.PrimFunc,
    packed: frozenset[str],
    target: Target,
    fewest: int | None,
) -> Refusal | None:
    try:
        buffers = [p.buffer for p in definition.params]
        floats = [
            b for b in buffers if b.name not in packed and (b.shape, b.dtype) != ((), "int64")
        ]
        narrow = [
            b.name
            for b in floats
            if b.dtype != "float32" and (b.dtype != "bool" or b.name in bands.across)
        ]
        if narrow:
            raise ScheduleError(f"{narrow[0]} is not of float32, in whose lanes bands are computed")
        extent = bands.schedule.loop(bands.shared[-1]).extent or 1
        if extent < target.computed_lanes("float32"):
            raise ScheduleError(f"{extent} rows do not fill a vector")
        if fewest is not None and fewest < target.computed_lanes("float32"):
            raise ScheduleError(
                f"a run may have few rows, {fewest}, for many keys, and bands have whole vectors"
            )
        if not any(True for _ in _recipes(bands, definition, packed, target, fewest)):
            raise ScheduleError(
                f"what is between the products takes more of a band's rows than "
                f"{target.stack_bytes} bytes of stack"
            )
        transposed = _transposed(bands, packed)
        if len(joined_stages(definition, transposed)[1]) != len(bands.shared):
            raise ScheduleError(
                f"of {', '.join(transposed)}, which lie in rows, one serves several planes"
            )
    except ScheduleError as error:
        return Refusal.of(error)
    return None


def _refused_mask(bands: RowBands) -> Refusal | None:
    """Why the bands of a definition leave out no keys; None where they do."""
    try:
        masked_score(bands.schedule.func)
    except ScheduleError as error:
        return Refusal.of(error)
    return None


def _shared_by_planes(bands: RowBands) -> frozenset[str]:
    """The inputs that lie in rows, of which several planes of rows read the same elements: they
    have their rows innermost in memory, and are not transposed for each plane."""
    s = bands.schedule
    loops = {s.loop(place).var for place in bands.shared if (s.loop(place).extent or 1) > 1}
    used: dict[str, set[Var]] = {}
    for access in tir.accesses(s.func.body):
        if access.buffer in s.func.inputs and access.buffer.name in bands.across:
            read = used.setdefault(access.buffer.name, set())
            read.update(*map(variables, access.indices))
    return frozenset(name for name, read in used.items() if not loops <= read)


def _transposed(bands: RowBands, packed: frozenset[str]) -> tuple[str, ...]:
    """The parameters that are transposed a band at a time."""
    return tuple(name for name in bands.across if name not in packed)


def _recipes(
    bands: RowBands,
    definition: tir.PrimFunc,
    packed: frozenset[str],
    target: Target,
    fewest: int | None,
) -> Iterator[SharedLoops]:
    """The recipes for bands of one vector and more that fill whole vectors, also in runs with the
    `fewest` rows, and fit the stack."""
    lanes = target.computed_lanes("float32")
    extent = bands.schedule.loop(bands.shared[-1]).extent or 1
    shared, held = len(bands.shared), _held_by_a_row(bands)
    for vectors in range(1, MOST_VECTORS + 1):
        if (
            lanes * vectors > min(extent, fewest or extent)
            or held * lanes * vectors > target.stack_bytes
        ):
            return
        most = min((target.vector_registers - 1 - vectors) // vectors, cost.MOST_ROWS)
        yield SharedLoops(
            lanes, 1, shared - 1, vectors, _transposed(bands, packed), tile=_tile(bands, most)
        )


def _held_by_a_row(bands: RowBands) -> int:
    """The bytes of what is between the products, of one row.

    What a stage makes takes the memory of what it is the last to read, if it does so at the same
    place, and of what no stage reads any more (`schedule.reuse_buffer`).
    """
    sizes = _bytes_made(bands)
    stages = [[*tir.accesses((stmt,))] for stmt in bands.schedule.loop(bands.shared[-1]).body]
    last = {access.buffer: number for number, stage in enumerate(stages) for access in stage}
    held: list[tir.Buffer] = []
    left = dict(sizes)
    for number, stage in enumerate(stages):
        for made in dict.fromkeys(access.buffer for access in stage):
            if left.pop(made, None) is None:  # a parameter, or what an earlier stage makes
                continue
            free = (
                other
                for other in held
                if sizes[other] == sizes[made]
                and (last[other] < number or (last[other] == number and _meet(stage, other, made)))
            )
            if (taken := next(free, None)) is not None:
                held.remove(taken)
            held.append(made)
    return sum(sizes[buffer] for buffer in held)


def _bytes_made(bands: RowBands) -> dict[tir.Buffer, int]:
    """The bytes that the stages store of each buffer for one row."""
    sizes: dict[tir.Buffer, int] = {}
    for site in tir.sites(bands.schedule.func.body):
        if isinstance(site.stmt, tir.Store):
            buffer = site.stmt.buffer
            own = tir.iteration_count(site.domain.axes[len(bands.shared) :])
            sizes[buffer] = max(sizes.get(buffer, 0), own * tir.DTYPES[buffer.dtype].itemsize)
    return sizes


def _meet(stage: Sequence[tir.Access], read: tir.Buffer, made: tir.Buffer) -> bool:
    """Whether each iteration of a stage touches two buffers at one place, which is the same."""
    return len({access.indices for access in stage if access.buffer in (read, made)}) == 1


def _tile(bands: RowBands, most: int) -> int:
    """The elements of a sum that a tile holds: at most so many, and as even as possible for all."""
    extents = [one.own.extent or 1 for one in bands.products]
    return min(range(1, most + 1), key=lambda n: (sum(-(-e // n) / e for e in extents), -n))


def _layouts(
    bands: RowBands,
    definition: tir.PrimFunc,
    packed: frozenset[str],
    offered: Offers,
    lanes: int,
) -> Iterator[dict[str, Layout]]:
    """The layouts of the parameters: inputs row-major or as offered, those in `packed` with rows
    innermost, the output row-major."""
    given = dict(offered)
    choices: list[list[Layout]] = []
    for param in definition.params:
        buffer = param.buffer
        plain = row_major(buffer.shape)
        if buffer.name in packed:
            is_across = buffer.name in bands.across
            choices.append([_rows_innermost(bands, buffer, lanes) if is_across else plain])
        elif param.role is tir.Role.INPUT:
            others = (x for x in given.get(buffer.name, ()) if not x.is_padded)
            choices.append([plain, *others])
        else:
            choices.append([plain])
    for chosen in product(*choices):
        yield dict(zip((p.buffer.name for p in definition.params), chosen, strict=True))


def _rows_innermost(bands: RowBands, buffer: tir.Buffer, lanes: int) -> Layout:
    """The layout of an input with the axis of the rows innermost; in blocks of `lanes`, where
    these are whole, so that a band of rows reads one piece of memory."""
    (access, *_) = (
        a for a in tir.accesses(bands.schedule.func.body) if a.buffer.name == buffer.name
    )
    shape, rows = buffer.shape, [k for k, index in enumerate(access.indices) if index is bands.row]
    if len(rows) != 1:  # no axis is that of the rows alone
        return row_major(shape)
    (row,) = rows
    if prod(shape) == shape[row]:
        return row_major(shape)
    others = [k for k in range(len(shape)) if k != row]
    in_blocks = shape[row] % lanes == 0

    def place(*at: IndexExpr) -> tuple[IndexExpr, ...]:
        around = [at[k] for k in others]
        return (at[row] // lanes, *around, at[row] % lanes) if in_blocks else (*around, at[row])

    around = [shape[k] for k in others]
    box = (shape[row] // lanes, *around, lanes) if in_blocks else (*around, shape[row])
    return Layout.of(IndexMap.from_function(len(shape), place, shape), shape, box)


def _cycles(
    bands: RowBands,
    layouts: Mapping[str, Layout],
    recipe: SharedLoops,
    target: Target,
    known: KnownContents,
) -> float:
    """The cycles of one core: register tiles of the products, and passes of vectors for the rest.

    The rows of the last band are counted as if there were as many as of the others.  Of all this,
    the share for the keys that known masks do not exclude, and a look at the others.
    """
    func, shared = bands.schedule.func, [bands.schedule.loop(place) for place in bands.shared]
    extent, width = shared[-1].extent or 1, recipe.lanes * recipe.vectors
    planes = prod(loop.extent or 1 for loop in shared[:-1])
    count = planes * -(-extent // width)
    cycles = sum(count * _product_cycles(one, layouts, recipe, target) for one in bands.products)
    rows = [_rows_read(one, layouts) for one in bands.products]
    cycles += count * cost.far_row_cycles(rows, target)
    updates = [one.update for one in bands.products]
    sites = (site for site in tir.sites(func.body) if site.stmt not in updates)
    passes = sum(statement_cycles(site, len(shared), recipe, target) for site in sites)
    cycles += passes * count * width / (planes * extent)
    if recipe.leaves_out:
        share = _share_of_keys(bands, known, width)
        looked = (1 - share) * masked_score(bands.schedule.func).keys * count
        cycles = share * cycles + looked * _look_cycles(bands, recipe)
    for name in recipe.transposed:
        cycles += cost.transposing_cycles(prod(layouts[name].logical_shape))
    return cycles


def _share_of_keys(bands: RowBands, known: KnownContents, width: int) -> float:
    """The mean share of the keys that bands of `width` rows compute, by the masks that are known:
    whole blocks in front of the keys that a band does not exclude, and behind these, are left out.
    """
    keys = masked_score(bands.schedule.func).keys
    rows = bands.schedule.loop(bands.shared[-1]).extent or 1
    share = 1.0
    for shown in known.shown_keys:
        of_rows = shown if len(shown) == rows else (_around(shown),)
        found = [_around(of_rows[row : row + width]) for row in range(0, len(of_rows), width)]
        blocks = (begin // KEY_BLOCK + (keys - end) // KEY_BLOCK for begin, end in found)
        share = min(share, 1 - KEY_BLOCK * sum(blocks) / (len(found) * keys))
    return share


def _around(shown: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The bounds of the keys of several rows together."""
    return min(begin for begin, _ in shown), max(end for _, end in shown)


def _look_cycles(bands: RowBands, recipe: SharedLoops) -> float:
    """The cycles of a band for a key that it leaves out: vectors of the mask, of the value, and of
    the key itself where scores of excluded keys depend on it."""
    first, *_, last = bands.products
    read = prod(loop.extent or 1 for loop in (*last.outer, last.own))
    if needs_bound(masked_score(bands.schedule.func).value, SUM):
        read += prod(loop.extent or 1 for loop in first.reduction)
    return cost.look_cycles(recipe.vectors + read / recipe.lanes)


def _product_cycles(
    one: BandProduct, layouts: Mapping[str, Layout], recipe: SharedLoops, target: Target
) -> float:
    """The cycles of the tiles of a product for one band."""
    size = tir.DTYPES[one.other.buffer.dtype].itemsize
    layout = layouts.get(one.other.buffer.name) or row_major(one.other.buffer.shape)
    strides = dict(terms_of(flat_offset(layout, one.other.indices))[0])
    row_stride = size * strides.get(one.own.var, 0)
    nest = [(size * strides.get(loop.var, 0), loop.extent or 1) for loop in one.reduction]
    steps = prod(loop.extent or 1 for loop in one.reduction)
    rows = one.own.extent or 1
    problem = cost.TileProblem(
        columns=recipe.lanes * recipe.vectors,
        rows=rows,
        planes=1,
        steps=steps,
        weight_bytes=1,
        loads=cost.BroadcastRows(row_stride),
        whole_vectors=True,
        misses=cost.broadcast_misses(row_stride, nest, size * steps * rows, target),
    )
    panel = cost.Panels(1, recipe.vectors, recipe.lanes, min(recipe.tile, rows))
    outer = prod(loop.extent or 1 for loop in one.outer)
    return outer * cost.panel_cycles(problem.plane, panel, target)


def _rows_read(one: BandProduct, layouts: Mapping[str, Layout]) -> tuple[int, int, int]:
    """How the keys or values that each band reads lie in memory: the bytes from one to the next,
    the bytes of one, and how many there are."""
    size = tir.DTYPES[one.other.buffer.dtype].itemsize
    layout = layouts.get(one.other.buffer.name) or row_major(one.other.buffer.shape)
    strides = dict(terms_of(flat_offset(layout, one.other.indices))[0])
    loops = [loop for loop in (one.own, *one.reduction) if strides.get(loop.var, 0) > 0]
    nest = sorted((size * strides[loop.var], loop.extent or 1) for loop in loops)
    if not nest:
        return size, size, 1
    (unit, along), *others = nest
    row = unit * along
    return others[0][0] if others else row, row, prod(extent for _, extent in others)


def _variant(
    bands: RowBands,
    definition: tir.PrimFunc,
    constants: frozenset[str],
    layouts: dict[str, Layout],
    recipe: SharedLoops,
    cycles: float,
) -> KernelVariant:
    shared = [bands.schedule.loop(place).extent or 1 for place in bands.shared]
    pieces = prod(shared[:-1]) * -(-shared[-1] // (recipe.lanes * recipe.vectors))
    flops = 2.0 * tir.multiply_add_count(definition)
    private = frozenset(name for name in bands.across if name in constants)
    read = dict.fromkeys(
        layouts[b.name].describe() for b in definition.inputs if b.name not in constants
    )
    output = layouts[definition.outputs[0].name].describe()
    name = f"{', '.join(read)} → {output}, {ONE_PASS}"
    name += f", {LEFT_OUT}" if recipe.leaves_out else ""
    work = cost.Work(flops, cycles, pieces, *touched(definition.params, layouts, constants))
    return KernelVariant(name, layouts, private, {}, Padding.NONE, recipe, work, True)
