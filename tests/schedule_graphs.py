"""One random graph of scheduled kernels: drawn from a seed, planned, run, compared, and shrunk.

In: a seed.  Out: a `GraphOutcome`.  A graph has one to five nodes; nodes are offered schedules that
cache their inputs and outputs, put the caches into padded layouts, and run over the padding where
that is accepted.  Layouts and pads are drawn from a few favourites of the graph, so that crops and
pads meet.  What the plan makes is run by the interpreter and as native code, plain and with two
poisons in all padding that may hold anything, and compared with the graph's own meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from placing import interpret_physical
from schedule_cases import SPECIALS, WILD, Array, same_bits
from schedule_kernels import Dice

from graphflow.codegen import host_target, make_object
from graphflow.convert import PhysicalGraph, apply_plan, poison_padding
from graphflow.errors import LayoutConflict, ScheduleError
from graphflow.flow import LayoutPlan, plan_layouts
from graphflow.graph import Node, OperatorGraph, Value, fuse, interpret_graph
from graphflow.kernels.recipes import Scheduled, lifted
from graphflow.layout import IndexMap, Layout, blocked, dtype_limits
from graphflow.lower import assemble, lower
from graphflow.options import Options
from graphflow.runtime import Program
from graphflow.schedule import (
    Schedule,
    Step,
    absorb_padding,
    assume_finite,
    cache_read,
    cache_write,
    divide_loop,
    parallelize_loop,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    simplify_kernel,
    state_padding,
    transform_layout,
    unroll_loop,
    vectorize_loop,
)
from graphflow.target import Target
from graphflow.tir import FLOATS, PrimFunc, buffers_of, loops_of, parse, to_text
from graphflow.trace import Trace

TARGET = Target("eight lanes", "", "", vector_bytes=32, vector_registers=16)
"""Its own data alone: plans do not depend on the machine that runs the tests."""

TEXT = {"int32": "i32", "float32": "f32", "int64": "i64", "float64": "f64", "int8": "i8",
        "uint8": "u8"}  # fmt: skip
POISONS = {"f": (np.nan, -42.0), "i": (-42, 77), "u": (42, 77), "b": (False, True)}
OVERCOMPUTE = remove_branching_through_overcompute


@dataclass(frozen=True)
class GraphCase:
    """Nodes with what is offered to them, as steps, so that parts can be left out."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array]
    outputs: tuple[str, ...]
    offers: Mapping[str, tuple[tuple[Step, ...], ...]]
    only: frozenset[str]
    pins: Mapping[str, Layout | str]
    fused: bool
    exact: bool
    flush: bool

    def __str__(self) -> str:
        lines = [f"inputs {', '.join(self.inputs)}; constants {', '.join(self.constants)}; outputs "
                 f"{', '.join(self.outputs)}; fused: {self.fused}; flushing: {self.flush}"]  # fmt: skip
        lines += [f"pin {name}: {pin if isinstance(pin, str) else pin.describe()}"
                  for name, pin in self.pins.items()]  # fmt: skip
        for node in self.nodes:
            lines.append(f"{node.name}({', '.join(node.inputs)}) -> {', '.join(node.outputs)}")
            lines.append(to_text(node.func))
            for steps in self.offers.get(node.name, ()):
                only = ", only" if node.name in self.only else ""
                lines.append(f"  offered{only}:")
                lines += [f"    {step}" for step in steps]
        return "\n".join(lines)


@dataclass(frozen=True)
class GraphOutcome:
    """What a case showed; `refused` where no plan was possible, `ran_over` where a chosen kernel
    runs over padding."""

    wrong: str = ""
    kind: str = ""
    cancelled: int = 0
    ran_over: bool = False
    refused: str = ""
    poisoned: int = 0


