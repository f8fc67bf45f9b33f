"""Tests of kernels for which no recipe has a fast variant, planned and run natively in graphs."""

import random
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.codegen import avx2_target, make_object
from graphflow.convert import apply_plan, poison_padding
from graphflow.flow import plan_layouts
from graphflow.graph import (
    Expansions,
    Node,
    OperatorGraph,
    Value,
    canonicalize,
    contents,
    fuse_groups,
    interpret_graph,
    moved_channels,
    reading_through,
)
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.lowering import KernelTask, make_kernel
from graphflow.kernels.lowering.task import instead_of_tile
from graphflow.kernels.recipes import Tiled, View, kernel_variants, lifted, memory_key
from graphflow.layout import IndexMap, Layout, Undefined, blocked, channels_last, row_major
from graphflow.lower import assemble, lower
from graphflow.lower.called_kernels import lower_kernels
from graphflow.plan import LayoutPlan
from graphflow.runtime import Program
from graphflow.schedule import (
    Schedule,
    cache_read,
    cache_write,
    parallelize_loop,
    sequential_buffer_access,
    transform_layout,
)
from graphflow.tir import LoopKind, PrimFunc, interpret, loops_of, parse, to_text
from support.kernels.irregular import Case, graphs
from support.models.random_layouts import random_layout
from support.schedules.scheduled_chains import ADDONE, GROW, PACKED, X, chain, packed, run
from support.strategies import FLOAT_KERNELS, INTEGER_KERNELS, primfuncs

TARGET = avx2_target()
Arrays = Mapping[str, Any]


# Running a graph ----------------------------------------------------------------------------------


def native(graph: OperatorGraph, plan: LayoutPlan, arrays: Arrays) -> Iterator[dict[str, Any]]:
    """The outputs by one thread, by two, and with all undefined padding overwritten, if any is."""
    plain = apply_plan(graph, plan)
    poisoned = poison_padding(graph, plan, plain)
    for physical, counts in ((plain, (1, 2)), (poisoned, (2,) if poisoned.poisons else ())):
        if not counts:
            continue
        lowered = lower(physical, TARGET)
        trace = Trace(Options())
        objects = {
            symbol: make_object((kernel.func, symbol, TARGET), trace)
            for symbol, kernel in lowered.kernels.items()
        }
        spec = assemble(graph, lowered, objects)
        for threads in counts:
            program = Program(spec, threads)
            for poison in (1, 77) if physical.poisons else (0,):
                poisons = {v.name: np.array(poison, v.dtype) for v in physical.poisons}
                yield program.run({**arrays, **poisons})


def assert_as_meant(
    graph: OperatorGraph,
    arrays: Arrays,
    pins: Mapping[str, Layout] | None = None,
    unwritten: frozenset[str] = frozenset(),
) -> LayoutPlan:
    """The plan, after its program gave what the graph means.

    Of the outputs in `unwritten` elements that no kernel writes may be anything.
    """
    graph.validate()
    expected = interpret_graph(graph, arrays)
    written = {name: _written(graph, arrays, name) for name in unwritten & set(graph.outputs)}
    plan = plan_layouts(graph, TARGET, 2, pins)
    for name, pin in (pins or {}).items():
        if name not in graph.inputs:
            assert memory_key(plan.edges[name].edge_type.layout) == memory_key(pin)
    for got in native(graph, plan, arrays):
        for name, want in expected.items():
            found = np.where(written[name], got[name], want) if name in written else got[name]
            np.testing.assert_allclose(found, want, rtol=2e-6, atol=2e-6, err_msg=name)
    return plan


def _written(graph: OperatorGraph, arrays: Arrays, value: str) -> Any:
    """Where the value of a node does not depend on what its memory held before."""
    node = graph.producer(value)
    assert node is not None
    given = interpret_graph(graph, arrays, node.inputs)
    inputs = {b.name: given[v] for b, v in zip(node.func.inputs, node.inputs, strict=True)}
    name = node.func.outputs[node.outputs.index(value)].name
    found = [interpret(node.func, inputs, undefined=u)[name] for u in (np.nan, -7.0, 0.0, 1.0)]
    return np.logical_and.reduce([found[0] == other for other in found[1:]])


