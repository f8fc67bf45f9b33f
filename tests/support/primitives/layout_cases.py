"""Random applications of the primitives on layouts, staged elements and accumulators."""

from functools import partial
from random import Random

from graphflow import tir
from graphflow.schedule import (
    assume_finite,
    assume_reciprocal,
    flatten_buffer,
    rfactor,
    sequential_buffer_access,
    stage_mem,
    transform_layout,
)
from support.kernels.random_kernels import Number
from support.primitives.buffer_cases import buffer_kernel, of_temporary, temporaries
from support.primitives.choices import SCOPES, Arguments, Choices, chosen, place_name
from support.primitives.primitive_cases import PrimitiveCase
from support.primitives.refused_kernels import PLAIN, ROW, SQUARE, stages

# Kernels ------------------------------------------------------------------------------------------


def sum_kernel(number: Number) -> tir.PrimFunc:
    """A sum over one or two loops, at times under a condition or into a moving element."""
    n, m, k = number(1, 3), number(1, 6), number(1, 3)
    target = "y[i]" if number(0, 5) else f"y[(i + j) % {n}]"
    term = f"{target} += x[i, j] + i64({number(0, 2)})"
    inner = [f"for j in serial(0, {m}):"]
    inner += [f"    for r in serial(0, {k}):"] if number(0, 1) else []
    depth = "    " * len(inner)
    lines = [*inner, *_under_condition(depth, term, number)]
    if number(0, 4) == 0:
        lines.append("    " + "y[i] = y[i] + i64(1)")
    body = "\n".join("        " + line for line in lines)
    return tir.parse(
        f"@primfunc\ndef kernel(x: i64[{n}, {m}], y: out[i64[{n}]]):\n"
        f"    for z in serial(0, {n}):\n        y[z] = i64(3)\n"
        f"    for i in serial(0, {n}):\n{body}\n"
    )


def _under_condition(depth: str, line: str, number: Number) -> list[str]:
    if number(0, 2):
        return [depth + line]
    condition = ("j % 2 == 0", "j < 2", "data(x[i, j] < i64(3))")[number(0, 2)]
    return [f"{depth}if {condition}:", f"{depth}    {line}"]


def permuted_kernel(number: Number) -> tir.PrimFunc:
    """A nest that touches a buffer at its loops in some order, moved or mirrored, and mostly reads
    nothing that it writes."""
    extents = [number(1, 4) for _ in range(number(1, 3))]
    names = ["i", "j", "k"][: len(extents)]
    order = Random(number(0, 99)).sample(range(len(names)), len(names))
    shape = [extents[axis] for axis in order]
    indices = [names[axis] for axis in order]
    if number(0, 3) == 0:
        indices[0] = f"{shape[0] - 1} - {indices[0]}"
    at_place, box = ", ".join(indices), ", ".join(map(str, shape))
    value = f"x[{at_place}]" if number(0, 2) else f"y[{', '.join('0' for _ in shape)}]"
    lines = [f"for {name} in serial(0, {n}):" for name, n in zip(names, extents, strict=True)]
    lines = [f"{'    ' * depth}{line}" for depth, line in enumerate(lines)]
    lines.append(f"{'    ' * len(names)}y[{at_place}] = {value} + i64(1)")
    outer = [f"y[{', '.join(['0'] * len(shape))}] = i64(1)", *lines]
    body = "\n".join("    " + line for line in outer)
    return tir.parse(f"@primfunc\ndef kernel(x: i64[{box}], y: out[i64[{box}]]):\n{body}\n")


float_kernel = partial(buffer_kernel, dtype="float64")


def element_kernel(number: Number) -> tir.PrimFunc:
    """A loop that mostly works on one element of y, or on one in each inner iteration."""
    n, m = number(1, 4), number(2, 4)
    place = ("i, j", "i, 0", "j, i", "i, m - 1")[number(0, 3)].replace("m", str(m))
    box = f"{m}, {n}" if place == "j, i" else f"{n}, {m}"
    other = place if number(0, 3) else "0, 0"
    lines = [f"y[{place}] = x[i, j]", f"y[{place}] += y[{other}]", f"y[{place}] += x[i, j]"]
    body = "\n".join(f"            {line}" for line in lines[number(0, 1) :])
    return tir.parse(
        f"@primfunc\ndef kernel(x: i64[{n}, {m}], y: out[i64[{box}]]):\n"
        f"    for a in serial(0, {box.split(', ')[0]}):\n"
        f"        for b in serial(0, {box.split(', ')[1]}):\n            y[a, b] = i64(1)\n"
        f"    for i in serial(0, {n}):\n        for j in serial(0, {m}):\n{body}\n"
    )


# Arguments ----------------------------------------------------------------------------------------


def _factored(c: Choices) -> Arguments:
    """A loop around a reduction, itself or one in it, and the buffer that is reduced into."""
    reducing = [
        (loop, access.buffer.name)
        for loop in c.loops()
        for access in tir.accesses(loop.body)
        if access.op is not None
    ]
    if not reducing:
        return None
    loop, buffer = c.dice.among(reducing)
    along = c.dice.among(tir.loops_of((loop,))).var.name
    return loop.var.name, along, buffer, c.dice.between(1, 5), c.name()