# Kernels ------------------------------------------------------------------------------------------


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
        choices = (f"x[{at}] + w[{at}]", f"x[{at}] * w[{at}]", f"max(x[{at}], w[{at}])",
                   f"x[{at}] - w[{at}]", f"select(data(w[{at}] < x[{at}]), w[{at}], x[{at}])")  # fmt: skip
    else:
        c = number(dtype, d.dice.among((0, 1, 2, 3)))
        choices = (f"x[{at}] + {c}", f"{c} * x[{at}]", f"max(x[{at}], {c})", f"x[{at}] * x[{at}]",
                   f"abs(x[{at}])", f"-x[{at}]", f"min(x[{at}], {c}) + {c}",
                   f"select({axes[-1]} < {shape[-1] // 2}, x[{at}], {c})",
                   f"select(data(x[{at}] > {c}), x[{at}], {c})")  # fmt: skip
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
    low, high = (("-inf", "inf") if dtype in FLOATS else map(str, dtype_limits(dtype)))
    start = {"+": zero(dtype), "max": f"{TEXT[dtype]}({low})", "min": f"{TEXT[dtype]}({high})"}[op]
    axes = "ij"[: len(shape)]
    kept = axes[:-1] or "0"
    rest = shape[:-1] or (1,)
    value = f"x[{', '.join(axes)}]"
    target = f"y[{kept}]"
    step = f"{target} += {value}" if op == "+" else f"reduce_{op}({target}, {value})"
    lines = ['with block("init"):']
    body = [f"y[{'r' if len(shape) > 1 else '0'}] = {start}"]
    lines += ["    " + b for b in ([f"for r in serial(0, {rest[0]}):", "    " + body[0]] if len(shape) > 1 else body)]
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
    lines = ['with block("compute"):', f"    for i in serial(0, {m}):", f"        y[i] = {zero(dtype)}",
             f"        for k in serial(0, {size}):", f"            if {test}:",
             f"                y[i] += x[i + k - {pad}] * w[k]"]  # fmt: skip
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
    lines = ['with block("compute"):', f"    for i in serial(0, {m}):",
             f"        for j in serial(0, {n}):", f"            y[i, j] = {zero(dtype)}",
             f"            for k in serial(0, {depth}):",
             "                y[i, j] += x[i, k] * w[k, j]"]  # fmt: skip
    params = f"x: {typed(dtype, shape)}, w: {typed(dtype, (depth, n))}, y: out[{typed(dtype, (m, n))}]"
    d.products = True
    d.node(function(params, lines), x, d.constant(dtype, (depth, n)))
    return None


def turned(d: Draft) -> None:
    x = d.newest()
    dtype, shape = d.values[x]
    if len(shape) != 2:
        return pointwise(d)
    lines = ['with block("compute"):', f"    for i in serial(0, {shape[1]}):",
             f"        for j in serial(0, {shape[0]}):", "            y[i, j] = x[j, i]"]  # fmt: skip
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


def random_offer(node: Node, taste: Taste, constants: Mapping[str, Array]) -> tuple[Step, ...]:
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
        if dice.chance(0.9) and do(cache_read if reading else cache_write, buffer.name, buffer.name + "c"):
            layout = halo(buffer.shape) if window and reading and len(buffer.shape) == 1 else taste.layout(buffer.shape)
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
    if window:
        if do(OVERCOMPUTE, "k"):
            do(simplify_kernel)
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
        primitive = dice.among((vectorize_loop, unroll_loop, parallelize_loop, divide_loop))
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


# Cases --------------------------------------------------------------------------------------------


def make_graph(seed: int) -> GraphCase:
    """The case of a seed."""
    dice = Dice(seed, 11)
    d = Draft(dice)
    dtype = dice.weighted({"float32": 5, "int32": 4, "int8": 0.7, "float64": 0.7, "int64": 0.5, "uint8": 0.5})
    shape = dice.among(((14,), (14,), (9,), (5,), (16,), (3, 6), (4, 5), (2, 9), (5, 3)))
    d.input(dtype, shape)
    for _ in range(dice.weighted({1: 1, 2: 3, 3: 3, 4: 2, 5: 1})):
        dice.weighted(KINDS)(d)
    read = {name for node in d.nodes for name in node.inputs}
    made = [node.outputs[0] for node in d.nodes]
    outputs = tuple(n for n in made if n not in read or dice.chance(0.08))
    taste = Taste(Dice(seed, 12))
    offers: dict[str, tuple[tuple[Step, ...], ...]] = {}
    only = set()
    for node in d.nodes:
        count = taste.dice.weighted({0: 1.2, 1: 5, 2: 2, 3: 1})
        found = [random_offer(node, taste, d.constants) for _ in range(count)]
        found = [steps for steps in found if steps]
        if found:
            offers[node.name] = tuple(found)
            if taste.dice.chance(0.8):
                only.add(node.name)
    pins: dict[str, Layout | str] = {}
    if dice.chance(0.12):
        name = dice.among(made)
        pins[name] = taste.layout(d.values[name][1]) if dice.chance(0.7) else "row-major"
    wild = not d.products and dice.chance(0.6)
    inputs = {name: data(dice, *d.values[name], wild) for name in d.inputs}
    flush = dtype in FLOATS and dice.chance(0.2)
    return GraphCase(tuple(d.nodes), inputs, d.constants, outputs, offers, frozenset(only), pins,
                     dice.chance(0.5), d.exact and not wild, flush)  # fmt: skip