def arrays_for(graph: OperatorGraph, seed: int = 0) -> dict[str, Any]:
    found = {}
    for number, name in enumerate(graph.inputs):
        value = graph.values[name]
        rng, kind = np.random.default_rng(seed + number), np.dtype(value.dtype).kind
        low, high = (0, 2) if kind == "b" else (0 if kind == "u" else -9, 10)
        array = (
            rng.normal(size=value.shape) if kind == "f" else rng.integers(low, high, value.shape)
        )
        found[name] = np.asarray(array).astype(value.dtype)
    return found


def alone(func: PrimFunc) -> OperatorGraph:
    """One node: inputs and outputs have the names of its parameters."""
    graph = OperatorGraph()
    for buffer in func.inputs:
        graph.add_value(Value(buffer.name, buffer.dtype, buffer.shape))
    graph.set_inputs([b.name for b in func.inputs])
    names = tuple(b.name for b in func.outputs)
    graph.add(Node("n", func.name, func, tuple(graph.inputs), names))
    graph.set_outputs(names)
    return graph


# Kernels that have no fast variant
# -------------------------------------------------------------------

TEXTS = {
    "carried value": """(x: f32[9], y: out[f32[9]]):
        with block("scan"):
            for i in serial(0, 9):
                if i == 0:
                    y[i] = x[i]
                else:
                    y[i] = y[i - 1] + x[i]""",
    "carried value in a select": """(x: f32[3, 17], y: out[f32[3, 17]]):
        with block("scan"):
            for i in serial(0, 3):
                for j in serial(0, 17):
                    y[i, j] = x[i, j] + select(j >= 1, y[i, j - 1], f32(0.0))""",
    "transposed in place": """(x: f32[5, 5], y: out[f32[5, 5]]):
        with block("copy"):
            for i in serial(0, 5):
                for j in serial(0, 5):
                    y[i, j] = x[i, j]
        with block("swap"):
            for k in serial(0, 5):
                for l in serial(0, 5):
                    y[k, l] = y[l, k]""",
    "triangular": """(x: f32[5, 17], y: out[f32[5, 17]]):
        with block("sums"):
            for i in serial(0, 5):
                for j in serial(0, 17):
                    y[i, j] = f32(0.0)
                    for k in serial(0, i + 1):
                        y[i, j] += x[k, j]""",
    "triangle along lanes": """(x: f32[33], y: out[f32[33]]):
        with block("sums"):
            for i in serial(0, 33):
                y[i] = f32(0.0)
                for k in serial(i, 33):
                    y[i] += x[k] * x[i]""",
    "allocation in a branch": """(x: f32[20], y: out[f32[20]]):
        with block("first"):
            for i in serial(0, 20):
                if i < 11:
                    t = alloc(f32[()])
                    t[()] = x[i] * x[i]
                    y[i] = t[()] + x[19 - i]
                else:
                    y[i] = x[i]""",
    "allocation in a data branch": """(x: f32[20], y: out[f32[20]]):
        with block("first"):
            for i in serial(0, 20):
                if data(x[i] < f32(0.0)):
                    t = alloc(f32[2])
                    for j in serial(0, 2):
                        t[j] = x[i] * x[i]
                    y[i] = t[0] + t[1]
                else:
                    y[i] = x[i]""",
    "allocation in a loop": """(x: f32[7, 20], y: out[f32[7, 20]]):
        for i in serial(0, 7):
            row = alloc(f32[20])
            for j in serial(0, 20):
                row[j] = x[i, j] * f32(2.0)
            for k in serial(0, 20):
                y[i, k] = row[19 - k]""",
    "large allocation in a loop": """(x: f32[2, 4], y: out[f32[2, 4]]):
        for i in serial(0, 2):
            row = alloc(f32[3000000])
            for j in serial(0, 4):
                row[700000 * j] = x[i, j]
            for k in serial(0, 4):
                y[i, k] = row[2100000 - 700000 * k]""",
    "allocation inside a block": """(x: f32[20], y: out[f32[20]]):
        with block("all"):
            t = alloc(f32[20])
            for i in serial(0, 20):
                t[i] = x[19 - i]
            for j in serial(0, 20):
                y[j] = t[j] + x[j]""",
    "never reads an input": """(x: f32[8], w: f32[3, 8, 1, 1], y: out[f32[8]]):
        with block("first"):
            for i in serial(0, 8):
                y[i] = x[i] + x[i]""",
    "copies, and never reads an input": """(x: f32[8], w: f32[8], y: out[f32[8]]):
        with block("b"):
            for i in serial(0, 8):
                y[i] = x[i]""",
    "moves, and never reads an input": """(x: f32[8], w: f32[8], y: out[f32[16]]):
        with block("first"):
            for i in serial(0, 8):
                y[i] = x[i]
        with block("second"):
            for j in serial(0, 8):
                y[j + 8] = y[j]""",
    "reduces, and never reads an input": """(x: f32[2, 3, 5], w: f32[2, 3, 5], y: out[f32[2, 3]]):
        with block("first"):
            for i in serial(0, 2):
                for j in serial(0, 3):
                    y[i, j] = f32(0.0)
                    for k in serial(0, 5):
                        y[i, j] += x[i, j, k]""",
    "reads nothing": """(x: f32[8], y: out[f32[9]]):
        with block("first"):
            for i in serial(0, 9):
                y[i] = index(7 * i % 5, f32)""",
    "written by several nests": """(x: f32[4, 16], y: out[f32[4, 16]]):
        with block("left"):
            for i in serial(0, 4):
                for j in serial(0, 8):
                    y[i, j] = exp(x[i, j])
        with block("right"):
            for k in serial(0, 4):
                for l in serial(8, 16):
                    y[k, l] = y[k, l - 8] + x[k, l]""",
    "overlapping moves": """(a: f32[1, 16, 2, 2], b: f32[1, 16, 2, 2], y: out[f32[1, 24, 2, 2]]):
        with block("first"):
            for c in serial(0, 16):
                for h in serial(0, 2):
                    for w in serial(0, 2):
                        y[0, c, h, w] = a[0, c, h, w]
        with block("second"):
            for d in serial(0, 16):
                for k in serial(0, 2):
                    for v in serial(0, 2):
                        y[0, d + 8, k, v] = b[0, d, k, v]""",
    "read by later stages": """(x: f32[6, 9], y: out[f32[6, 9]], s: out[f32[6]]):
        with block("double"):
            for i in serial(0, 6):
                for j in serial(0, 9):
                    y[i, j] = x[i, j] * f32(2.0)
        with block("sum"):
            for k in serial(0, 6):
                s[k] = f32(0.0)
                for l in serial(0, 9):
                    s[k] += y[k, l]""",
    "two outputs in one nest": """(x: f32[12], y: out[f32[12]], z: out[i32[3, 4]]):
        for i in serial(0, 12):
            y[i] = -x[i]
            z[i // 4, i % 4] = select(data(x[i] < f32(0.0)), i32(1), index(i, i32))""",
    "rank 0": """(x: f32[()], y: out[f32[()]]):
        y[()] = x[()] + f32(1.0)""",
    "rank 0 from many": """(x: f32[17], y: out[f32[()]], n: out[i64[()]]):
        y[()] = f32(-inf)
        for i in serial(0, 17):
            reduce_max(y[()], x[i])
        n[()] = i64(0)
        for j in serial(0, 17):
            if data(x[j] < y[()]):
                n[()] += i64(1)""",
    "no element": """(x: f32[0, 3], y: out[f32[3, 0]], z: out[f32[3]]):
        with block("copy"):
            for i in serial(0, 3):
                for j in serial(0, 0):
                    y[i, j] = x[j, i]
        with block("sum"):
            for k in serial(0, 3):
                z[k] = f32(0.0)
                for l in serial(0, 0):
                    z[k] += x[l, k]""",
    "one element": """(x: f32[1, 1, 1, 1], y: out[f32[1, 1, 1, 1]]):
        with block("first"):
            for a in serial(0, 1):
                for b in serial(0, 1):
                    for c in serial(0, 1):
                        for e in serial(0, 1):
                            y[a, b, c, e] = x[a, b, c, e] * f32(2.0)""",
    "in-between of another shape and dtype": """(x: f32[6, 9], y: out[f32[9, 6]]):
        t = alloc(i8[9])
        with block("count"):
            for j in serial(0, 9):
                t[j] = i8(0)
                for i in serial(0, 6):
                    t[j] += select(data(x[i, j] < f32(0.0)), i8(1), i8(0))
        with block("use"):
            for k in serial(0, 9):
                for l in serial(0, 6):
                    y[k, l] = cast(f32, t[k]) * x[l, k]""",
    "reductions in odd places": """(x: f32[6, 9], y: out[f32[6, 9]], z: out[f32[9]]):
        with block("products"):
            for i in serial(0, 6):
                for j in serial(0, 9):
                    y[i, j] = f32(1.0)
                    for k in serial(0, 3):
                        if i + k < 6:
                            y[i, j] *= x[i + k, j]
                    reduce_min(y[i, j], x[5 - i, j])
        for l in serial(0, 9):
            z[l] = f32(-inf)
        for m in serial(0, 6):
            for n in serial(0, 9):
                reduce_max(z[n], y[m, 8 - n])""",
    "a condition around nests": """(x: f32[6], y: out[f32[6]]):
        if data(x[0] < f32(0.5)):
            for i in serial(0, 6):
                y[i] = x[i]
        else:
            for j in serial(0, 6):
                y[j] = index(7 * j % 5, f32)""",
    "a statement beside its block": """(x: f32[6, 6, 17], y: out[f32[6, 6, 17]]):
        t = alloc(f32[()])
        t[()] = x[0, 0, 0]
        with block("first"):
            for i in serial(0, 6):
                for j in serial(0, 6):
                    for k in serial(0, 17):
                        y[i, j, k] = x[i, j, k] - t[()]""",
    "stages that do nothing, beside one that does": """(x: f32[8, 11], y: out[f32[8, 8]]):
        with block("nothing"):
            for m in serial(0, 96):
                t = alloc(f32[()])
                if (m // 6 + 4) % 5 >= 6:
                    t[()] = x[m % 6, 0]
        with block("copy"):
            for i in serial(0, 8):
                with block("rows"):
                    for j in serial(0, 8):
                        y[i, 7 - j] = x[i, j] + f32(1.0)
            for k in serial(0, 8):
                for l in serial(0, 0):
                    y[k, l] = x[3, k]""",
    "loops from one on": """(x: f32[17], y: out[f32[17]]):
        with block("first"):
            for i in serial(1, 18):
                y[i - 1] = x[17 - i] * f32(3.0)""",
    "names that a recipe would use": """(x: f32[7, 40], w: f32[40, 24], y: out[f32[7, 24]]):
        with block("o1"):
            for p in serial(0, 7):
                for q in serial(0, 24):
                    y[p, q] = f32(0.0)
                    for o0 in serial(0, 40):
                        y[p, q] += x[p, o0] * w[o0, q]""",
}


