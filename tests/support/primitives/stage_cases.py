"""Random applications of the primitives on stages and on copies of parameters."""

from collections.abc import Callable
from typing import cast

from graphflow import tir
from graphflow.arith import IndexExpr, const
from graphflow.base.fields import replace
from graphflow.schedule import (
    Schedule,
    absorb_padding,
    cache_read,
    cache_write,
    compute_at,
    lift_stages,
    reverse_compute_at,
    sequential_buffer_access,
    state_padding,
    transform_layout,
)
from support.kernels.random_kernels import Number
from support.kernels.stage_graphs import stage_graph
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.choices import Arguments, Choices, chosen
from support.primitives.loop_cases import one_of
from support.primitives.padding_cases import rows
from support.primitives.primitive_cases import PrimitiveCase
from support.primitives.refused_kernels import STAGES, stages
from support.schedule_checks import kernel

# Kernels ------------------------------------------------------------------------------------------


def graph_kernel(number: Number) -> tir.PrimFunc:
    """A graph of two to six stages, each in a block."""
    return stage_graph(number(0, 10**6))


def tail_kernel(number: Number) -> tir.PrimFunc:
    """Two blocks, of which the second mostly reads what the same iteration of the first stores."""
    n, m = number(1, 4), number(1, 4)
    read = f"t[{number(0, n - 1)}, j]" if number(0, 4) == 0 else "t[a, b]"
    read = f"t[a, {m - 1} - b]" if number(0, 4) == 0 else read
    rows_behind = n - (number(0, 4) == 0)
    text = f"""
@primfunc
def kernel(x: i64[{n}, {m}], y: out[i64[{n}, {m}]]):
    t = alloc(i64[{n}, {m}])
    with block("first"):
        for i in serial(0, {n}):
            for j in serial(0, {m}):
                t[i, j] = x[i, j] + i64(1)
    with block("tail"):
        for a in serial(0, {rows_behind}):
            for b in serial(0, {m}):
                y[a, b] = {read.replace("j", "b")} + x[a, b]
"""
    return tir.parse(text)


def copied_kernel(number: Number) -> tir.PrimFunc:
    """A kernel whose input is read from a copy, mostly everywhere, or whose output is copied."""
    func = buffer_kernel(number)
    primitive, name = ((cache_read, "x"), (cache_write, "y"))[number(0, 1)]
    func = Schedule.of(func).attempt(primitive, name, "c").func
    if number(0, 3):
        return func
    x = func.inputs[0]
    more = tir.Store(func.outputs[0], _zeros(func.outputs[0]), tir.Load(x, _zeros(x)))
    return replace(func, body=(*func.body, more))


def padded_output_kernel(number: Number) -> tir.PrimFunc:
    """A kernel whose output is computed in a copy with padding, or is not."""
    n = number(3, 9)
    text = (
        f"@primfunc\ndef kernel(x: i64[{n}], y: out[i64[{n}]]):\n"
        f"    for i in serial(0, {n}):\n        y[i] = x[i] + i64(2)\n"
    )
    s = Schedule.of(tir.parse(text))
    if number(0, 3) == 0:
        return s.func
    s = s.apply(cache_write, "y", "yc")
    return s.apply(transform_layout, "yc", rows(n, n + number(0, 4), 0, 4), None).func


def guarded_copy_kernel(number: Number) -> tir.PrimFunc:
    """A loop that stores a buffer of two axes under a condition, a padding stage, and readers."""
    n, columns = number(3, 9), number(2, 4)
    text = (
        f"@primfunc\ndef kernel(x: i64[{n}], y: out[i64[{n}]]):\n"
        f"    for i in serial(0, {n}):\n        y[i] = x[i] + x[{n - 1} - i]\n"
    )
    s = Schedule.of(tir.parse(text)).apply(cache_read, "x", "xc")
    pad = (None, "undef", 0, 3, 3)[number(0, 4)]
    s = s.apply(transform_layout, "xc", rows(n, n + number(0, 5), number(0, 1), columns), pad)
    whole = number(0, 3) > 0
    return s.attempt(sequential_buffer_access, "xc_copy", "xc", ("p", "q"), whole_box=whole).func


def _zeros(buffer: tir.Buffer) -> tuple[IndexExpr, ...]:
    return (const(0),) * len(buffer.shape)


# Arguments ----------------------------------------------------------------------------------------


def _blocks(func: tir.PrimFunc) -> list[tir.Block]:
    return [stmt for stmt in func.body if isinstance(stmt, tir.Block)]


def _stage_and_loop(func: tir.PrimFunc, number: Number) -> Arguments:
    """A stage that mostly stores an allocated buffer, and a loop of the next one or of any."""
    outputs = set(func.outputs)
    blocks = _blocks(func)
    private = [k for k, block in enumerate(blocks[:-1]) if not outputs & _stored(block)]
    k = one_of(private if number(0, 5) else range(len(blocks)), number)
    if k is None:
        return None
    loops = [loop.var.name for block in blocks[k + 1 :][:1] for loop in tir.loops_of(block.body)]
    loop = one_of(loops, number)
    return loop and (blocks[k].name, loop)


def _stored(block: tir.Block) -> set[tir.Buffer]:
    return {stmt.buffer for stmt in tir.walk((block,)) if isinstance(stmt, tir.Store | tir.Reduce)}


