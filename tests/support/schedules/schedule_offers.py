"""Random nodes, and schedules of their kernels that are offered to the graph as variants.

In: a `Draft`, a graph under construction, and the `Taste` of its schedules: a few layouts and pads
that they share, so that crops and pads meet.  Out: nodes, and steps of schedules whose stages can
be lifted out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.graph import Node
from graphflow.kernels.recipes import lifted
from graphflow.layout import IndexMap, Layout, blocked, dtype_limits
from graphflow.schedule import (
    Schedule,
    ScheduleStep,
    absorb_padding,
    assume_finite,
    cache_read,
    cache_write,
    divide_loop,
    mark_unrolled,
    parallelize_loop,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    simplify,
    state_padding,
    transform_layout,
    vectorize_loop,
)
from graphflow.tir import FLOATS, PrimFunc, buffers_of, loops_of, parse
from support.kernels.schedule_kernels import Dice
from support.schedules.schedule_inputs import Array

TARGET = Target("eight lanes", "", "", 32, 16, clock_ghz=6.25)
"""Its own data alone: plans do not depend on the machine that runs the tests."""

TEXT = {
    "int32": "i32",
    "float32": "f32",
    "int64": "i64",
    "float64": "f64",
    "int8": "i8",
    "uint8": "u8",
}
OVERCOMPUTE = remove_branching_through_overcompute


def zero(dtype: str) -> str:
    return f"{TEXT[dtype]}(0{'.0' if dtype in FLOATS else ''})"


def number(dtype: str, value: float) -> str:
    return f"{TEXT[dtype]}({float(value) if dtype in FLOATS else int(value)})"


def typed(dtype: str, shape: Sequence[int]) -> str:
    return f"{TEXT[dtype]}[{', '.join(map(str, shape))}]"


def function(params: str, lines: Sequence[str]) -> PrimFunc:
    return parse("\n".join(["@primfunc", f"def k({params}):", *("    " + line for line in lines)]))


@dataclass
class Draft:
    """A graph under construction; values by name with dtype and shape."""

    dice: Dice
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    exact: bool = True
    products: bool = False

    def newest(self) -> str:
        made = [name for name in self.values if name not in self.constants]
        return made[-1] if self.dice.chance(0.7) else str(self.dice.among(made))

    def input(self, dtype: str, shape: tuple[int, ...]) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.values[name] = dtype, shape
        return name

    def constant(self, dtype: str, shape: tuple[int, ...]) -> str:
        name = f"c{len(self.constants)}"
        low = 0 if dtype == "uint8" else -2
        self.constants[name] = self.dice.rng.integers(low, 4, shape).astype(dtype)
        self.values[name] = dtype, shape
        return name

    def node(self, func: PrimFunc, *inputs: str) -> None:
        k = len(self.nodes)
        name = f"v{k}"
        self.nodes.append(Node(f"n{k}", "fuzz", func, inputs, (name,)))
        output = func.outputs[0]
        self.values[name] = output.dtype, output.shape


def pointwise(d: Draft) -> None:
    x = d.newest()
    dtype, shape = d.values[x]
    axes = "ij"[: len(shape)]
    at = ", ".join(axes)
    two = d.dice.chance(0.45)
    params, operands = f"x: {typed(dtype, shape)}", [x]
    if two:
        same = [n for n, v in d.values.items() if v == (dtype, shape)]
        other = d.dice.among(same) if d.dice.chance(0.7) else None
        if other is None:
            other = d.constant(dtype, shape) if d.dice.chance(0.6) else d.input(dtype, shape)
        params += f", w: {typed(dtype, shape)}"
        operands.append(other)
        choices = (
            f"x[{at}] + w[{at}]",
            f"x[{at}] * w[{at}]",
            f"max(x[{at}], w[{at}])",
            f"x[{at}] - w[{at}]",
            f"select(data(w[{at}] < x[{at}]), w[{at}], x[{at}])",
        )
    else:
        c = number(dtype, d.dice.among((0, 1, 2, 3)))
        choices = (
            f"x[{at}] + {c}",
            f"{c} * x[{at}]",
            f"max(x[{at}], {c})",
            f"x[{at}] * x[{at}]",
            f"abs(x[{at}])",
            f"-x[{at}]",
            f"min(x[{at}], {c}) + {c}",
            f"select({axes[-1]} < {shape[-1] // 2}, x[{at}], {c})",
            f"select(data(x[{at}] > {c}), x[{at}], {c})",
        )
        if dtype in FLOATS:
            choices += (f"exp(x[{at}])", f"sigmoid(x[{at}])")
    value = d.dice.among(choices)
    d.exact &= "exp" not in value and "sigm" not in value
    d.products |= "*" in value
    lines = ['with block("compute"):']
    for k, (axis, extent) in enumerate(zip(axes, shape, strict=True)):
        lines.append("    " * (k + 1) + f"for {axis} in serial(0, {extent}):")
    lines.append("    " * (len(shape) + 1) + f"y[{at}] = {value}")
    d.node(function(f"{params}, y: out[{typed(dtype, shape)}]", lines), *operands)


def reduced(d: Draft) -> None:
    x = d.newest()
    dtype, shape = d.values[x]
    op = d.dice.among(("+", "+", "max", "min"))
    low, high = ("-inf", "inf") if dtype in FLOATS else map(str, dtype_limits(dtype))
    start = {"+": zero(dtype), "max": f"{TEXT[dtype]}({low})", "min": f"{TEXT[dtype]}({high})"}[op]
    axes = "ij"[: len(shape)]
    kept = axes[:-1] or "0"
    rest = shape[:-1] or (1,)
    value = f"x[{', '.join(axes)}]"
    target = f"y[{kept}]"
    step = f"{target} += {value}" if op == "+" else f"reduce_{op}({target}, {value})"
    lines = ['with block("init"):']
    body = [f"y[{'r' if len(shape) > 1 else '0'}] = {start}"]
    lines += [
        "    " + b
        for b in ([f"for r in serial(0, {rest[0]}):", "    " + body[0]] if len(shape) > 1 else body)
    ]
    lines.append('with block("compute"):')
    for k, (axis, extent) in enumerate(zip(axes, shape, strict=True)):
        lines.append("    " * (k + 1) + f"for {axis} in serial(0, {extent}):")
    lines.append("    " * (len(shape) + 1) + step)
    d.products |= op == "+"
    d.node(function(f"x: {typed(dtype, shape)}, y: out[{typed(dtype, rest)}]", lines), x)


def convolved(d: Draft) -> None:
    x = d.newest()
    dtype, shape = d.values[x]
    if len(shape) != 1 or shape[0] < 3:
        return pointwise(d)
    n = shape[0]
    size = d.dice.among((2, 3))
    pad = size - 1
    m = n + pad if d.dice.chance(0.6) else n
    test = f"i + k >= {pad} and i + k < {n + pad}"
    lines = [
        'with block("compute"):',
        f"    for i in serial(0, {m}):",
        f"        y[i] = {zero(dtype)}",
        f"        for k in serial(0, {size}):",
        f"            if {test}:",
        f"                y[i] += x[i + k - {pad}] * w[k]",
    ]
    params = f"x: {typed(dtype, shape)}, w: {typed(dtype, (size,))}, y: out[{typed(dtype, (m,))}]"
    d.products = True
    d.node(function(params, lines), x, d.constant(dtype, (size,)))
    return None


def multiplied(d: Draft) -> None:
    x = d.newest()
    dtype, shape = d.values[x]
    if len(shape) != 2:
        return reduced(d)
    m, depth = shape
    n = d.dice.among((3, 5, 6))
    lines = [
        'with block("compute"):',
        f"    for i in serial(0, {m}):",
        f"        for j in serial(0, {n}):",
        f"            y[i, j] = {zero(dtype)}",
        f"            for k in serial(0, {depth}):",
        "                y[i, j] += x[i, k] * w[k, j]",
    ]
    params = (
        f"x: {typed(dtype, shape)}, w: {typed(dtype, (depth, n))}, y: out[{typed(dtype, (m, n))}]"
    )
    d.products = True
    d.node(function(params, lines), x, d.constant(dtype, (depth, n)))
    return None


def turned(d: Draft) -> None:
    x = d.newest()
    dtype, shape = d.values[x]
    if len(shape) != 2:
        return pointwise(d)
    lines = [
        'with block("compute"):',
        f"    for i in serial(0, {shape[1]}):",
        f"        for j in serial(0, {shape[0]}):",
        "            y[i, j] = x[j, i]",
    ]
    d.node(function(f"x: {typed(dtype, shape)}, y: out[{typed(dtype, shape[::-1])}]", lines), x)
    return None


KINDS = {pointwise: 6.0, reduced: 1.5, convolved: 2.0, multiplied: 1.0, turned: 0.5}


# Schedules ----------------------------------------------------------------------------------------


@dataclass
class Taste:
    """What the schedules of one graph like: layouts for each shape, numbers for padding."""

    dice: Dice
    layouts: dict[tuple[int, ...], list[Layout]] = field(default_factory=dict)
    pads: list[Any] = field(default_factory=list)

    def layout(self, shape: tuple[int, ...]) -> Layout:
        if shape not in self.layouts:
            self.layouts[shape] = [self.padded(shape) for _ in range(2)]
        return self.layouts[shape][0 if self.dice.chance(0.8) else 1]

    def padded(self, shape: tuple[int, ...]) -> Layout:
        dice, rank = self.dice, len(shape)
        axis = dice.between(0, rank - 1)
        factor = dice.among((2, 3, 4, 4, 8))
        kind = dice.weighted({"blocked": 4, "halo": 2, "offset": 1.5, "box": 1.5, "turned": 1})
        if kind == "blocked":
            return blocked(shape, axis, factor)
        if kind == "offset":
            return Layout.of(IndexMap.offset(rank, axis, dice.between(1, 2)), shape)
        if kind == "box":
            box = [n + (k == axis) * dice.between(1, 3) for k, n in enumerate(shape)]
            return Layout.of(IndexMap.identity(rank), shape, box)
        chain = IndexMap.identity(rank)
        if kind == "halo":
            chain = chain.then(IndexMap.offset(rank, axis, 2))
        chain = chain.then(IndexMap.split(rank, axis, factor))
        if kind == "turned":
            chain = chain.then(IndexMap.permute(dice.shuffled(range(rank + 1))))
        return Layout.of(chain, shape)

    def pad(self, dtype: str) -> Any:
        kind = self.dice.weighted({"number": 6, "undef": 3, "none": 1})
        if kind != "number":
            return "undef" if kind == "undef" else None
        value = self.number(dtype)
        return float(value) if dtype in FLOATS else int(value)

    def number(self, dtype: str) -> float | int:
        if self.dice.chance(0.6):
            return 0
        odd: Sequence[float | int] = (1, 2, *dtype_limits(dtype))
        if dtype in FLOATS:
            odd = (1.0, -0.0, float("-inf"), float("inf"), 2.0, 1e-40)
        return self.dice.among(odd)


class Scheduling:
    """A schedule that takes what is accepted."""

    def __init__(self, func: PrimFunc) -> None:
        self.schedule = Schedule.of(func)

    def __call__(self, primitive: Any, *arguments: Any) -> bool:
        before = self.schedule
        try:
            self.schedule = before.apply(primitive, *arguments)
        except ScheduleError:
            return False
        return self.schedule is not before


def random_offer(
    node: Node, taste: Taste, constants: Mapping[str, Array]
) -> tuple[ScheduleStep, ...]:
    """The steps of a schedule whose stages can be lifted out; none where they cannot."""
    dice, do = taste.dice, Scheduling(node.func)
    given = dict(zip((b.name for b in node.func.inputs), node.inputs, strict=True))
    reads = set(given)
    window = "k" in {loop.var.name for loop in loops_of(node.func.body)}
    floats = node.func.outputs[0].dtype in FLOATS
    if window and floats and dice.chance(0.8):
        do(assume_finite, "w", "it is a constant that holds nothing else")
    caches = {}
    for param in node.func.params:
        buffer = param.buffer
        reading = buffer.name in reads
        if window and buffer.name == "w" and dice.chance(0.8):
            continue
        if dice.chance(0.9) and do(
            cache_read if reading else cache_write, buffer.name, buffer.name + "c"
        ):
            layout = (
                halo(buffer.shape)
                if window and reading and len(buffer.shape) == 1
                else taste.layout(buffer.shape)
            )
            pad = taste.pad(buffer.dtype) if reading or dice.chance(0.3) else "undef"
            zeros = reading and given[buffer.name] in constants and dice.chance(0.9)
            if pad is not None and pad != "undef" and (zeros or (window and reading)):
                pad = 0.0 if floats else 0
            if dice.chance(0.9):
                do(transform_layout, buffer.name + "c", layout, pad)
                caches[buffer.name] = buffer.name + "c"
    run_over(do, dice, caches, window)
    if dice.chance(0.5):
        decorate(do, dice)
    if "y" in caches and dice.chance(0.7):
        stated(do, dice)
    try:
        lifted(do.schedule.func, TARGET)
    except ScheduleError:
        return ()
    return do.schedule.steps


def halo(shape: tuple[int, ...]) -> Layout:
    """Rows of eight, padded as far in front as a window reaches."""
    split = IndexMap.from_function(1, lambda i: [(i + 2) // 8, (i + 2) % 8])
    return Layout.of(split, shape, (-(-(shape[0] + 4) // 8), 8))


def run_over(do: Scheduling, dice: Dice, caches: Mapping[str, str], window: bool) -> None:
    if window and do(OVERCOMPUTE, "k"):
        do(simplify)
    buffer = caches.get("y" if dice.chance(0.75) else "x") or next(iter(caches.values()), None)
    if buffer is None or dice.chance(0.1):
        return
    found = next((b for b in buffers_of(do.schedule.func) if b.name == buffer), None)
    if found is None:
        return
    names = tuple(f"p{k}" if dice.chance(0.2) else f"a{k}" for k in range(len(found.shape)))
    do(sequential_buffer_access, "compute", buffer, names, dice.chance(0.3))
    if dice.chance(0.2):
        do(absorb_padding, "compute", buffer)
    if dice.chance(0.9):
        do(OVERCOMPUTE, "compute")


def decorate(do: Scheduling, dice: Dice) -> None:
    """Loops divided, in lanes, by threads."""
    for _ in range(dice.between(1, 3)):
        loops = [loop for loop in loops_of(do.schedule.func.body) if "_" not in loop.var.name]
        if not loops:
            return
        name = dice.among(loops).var.name
        primitive = dice.among((vectorize_loop, mark_unrolled, parallelize_loop, divide_loop))
        if primitive is divide_loop:
            do(divide_loop, name, dice.among((2, 4)), (f"{name}o", f"{name}i"), "guard")
        elif primitive is not parallelize_loop or dice.chance(0.05):
            do(primitive, name)


def stated(do: Scheduling, dice: Dice) -> None:
    """A claim of what the output's padding holds, one that is proven if there is one."""
    before = do.schedule
    for value in dice.shuffled((0, 1, 2, 4, "undef")):
        do.schedule = before
        if do(state_padding, "y", value):
            try:
                lifted(do.schedule.func, TARGET)
            except ScheduleError:
                continue
            return
    do.schedule = before