def kernel(name: str) -> PrimFunc:
    return parse(f"\n    @primfunc\n    def k{TEXTS[name]}\n")


@pytest.mark.parametrize("name", TEXTS)
def test_kernels_without_a_fast_variant_run(name: str) -> None:
    """Alone, between elementwise neighbours, and in layouts that are pinned at odds."""
    func = kernel(name)
    assert_as_meant(alone(func), arrays_for(alone(func)))
    graph = between_neighbours(func)
    assert_as_meant(fuse_groups(canonicalize(graph)), arrays_for(graph))
    rng = np.random.default_rng(len(name))
    pins = {n: _shifted(graph.values[n].shape, int(rng.integers(3))) for n in inner_values(graph)}
    assert_as_meant(graph, arrays_for(graph), pins)


def between_neighbours(func: PrimFunc) -> OperatorGraph:
    """abs in front of each float input, neg behind each float output."""
    graph = OperatorGraph()
    for buffer in func.inputs:
        graph.add_value(Value(f"in_{buffer.name}", buffer.dtype, buffer.shape))
    graph.set_inputs([f"in_{buffer.name}" for buffer in func.inputs])
    for buffer in func.inputs:
        before = elementwise.unary("abs", buffer.shape)
        graph.add(Node(f"abs_{buffer.name}", "Abs", before, (f"in_{buffer.name}",), (buffer.name,)))
    names = tuple(b.name for b in func.outputs)
    graph.add(Node("n", func.name, func, tuple(b.name for b in func.inputs), names))
    outputs = []
    for buffer in func.outputs:
        if buffer.dtype == "float32":
            after = elementwise.unary("neg", buffer.shape)
            graph.add(Node(f"n_{buffer.name}", "Neg", after, (buffer.name,), (f"o_{buffer.name}",)))
            outputs.append(f"o_{buffer.name}")
        else:
            outputs.append(buffer.name)
    graph.set_outputs(outputs)
    return graph