def _sequential(c: Choices) -> Arguments:
    """A stage or an outermost loop, a buffer that it touches, and a name for each axis."""
    outer = [stmt for stmt in c.func.body if isinstance(stmt, tir.For)]
    places = (c.blocks() if c.dice.chance(0.9) else outer) or outer
    if not places:
        return None
    place = c.dice.among(places)
    touched = [a.buffer for a in tir.accesses(place.body) if a.buffer.shape]
    written = [a.buffer for a in tir.accesses(place.body) if a.writes and a.buffer.shape]
    if not touched:
        return None
    buffer = c.dice.among(dict.fromkeys(written if written and c.dice.chance(0.3) else touched))
    names = tuple(c.name() for _ in buffer.shape)
    return place_name(place), buffer.name, names, c.dice.chance(0.4)


def _whole(_func: tir.PrimFunc, buffer: tir.Buffer, _number: Number) -> Arguments:
    return () if len(buffer.shape) == 2 else None


def _input(c: Choices) -> Arguments:
    names = [b.name for b in c.func.inputs if b.dtype in tir.FLOATS]
    return (c.dice.among(names), "the test makes it so") if names else None


def _element(c: Choices) -> Arguments:
    """A loop, a buffer that it touches, and the loops in it whose elements are staged."""
    loop = c.loop()
    touched = list(dict.fromkeys(a.buffer.name for a in tir.accesses(loop.body))) if loop else []
    if loop is None or not touched:
        return None
    buffer = c.dice.among(touched)
    own = [a for a in tir.accesses(loop.body) if a.buffer.name == buffer]
    used = {v for a in own for v in map(str, a.indices)}
    inner = [s.var.name for s in tir.loops_of(loop.body)]
    dims = [n for n in inner if any(n in text for text in used)]
    if c.dice.chance(0.2):
        dims = inner[: c.dice.between(0, 2)]
    return loop.var.name, buffer, c.name(), tuple(dims), c.dice.among(SCOPES)


LAYOUT_CASES = (
    PrimitiveCase(assume_finite, chosen(_input), float_kernel, share=0.5)
    .on(PLAIN, "x", "the test says so")
    .refuses("", "x is not an input of floats"),
    PrimitiveCase(assume_reciprocal, chosen(_input), float_kernel, share=0.3),
    PrimitiveCase(flatten_buffer, of_temporary(_whole), buffer_kernel),
    PrimitiveCase(rfactor, chosen(_factored), sum_kernel, share=1.5)
    .on(
        "for i in vectorized(0, 4):\n    y[i] = i32(0)\n    for k in serial(0, 4):\n"
        "        y[i] += x[4*i + k]"
    )
    .given("k", "k", "y", 2, "p")
    .refuses("", "k is in lanes already, in which nothing is allocated")
    .on("for r in serial(0, 14):\n    t = alloc(i32[2])\n    t[0] += x[r]", "r", "r", "t", 4, "p")
    .refuses("", "t is allocated inside r"),
    PrimitiveCase(sequential_buffer_access, chosen(_sequential), permuted_kernel, share=2.5)
    .on(
        (
            'with block("b"):\n    for i in serial(0, 2):\n        for j in serial(0, 7):\n'
            "            y[i] = x[7*i + j]\n        y[i] += i32(1)"
        ),
        params="x: i32[14], y: out[i32[2]]",
    )
    .given("b", "x", ("p",))
    .refuses("", "the loop j is not in a perfect nest below i")
    .given("b", "y", ("p", "q"))
    .refuses("", "y has 1 axes; give each a name of its own")
    .on('with block("b"):\n    y[0] = x[0]\n    y[1] = x[1]', "b", "y", ("p",))
    .refuses("", "b is not a loop nest, nor a block around one"),
    PrimitiveCase(stage_mem, chosen(_element), element_kernel, share=2.5)
    .on(ROW.format("y[i] = x[i] + x[0]"), "i", "x", "s", ())
    .refuses("1", "x is touched at", r"\[i\] and at \[0\]")
    .on(SQUARE.format("serial", "serial", "y[i] = x[i]"), "i", "y", "s", ("j",))
    .refuses("2", "each iteration of j has its own element of y")
    .on(ROW.format("if data(x[i] < i32(1)):\n        y[i + 1] = x[i]"), "i", "y", "s", ())
    .refuses("3", "what is staged of y lies inside it", r"i=\d+")
    .on(stages, "i", "y", "s", ())
    .refuses("", "i does not touch y")
    .on(lambda: stages(claim="assume(unless(i < 20), x[i] == i32(0))"), "i", "x", "s", ())
    .refuses("", "i assumes something of x inside")
    .on(
        "for k in serial(0, 1):\n    for i in serial(0, 4):\n"
        "        for j in serial(0, i + 1):\n            y[4*i + j] = x[4*i + j]"
    )
    .given("k", "y", "s", ("i", "j"))
    .refuses("", "the bounds of j change inside k")
    .on("for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[2*i + j // 2] = x[j]")
    .given("i", "y", "t", ("j",))
    .refuses("", "each iteration of j has its own element of y does not")
    .on(
        "for i in serial(0, 2):\n    for d in serial(0, 10):\n"
        "        for k in serial(0, 2):\n            if d + 2*k < 8:\n"
        "                y[8*i + d] = x[d]"
    )
    .given("i", "y", "t", ("d",))
    .refuses("", "what is staged of y lies inside it does not hold")
    .on(ROW.format("y[i] = i32(0)\n    for d in serial(0, 1):\n        y[i] += x[i]"))
    .given("i", "y", "t", ("d",))
    .refuses("", "y is touched outside the loop d too"),
    PrimitiveCase(
        transform_layout, chosen(lambda c: c.transformation(temporaries(c.func))), buffer_kernel
    )
    .on(PLAIN, "y", lambda: ())
    .refuses("", r"the layout function fails on the 1 indices of \[16\]"),
)