def _tail(c: Choices) -> Arguments:
    pair = c.neighbours(tir.Block)
    return pair and pair[::-1]


def _parameter(role: tir.Role) -> Callable[[Choices], Arguments]:
    """A parameter, mostly one with this role, and the name of a copy of it."""

    def draw(c: Choices) -> Arguments:
        params = [p for p in c.func.params if p.role is role or c.dice.chance(0.2)]
        return (c.dice.among(params).buffer.name, c.name()) if params else None

    return draw


def _copied_parameter(func: tir.PrimFunc, number: Number) -> Arguments:
    marks = (tir.BlockNote.PREPROC, tir.BlockNote.POSTPROC)
    marked = [block for block in _blocks(func) if any(map(block.note, marks))]
    touched = {p.buffer.name for p in func.params} & {
        buffer.name for block in marked for buffer in _touched(block)
    }
    return (one_of(sorted(touched), number),) if touched else None


def _touched(block: tir.Block) -> set[tir.Buffer]:
    loads = {
        stmt.value.buffer
        for stmt in tir.walk((block,))
        if isinstance(stmt, tir.Store) and isinstance(stmt.value, tir.Load)
    }
    return _stored(block) | loads


def _stated(c: Choices) -> Arguments:
    output = c.dice.among(c.func.outputs)
    return output.name, "undef" if c.dice.chance(0.3) else c.number(output)


def _absorbed(c: Choices) -> Arguments:
    """A stage and a buffer with a padding stage, mostly one that it stores under a condition."""
    blocks = c.blocks()
    padded = [note for block in blocks if (note := block.note(tir.BlockNote.PADDING_OF))]
    if not padded:
        return None
    storing = [
        (block.name, name)
        for block in blocks
        for name in padded
        if block.note(tir.BlockNote.PADDING_OF) != name
        and any(isinstance(stmt, tir.If) for stmt in tir.walk(block.body))
        and any(buffer.name == name for buffer in _stored(block))
    ]
    if storing and c.dice.chance(0.7):
        return cast("tuple[str, str]", c.dice.among(storing))
    return c.dice.among(blocks).name, c.dice.among(padded)


# What is refused ----------------------------------------------------------------------------------

FOLLOWED = """
t = alloc(i32[16])
{first}
with block("second"{note}):
    {second}
"""


def followed(first: str, second: str, note: str = "") -> tir.PrimFunc:
    return kernel(FOLLOWED.format(first=first, second=second, note=note))


ONE_BLOCK = 'with block("first"):\n    for i in serial(0, 16):\n        t[i] = x[i]'
NO_BLOCK = "for i in serial(0, 16):\n    t[i] = x[i]"
NO_LOOP = 'with block("first"):\n    t[0] = x[0]'
LOOP = "for j in serial(0, 16):\n        y[j] = t[j]"


STAGE_CASES = (
    PrimitiveCase(absorb_padding, chosen(_absorbed), guarded_copy_kernel, share=1.5),
    PrimitiveCase(cache_read, chosen(_parameter(tir.Role.INPUT)), buffer_kernel, share=1.5),
    PrimitiveCase(cache_write, chosen(_parameter(tir.Role.OUTPUT)), buffer_kernel, share=1.5),
    PrimitiveCase(compute_at, _stage_and_loop, graph_kernel)
    .on(lambda: stages(claim="assume(unless(i < 20), x[i] == i32(0))"), "first", "j")
    .refuses("", "first assumes something, and must stay")
    .on(lambda: stages(note=', postproc="copy"'), "first", "j")
    .refuses("", "first has annotations, and must stay a stage")
    .on(lambda: stages(kind="vectorized"), "first", "j")
    .refuses("", "i is vectorized; vectorize after the stage has moved")
    .on(
        STAGES.format(note="", kind="serial", claim="").replace(
            'with block("second")', 'assume(unless(False), t[0] == i32(0))\nwith block("second")'
        )
    )
    .given("first", "j")
    .refuses("", r"something is assumed of t\[0\]")
    # The stage stores an element in every second iteration; the others read the one before.
    .on(
        "t = alloc(i32[1])\nfor g in serial(0, 16):\n    for a in serial(0, 1):\n"
        "        if g % 2 == 0:\n            t[a] = x[g]\n    for i in serial(0, 1):\n"
        "        y[g] = t[i]"
    )
    .given("a", "i")
    .refuses("", "stores the elements of t before it reads them"),
    PrimitiveCase(lift_stages, _copied_parameter, copied_kernel, keeps_interface=False),
    PrimitiveCase(reverse_compute_at, chosen(_tail), tail_kernel, share=1.2)
    .on(lambda: followed(NO_BLOCK, LOOP), "second", "i")
    .refuses("", "second and i must both be blocks")
    .on(lambda: followed(NO_LOOP, LOOP), "second", "first")
    .refuses("", "second and first do not both begin with a loop")
    .on(lambda: followed(ONE_BLOCK, LOOP, ', padding_of="y", padding="undef"'), "second", "first")
    .refuses("", "one of second and first states where padding lies, and must stay"),
    PrimitiveCase(state_padding, chosen(_stated), padded_output_kernel, share=0.3),
)