def inner_values(graph: OperatorGraph) -> list[str]:
    return [v for node in graph.nodes for v in node.outputs if graph.values[v].shape]


def _shifted(shape: tuple[int, ...], amount: int) -> Layout:
    """The axes the other way round, the first one moved, the last one split."""
    index_map = IndexMap.offset(len(shape), 0, amount)
    index_map = index_map.then(IndexMap.permute(tuple(reversed(range(len(shape))))))
    return Layout.of(index_map.then(IndexMap.split(len(shape), 0, 3)), shape)


def test_what_is_written_in_part_keeps_the_part() -> None:
    func = parse(
        """
        @primfunc
        def k(x: f32[5, 9], y: out[f32[5, 9]]):
            with block("first"):
                for i in serial(1, 4):
                    for j in serial(0, 9):
                        y[i, j] = x[i, j] * f32(2.0)
        """
    )
    graph = alone(func)
    for pins in ({}, {"y": _shifted((5, 9), 1)}):
        assert_as_meant(graph, arrays_for(graph), pins, frozenset({"y"}))
    assert contents(graph)["y"] == Undefined()


def test_nothing_is_known_of_elements_that_nobody_writes() -> None:
    text = """
        @primfunc
        def k(x: f32[6], y: out[f32[6]]):
            with block("a"):
                for i in serial(0, 3):
                    y[i] = f32(1.0)
            with block("first"):
                for j in serial({}, 6):
                    y[j] = f32(1.0)
        """
    assert contents(alone(parse(text.format(3))))["y"] != Undefined()
    assert contents(alone(parse(text.format(4))))["y"] == Undefined()