def data(dice: Dice, dtype: str, shape: tuple[int, ...], wild: bool) -> Array:
    """Small whole numbers with special ones among them; `wild`: any numbers."""
    kind = np.dtype(dtype)
    array = dice.rng.integers(0 if kind.kind == "u" else -3, 4, shape).astype(kind)
    if wild and kind.kind == "f" and dice.chance(0.5):
        array = dice.rng.standard_normal(shape).astype(kind)
    if dice.chance(0.5):
        odd: Sequence[Any] = WILD if wild else SPECIALS
        if kind.kind != "f":
            odd = (np.iinfo(kind).min, np.iinfo(kind).max)
        chosen = np.array(odd).astype(kind)[dice.rng.integers(0, len(odd), shape)]
        array = np.where(dice.rng.random(shape) < 0.2, chosen, array).astype(kind)
    return np.asarray(array)


def built(case: GraphCase, offers: bool = True) -> OperatorGraph:
    """The graph of a case; `ScheduleError` where a step is refused."""
    graph = OperatorGraph()
    for name, array in case.inputs.items():
        graph.add_value(Value(name, array.dtype.name, array.shape))
    graph.set_inputs(case.inputs)
    for name, array in case.constants.items():
        graph.add_initializer(name, array)
    for node in case.nodes:
        graph.add(node)
    graph.set_outputs(case.outputs)
    for name, schedules in case.offers.items() if offers else ():
        taken = [rebuilt(graph.node(name).func, steps) for steps in schedules]
        graph.offer(name, *taken, only=name in case.only)
    return fuse(graph) if case.fused else graph


def rebuilt(func: PrimFunc, steps: Sequence[Step]) -> Schedule:
    schedule = Schedule.of(func)
    for step in steps:
        schedule = schedule.apply(step.primitive, *step.arguments, **dict(step.options))
    return schedule