@pytest.mark.parametrize("name", ["carried value", "transposed in place"])
def test_nothing_is_known_of_what_is_computed_from_itself(name: str) -> None:
    graph = alone(kernel(name))
    assert contents(graph)["y"] == Undefined()


def test_overlapping_moves_are_no_views() -> None:
    func = kernel("overlapping moves")
    assert not any(isinstance(f.recipe, View) for f in kernel_variants(func, frozenset(), TARGET))
    apart = movement.concat([(1, 16, 2, 2), (1, 8, 2, 2)], 1)
    assert any(isinstance(f.recipe, View) for f in kernel_variants(apart, frozenset(), TARGET))
    graph = OperatorGraph()
    graph.add_value(Value("x", "float32", (1, 16, 2, 2)))
    graph.set_inputs(["x"])
    for op, name in (("neg", "b"), ("abs", "a")):  # the one that wins is computed first
        graph.add(Node(name, op, elementwise.unary(op, (1, 16, 2, 2)), ("x",), (name,)))
    graph.add(Node("both", "Both", func, ("a", "b"), ("v",)))
    graph.add(Node("end", "Exp", elementwise.unary("exp", (1, 24, 2, 2)), ("v",), ("y",)))
    graph.set_outputs(["y"])
    assert_as_meant(graph, arrays_for(graph))


JOINED = """(a: f32[1, 8, 2, 2], b: f32[1, 8, 2, 2], y: out[f32[1, 16, 2, 2]]):
        with block("first"):
            for n in serial(0, 1):
                for c in serial(0, 8):
                    for h in serial(0, 2):
                        for w in serial(0, 2):
                            y[n, c, h, w] = a[n, c, h, w]
        with block("second"):
            for m in serial(0, 1):
                for e in serial(0, 8):
                    for k in serial(0, 2):
                        for v in serial(0, 2):
                            y[m, e + 8, k, v] = b[m, e, k, v]"""
CORNER = """
        with block("corner"):
            for u in serial(0, 1):
                y[u, 3, 1, 1] = b[u, 3, 1, 0]"""


@pytest.mark.parametrize(("rest", "through"), [("", True), (CORNER, False)])
def test_channels_are_traced_where_whole_channels_move(rest: str, through: bool) -> None:
    """A later stage that writes part of a channel is not looked past."""
    graph = OperatorGraph()
    graph.add_value(Value("a", "float32", (1, 8, 2, 2)))
    graph.add_value(Value("b", "float32", (1, 8, 2, 2)))
    graph.set_inputs(["a", "b"])
    joined = parse(f"\n    @primfunc\n    def k{JOINED}{rest}\n")
    graph.add(Node("both", "Both", joined, ("a", "b"), ("v",)))
    weights = np.random.default_rng(0).integers(-3, 4, (8, 16, 1, 1)).astype("float32")
    graph.add_initializer("w", weights)
    point = convolution.convolution((1, 16, 2, 2), (8, 16, 1, 1))
    graph.add(Node("point", "Conv", point, ("v", "w"), ("y",)))
    graph.set_outputs(["y"])
    expansions = reading_through(Expansions(graph), moved_channels(graph), {"v"})
    assert ("point" in expansions.of_node) is through
    expected = interpret_graph(graph, arrays_for(graph))["y"]
    if through:
        other = expansions.take(expansions.of_node["point"], {"v"})
        found = interpret_graph(canonicalize(other), arrays_for(graph))["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_names_that_a_recipe_would_use_cost_no_tile() -> None:
    """The same loops as of the same kernel under other names, none of them a refused tile's."""
    clashing = kernel("names that a recipe would use")
    text = to_text(clashing).replace("o0", "k").replace('"o1"', '"b"')
    loops = []
    for func in (clashing, parse(f"\n{text}")):
        graph = alone(func)
        kernels, _ = lower_kernels(apply_plan(graph, plan_layouts(graph, TARGET, 2)), TARGET)
        (made,) = kernels.values()
        assert not any(step.primitive is instead_of_tile for step in made.schedule.steps)
        loops.append([(x.kind, x.start, x.extent) for x in loops_of(made.func.body)])
    assert loops[0] == loops[1]
    assert any(kind is LoopKind.VECTORIZED for kind, *_ in loops[0])


def test_a_refused_tile_is_made_stage_by_stage_and_says_why() -> None:
    definition = convolution.convolution(
        (1, 8, 6, 6), (20, 4, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1)), groups=2
    )
    variant = next(
        variant
        for variant in kernel_variants(definition, frozenset({"w"}), TARGET)
        if isinstance(variant.recipe, Tiled)
        and variant.recipe.kind.group
        and variant.layouts["y"].is_padded
    )
    layouts = [(p.buffer.name, variant.layouts[p.buffer.name]) for p in definition.params]
    for pad, refused in (("undef", False), (0.0, True)):
        placements = tuple((name, x, pad if x.is_padded else None) for name, x in layouts)
        task = KernelTask("k", definition, placements, variant.recipe, TARGET)
        made = make_kernel(task, Trace(Options()))
        schedule = made.schedule
        first = schedule.steps[0]
        assert (first.primitive is instead_of_tile) is refused
        assert (made.instead_of is not None) is refused
        if refused:
            assert "tiles within groups of 10 do not write padding" in str(first.proofs[0])
            assert "tiles within groups of 10" in schedule.refusals[0].reason