def run_graph(case: GraphCase) -> GraphOutcome:
    """Planned, run in every way, and compared."""
    try:
        return _run(case)
    except (LayoutConflict, ScheduleError) as error:
        return GraphOutcome(refused=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    except Exception as error:
        return GraphOutcome(wrong=f"{type(error).__name__}: {error}", kind=type(error).__name__)


def _run(case: GraphCase) -> GraphOutcome:
    graph = built(case)
    plan = plan_layouts(graph, TARGET, 1, case.pins)
    physical = apply_plan(graph, plan)
    poisoned = poison_padding(graph, plan, physical)
    known = GraphOutcome(
        cancelled=len(plan.cancelled), ran_over=runs_over(case, plan), poisoned=poisoned.poisoned
    )
    expected = interpret_graph(graph, case.inputs)
    found = interpret_physical(graph, physical, TARGET, dict(case.inputs))
    wrong = differs(found, expected, case.exact)
    if wrong:
        return replace(known, wrong=f"interpreted: {wrong}", kind="interpreted")
    for what, outputs in natively(graph, physical, poisoned, case):
        wrong = differs(outputs, expected, case.exact)
        if wrong:
            return replace(known, wrong=f"native, {what}: {wrong}", kind=f"native {what}")
    if case.flush:
        wrong = flushed(case, graph, physical)
        if wrong:
            return replace(known, wrong=f"flushing denormals: {wrong}", kind="flush")
    return known


def runs_over(case: GraphCase, plan: LayoutPlan) -> bool:
    """Whether the plan takes a schedule that runs over padding."""
    taken = {c.alternative.recipe.kernel for c in plan.choices.values()
             if isinstance(c.alternative.recipe, Scheduled)}  # fmt: skip
    return any(
        any(step.primitive is OVERCOMPUTE for step in steps)
        and rebuilt(node.func, steps).func in taken
        for node in case.nodes
        for steps in case.offers.get(node.name, ())
    )


def natively(
    graph: OperatorGraph, physical: PhysicalGraph, poisoned: PhysicalGraph, case: GraphCase
) -> Iterator[tuple[str, dict[str, Array]]]:
    """The outputs of the native program, as it is and with each poison."""
    if not poisoned.poisons:
        yield "plain", program(graph, physical, False).run(dict(case.inputs))
        return
    ready = program(graph, poisoned, False)
    for k in (0, 1):
        poison = {v.name: np.array(POISONS[np.dtype(v.dtype).kind][k], v.dtype) for v in poisoned.poisons}
        yield f"poison {k}", ready.run({**case.inputs, **poison})
    yield "plain", program(graph, physical, False).run(dict(case.inputs))


def program(graph: OperatorGraph, physical: PhysicalGraph, flush: bool) -> Program:
    lowered = lower(physical, host_target())
    trace = Trace(Options())
    objects = {
        symbol: make_object((kernel.func, symbol, host_target()), trace)
        for symbol, kernel in lowered.kernels.items()
    }
    return Program(assemble(graph, lowered, objects), 2, flush)


def flushed(case: GraphCase, graph: OperatorGraph, physical: PhysicalGraph) -> str:
    """How outputs differ, with denormals flushed, from those of the graph without schedules."""
    bare = built(case, offers=False)
    plain = apply_plan(bare, plan_layouts(bare, TARGET, 1))
    with_offers = program(graph, physical, True).run(dict(case.inputs))
    without = program(bare, plain, True).run(dict(case.inputs))
    return differs(with_offers, without, case.exact)


def differs(found: Mapping[str, Array], expected: Mapping[str, Array], exact: bool) -> str:
    """In words how outputs differ; empty where they agree."""
    for name, want in expected.items():
        have = found[name]
        agree = same_bits(have, want)
        if not exact and want.dtype.kind == "f":
            with np.errstate(all="ignore"):
                agree |= np.isclose(have, want, rtol=3e-5, atol=1e-30, equal_nan=True)
        elif want.dtype.kind == "f":
            with np.errstate(all="ignore"):
                large = np.isfinite(want) & (np.abs(want) > 2.0**22)
                if large.any():
                    agree |= np.isclose(have, want, rtol=3e-5, equal_nan=True)
        if not agree.all():
            k = tuple(np.argwhere(~agree)[0])
            return (f"{name}{[int(n) for n in k]} is {have[k]!r} and should be {want[k]!r}; "
                    f"{int((~agree).sum())} of {agree.size} differ")  # fmt: skip
    return ""


# Shrinking ----------------------------------------------------------------------------------------


def shrink_graph(case: GraphCase, kind: str) -> GraphCase:
    """A smaller case that fails in the same way: fewer nodes, offers, steps and pins."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            if run_graph(candidate).kind == kind:
                case, smaller = candidate, True
                break
    return case


def _smaller(case: GraphCase) -> Iterator[GraphCase]:
    for node in case.nodes:
        if case.outputs != node.outputs:
            yield _only(case, node.outputs)
    for flag in ("flush", "fused"):
        if getattr(case, flag):
            yield replace(case, **{flag: False})
    if case.pins:
        yield replace(case, pins={})
    for name, schedules in case.offers.items():
        fewer = {k: v for k, v in case.offers.items() if k != name}
        yield replace(case, offers=fewer)
        for k in range(len(schedules)):
            if len(schedules) > 1:
                left = (*schedules[:k], *schedules[k + 1 :])
                yield replace(case, offers={**case.offers, name: left})
            for s in reversed(range(len(schedules[k]))):
                steps = (*schedules[k][:s], *schedules[k][s + 1 :])
                left = (*schedules[:k], steps, *schedules[k + 1 :])
                yield replace(case, offers={**case.offers, name: left})


def _only(case: GraphCase, outputs: tuple[str, ...]) -> GraphCase:
    """The nodes that some outputs need."""
    wanted, nodes = set(outputs), list[Node]()
    for node in reversed(case.nodes):
        if wanted & set(node.outputs):
            nodes.insert(0, node)
            wanted |= set(node.inputs)
    names = {node.name for node in nodes}
    return replace(
        case,
        nodes=tuple(nodes),
        outputs=outputs,
        inputs={k: v for k, v in case.inputs.items() if k in wanted},
        constants={k: v for k, v in case.constants.items() if k in wanted},
        offers={k: v for k, v in case.offers.items() if k in names},
        only=case.only & names,
        pins={k: v for k, v in case.pins.items() if k in wanted},
    )


def graph_complaint(seed: int, case: GraphCase, outcome: GraphOutcome) -> str:
    small = shrink_graph(case, outcome.kind)
    return f"seed {seed}, {outcome.kind}: {run_graph(small).wrong}\n\n{small}"


def graph_report(outcomes: Sequence[GraphOutcome]) -> str:
    """How many graphs had what."""
    n = max(1, len(outcomes))
    refused = Counter(o.refused.split(":")[0] for o in outcomes if o.refused)
    cancelled, over = sum(o.cancelled > 0 for o in outcomes), sum(o.ran_over for o in outcomes)
    poisoned = sum(o.poisoned > 0 for o in outcomes)
    return (f"{len(outcomes)} graphs: {cancelled} ({cancelled / n:.0%}) with a cancelled pair, "
            f"{over} ({over / n:.0%}) run over padding, {poisoned} poisoned, refused {dict(refused)}")  # fmt: skip