@pytest.mark.parametrize("pinned", ["x", "y"])
def test_a_buffer_beside_a_pin_may_be_called_like_its_padding(pinned: str) -> None:
    """A layout with padding for x or y, where other parameters are called x_padding, y_padding."""
    text = """
    @primfunc
    def k(x: f32[14], x_padding: f32[14], y_padding: f32[14], y: out[f32[14]]):
        for y_padding_0 in serial(0, 14):
            y[y_padding_0] = x[y_padding_0] + x_padding[y_padding_0] * y_padding[y_padding_0]
"""
    graph = between_neighbours(parse(text))
    assert_as_meant(graph, arrays_for(graph), {pinned: blocked((14,), 0, 4)})


def test_constants_with_two_outputs() -> None:
    two = kernel("read by later stages")
    graph = OperatorGraph()
    graph.add_initializer("c", np.arange(54, dtype="float32").reshape(6, 9))
    graph.add_value(Value("x", "float32", (6, 9)))
    graph.set_inputs(["x"])
    graph.add(Node("constant", "two", two, ("c",), ("a", "b")))
    graph.add(Node("sum", "Add", elementwise.binary("add", (6, 9), (6, 9)), ("x", "a"), ("y",)))
    graph.add(Node("rows", "Neg", elementwise.unary("neg", (6,)), ("b",), ("z",)))
    graph.set_outputs(["y", "z", "b"])
    for pins in ({}, {"y": _shifted((6, 9), 2)}):
        assert_as_meant(graph, arrays_for(graph), pins)


# Pins ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_softmax_in_any_order_of_axes(order: tuple[int, ...]) -> None:
    shape = (2, 3, 9)
    graph = chain("float32", reduction.softmax(shape, (2,)), reduction.softmax(shape, (2,)))
    pin = Layout.of(IndexMap.permute(order), shape)
    assert_as_meant(graph, arrays_for(graph), {"v0": pin})


@pytest.mark.parametrize("seed", range(12))
def test_stages_in_any_layout(seed: int) -> None:
    """Families' layouts and others, at one end, at both, at odds."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([1, 3, 5, 9]) for _ in range(rng.randint(1, 4)))
    axis = rng.randrange(len(shape))
    funcs = [
        reduction.softmax(shape, (axis,)),
        elementwise.unary("exp", shape),
        reduction.softmax(shape, (axis,)),
    ]
    graph = chain("float32", *funcs)
    pins = {name: random_layout(rng, shape) for name in ("v0", "v1") if rng.random() < 0.8}
    if len(shape) == 4 and rng.random() < 0.5:
        pins["v0"] = channels_last(shape)
    assert_as_meant(graph, arrays_for(graph), pins)


def test_two_outputs_can_be_pinned() -> None:
    graph = between_neighbours(kernel("two outputs in one nest"))
    pins = {"y": _shifted((12,), 2), "z": _shifted((3, 4), 1)}
    for some in (pins, {"z": pins["z"]}, {"y": pins["y"], "z": row_major((3, 4))}):
        assert_as_meant(graph, arrays_for(graph), some)


def test_a_pin_that_others_need() -> None:
    """Each layout that a user gives is offered around: pins can be met together, and not alone."""
    shape = (1, 16, 3, 3)
    graph = chain("float32", *(elementwise.unary(op, shape) for op in ("abs", "exp", "neg")))
    odd = Layout.of(IndexMap.offset(4, 3, 1), shape)
    pins = {"v0": channels_last(shape), "v1": "NCHW8c", "y": odd}
    plan = None
    with pytest.raises(LayoutConflict):
        plan = plan_layouts(graph, TARGET, 2, {"v0": pins["v0"], "v1": pins["v1"]})
    plan = plan_layouts(graph, TARGET, 2, pins)
    (last,) = (pin for pin in plan.pinned if pin.value == "y")
    assert last.cost is None and "no plan meets the other pins" in last.because


def test_a_pin_that_no_tile_can_have_is_still_refused() -> None:
    """What has tiles alone says which layouts these can have."""
    graph = chain(
        "float32", elementwise.unary("abs", (1, 16, 3, 3)), elementwise.unary("exp", (1, 16, 3, 3))
    )
    pins = {"v0": "NHWC", "y": "NCHW8c"}
    with pytest.raises(LayoutConflict, match="has no variant with"):
        plan_layouts(graph, TARGET, 2, pins)


# Loops that a user made parallel ------------------------------------------------------------------


def in_parallel(pad: float | str | None) -> Schedule:
    s = Schedule.of(GROW).apply(cache_read, "x", "xc").apply(cache_write, "y", "yc")
    s = s.apply(transform_layout, "xc", PACKED, 0).apply(transform_layout, "yc", PACKED, pad)
    s = s.apply(sequential_buffer_access, "compute", "yc", ("io", "ii"))
    return s.apply(parallelize_loop, "io")


@pytest.mark.parametrize(("pad", "shared"), [(None, True), ("undef", True), (0, False)])
def test_a_parallel_loop_beside_a_padding_stage_is_serial(pad: Any, shared: bool) -> None:
    schedule = in_parallel(pad)
    variant = lifted(schedule.func, TARGET)
    assert ("by one thread" in variant.name) is not shared
    graph = chain("int32", GROW, ADDONE, GROW)
    graph.offer("grow0", schedule, only=True)
    plan = plan_layouts(graph, TARGET, 2)
    assert ("by one thread" in plan.choices["grow0"].variant_name) is not shared
    run(graph, plan, TARGET, x=X)
    kernels, _ = lower_kernels(apply_plan(graph, plan), TARGET)
    (made,) = (k for k in kernels.values() if k.schedule.definition == schedule.func)
    kinds = {loop.kind for loop in loops_of(made.func.body)}
    assert (LoopKind.PARALLEL in kinds) is shared


def test_two_outputs_of_a_scheduled_kernel() -> None:
    """Nothing is promised of the padding of either; what is in it stays out of the results."""
    func = kernel("two outputs in one nest")
    s = Schedule.of(func).apply(cache_read, "x", "xc").apply(cache_write, "y", "yc")
    s = s.apply(transform_layout, "xc", _shifted((12,), 1), 0.0)
    s = s.apply(transform_layout, "yc", _shifted((12,), 2), "undef")
    graph = between_neighbours(func)
    graph.offer("n", s, only=True)
    assert_as_meant(graph, arrays_for(graph))


def test_padding_that_the_plan_writes_beside_a_parallel_loop() -> None:
    """The stage comes from a reader's demand, not from the schedule."""
    graph = chain("int32", GROW, GROW)
    graph.offer("grow0", in_parallel("undef"), only=True)
    graph.offer("grow1", packed(GROW, 1, "undef"), only=True)
    run(graph, plan_layouts(graph, TARGET, 2), TARGET, x=X)


# Random kernels -----------------------------------------------------------------------------------


# Not shrunk: a case takes a compile each time, and shrinking outlasts the limit of a test.
@settings(max_examples=60, phases=[Phase.generate])
@given(graphs())
def test_random_graphs(case: Case) -> None:
    graph = fuse_groups(case.graph) if case.fused else case.graph
    pins = {name: pin for name, pin in case.pins.items() if name in graph.values}
    assert_as_meant(graph, arrays_for(graph, case.seed), pins, case.unwritten)


REGULAR = [replace(o, stage="definition", marks=False) for o in (FLOAT_KERNELS, INTEGER_KERNELS)]


@settings(max_examples=40, phases=[Phase.generate])
@given(st.sampled_from(REGULAR).flatmap(primfuncs), st.integers(0, 1000))
def test_random_definitions(func: PrimFunc, seed: int) -> None:
    assert_as_meant(alone(func), arrays_for(alone(func), seed))
