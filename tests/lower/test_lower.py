"""Tests of lowering: memory plans, shared kernels, and the proof of each memory access."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphflow as gf
from graphflow import tir
from graphflow.arith import Var, as_index, less_than
from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.convert import apply_plan
from graphflow.flow import plan_layouts
from graphflow.graph import OperatorGraph
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.lowering import remove_assume, remove_undef
from graphflow.lower import Lowered, lower
from graphflow.lower.memory_plan import align, pack, plan_arena
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import ALIGNMENT
from graphflow.schedule import require_in_bounds
from support.planning.nets import SHORT, Net, chain, favour, joined, two_demands
from support.single import noise
from support.texts import parsed

i, j = Var("i"), Var("j")


def lowered(graph: OperatorGraph) -> Lowered:
    return lower(apply_plan(graph, plan_layouts(graph, SHORT, 1)), SHORT)


# Memory -------------------------------------------------------------------------------------------

lives = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 12), st.integers(0, 6)), min_size=0, max_size=14
)


@given(lives)
def test_arena_keeps_apart_what_lives_together(tensors: list[tuple[int, int, int]]) -> None:
    sizes = {f"s{k}": size for k, (size, _, _) in enumerate(tensors)}
    touched: list[list[str]] = [[] for _ in range(20)]
    for k, (_, first, more) in enumerate(tensors):
        touched[first].append(f"s{k}")
        touched[first + more].append(f"s{k}")
    offsets, total = plan_arena(sizes, touched)
    assert set(offsets) == set(sizes)
    spans = {n: (offsets[n], offsets[n] + sizes[n]) for n in sizes}
    assert all(start % ALIGNMENT == 0 and stop <= total for start, stop in spans.values())
    for a, (_, first_a, more_a) in enumerate(tensors):
        for b, (_, first_b, more_b) in enumerate(tensors[:a]):
            if first_a <= first_b + more_b and first_b <= first_a + more_a:
                (start, stop), (other, end) = spans[f"s{a}"], spans[f"s{b}"]
                assert stop <= other or end <= start
    live = [
        sum(align(size) for size, first, more in tensors if first <= t <= first + more)
        for t in range(20)
    ]
    assert max(live) <= total <= sum(align(size) for size, _, _ in tensors)


def test_arena_leaves_out_what_nobody_touches_and_what_is_not_its_own() -> None:
    offsets, total = plan_arena({"a": 100, "b": 64}, [["a", "graph input"], ["a"]])
    assert offsets == {"a": 0}
    assert total == 128


def test_what_is_empty_has_an_offset_of_its_own() -> None:
    offsets, total = pack({"a": 0, "b": 100, "c": 0, "d": 4})
    assert offsets == {"a": 0, "b": 64, "c": 192, "d": 256} and total == 320
    offsets, total = plan_arena({"a": 0, "b": 100, "c": 0}, [["a", "b", "c"]])
    assert len({*offsets.values()}) == 3


def test_an_empty_constant_leaves_other_constants_as_they_are() -> None:
    """An empty output had the offset of the weights, which runs took from where it was."""
    text = """g (float[16,96] x) => (float[16,72] y, float[0,8] none) {
        y = MatMul (x, w) none = Identity (empty) }"""
    x, w = noise(16, 96), noise(96, 72)
    model = parsed(text, w=w, empty=np.zeros((0, 8), np.float32))
    found = gf.compile(model, options=gf.Options(threads=1, workers=0)).run({"x": x})
    np.testing.assert_allclose(found["y"], x @ w, rtol=1e-4, atol=1e-5)
    assert found["none"].shape == (0, 8)


def test_arena_uses_memory_again() -> None:
    """A chain of equal tensors needs two of them at a time."""
    sizes = {f"s{k}": 1000 for k in range(8)}
    touched = [[f"s{k}", f"s{k + 1}"] for k in range(7)]
    assert plan_arena(sizes, touched)[1] == 2 * align(1000)


def test_constants_that_lead_to_others_take_turns() -> None:
    """Scaled weights are packed and then nobody reads them."""
    build = ModelBuilder(seed=2)
    x = build.input("x", (1, 64, 14, 14))
    for _ in range(3):
        x = build.relu(build.batch_norm(build.conv(x, 64, 3, pads=[1, 1, 1, 1])))
    build.output(x)
    made = compile_graph(CompileRequest(build.model())).lowered
    scratch = [
        place.position
        for place in made.places.values()
        if place.space == "constant" and place.position >= made.scratch_place
    ]
    assert len(scratch) == 3 and {*scratch} == {made.scratch_place}
    assert made.kept_bytes < made.scratch_place < made.constant_bytes


def test_pack_is_dense_and_aligned() -> None:
    offsets, total = pack({"a": 1, "b": 64, "c": 65})
    assert offsets == {"a": 0, "b": 64, "c": 128}
    assert total == 256


@pytest.mark.parametrize("make", [chain, joined, two_demands])
def test_steps_of_a_network(make: object) -> None:
    graph = make()  # type: ignore[operator]
    program = lowered(graph)
    physical = program.physical
    assert set(physical.storages) <= set(program.places)
    life: dict[str, tuple[int, int]] = {}
    for k, (call, step) in enumerate(program.calls):
        kernel = program.kernels[step.symbol]
        places = [call.placements[p.buffer.name] for p in call.definition.params]
        names = [place.storage for place in places]
        starts = [replace(ref, offset=0) for ref in step.buffers[: len(names)]]
        assert [program.places[n] for n in names] == starts
        assert len(step.buffers) == len(kernel.func.params)
        for param, place, ref in zip(kernel.func.params, places, step.buffers, strict=False):
            spec = physical.storages[place.storage]
            assert ref.offset == place.offset * tir.DTYPES[spec.dtype].itemsize
            assert place.offset + param.buffer.size <= spec.elements
        for name in names:
            life[name] = (life.get(name, (k, k))[0], k)
    arena = [n for n, s in physical.storages.items() if s.kind == "arena"]
    for a in arena:
        spec = physical.storages[a]
        start = program.places[a].position
        stop = start + spec.elements * tir.DTYPES[spec.dtype].itemsize
        assert stop <= program.arena_bytes
        for b in arena:
            other = physical.storages[b]
            begin = program.places[b].position
            end = begin + other.elements * tir.DTYPES[other.dtype].itemsize
            together = life[a][0] <= life[b][1] and life[b][0] <= life[a][1]
            assert a == b or not together or stop <= begin or end <= start


# Kernels ------------------------------------------------------------------------------------------


def test_equal_kernels_are_made_once() -> None:
    net = Net(x=(1, 6, 4, 5))
    x = "x"
    for k in range(5):
        x = net.conv(f"c{k}", x, 6, 1)
    graph = net.done(x)
    pins = {f"c{k}": "channels_last" for k in range(4)}
    program = lower(apply_plan(graph, plan_layouts(graph, SHORT, 1, pins)), SHORT)
    used = [step.symbol for call, step in program.calls if call.variant is not None]
    assert len(used) == 5
    assert len(set(used[1:4])) == 1
    assert set(program.kernels) == {step.symbol for _, step in program.calls}


def test_kernels_that_differ_in_padding_alone_are_different(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Net(x=(1, 6, 4, 5))
    parts = [net.unary(n, "exp", "x") for n in "ab"]
    graph = net.done(
        net.over_channels("s", "sum", parts[0]), net.over_channels("m", "max", parts[1])
    )
    wanted = {"n_a": 0.0, "n_b": -np.inf}
    favour(monkeypatch, lambda c: c.pad_value == wanted.get(c.node))
    plan = plan_layouts(graph, SHORT, 1)
    assert {n: plan.choices[n].pad_value for n in wanted} == wanted
    program = lower(apply_plan(graph, plan), SHORT)
    of_node = {call.name: step.symbol for call, step in program.calls}
    assert of_node["n_a"] != of_node["n_b"]


def test_lowering_twice_gives_the_same_kernels() -> None:
    first, second = (lowered(joined()) for _ in range(2))
    assert {s: k.func for s, k in first.kernels.items()} == {
        s: k.func for s, k in second.kernels.items()
    }
    assert first.places == second.places


def test_large_intermediates_become_planned_memory() -> None:
    net = Net(x=(1, 64))
    program = lowered(net.done(net.add("y", reduction.softmax((1, 64), (1,)), "x")))
    (step,) = [s for call, s in program.calls]
    kernel = program.kernels[step.symbol]
    assert len(kernel.func.params) == 2 + len(kernel.workspace)
    for buffer, ref in zip(kernel.workspace, step.buffers[2:], strict=True):
        assert ref.space == "arena"
        assert ref.position + buffer.bytes <= program.arena_bytes


# Bounds -------------------------------------------------------------------------------------------


def kernel(x: tir.Buffer, y: tir.Buffer, *body: tir.Stmt) -> tir.PrimFunc:
    return tir.PrimFunc("k", (tir.Param(x, tir.Role.INPUT), tir.Param(y, tir.Role.OUTPUT)), body)


def loop(var: Var, stop: int, *body: tir.Stmt, kind: tir.LoopKind = tir.LoopKind.SERIAL) -> tir.For:
    return tir.For(var, as_index(0), as_index(stop), kind, body)


X, Y = tir.Buffer("x", (8,)), tir.Buffer("y", (8,))


def test_accesses_inside_are_proven() -> None:
    func = kernel(X, Y, loop(i, 8, tir.Store(Y, (i,), tir.Load(X, (7 - i,)))))
    proofs = require_in_bounds(func)
    assert proofs
    assert all(p.proven for p in proofs)


@pytest.mark.parametrize(
    ("stored", "loaded", "name"), [(i, i + 1, "x"), (i - 1, i, "y"), (i * 2, i, "y")]
)
def test_an_access_outside_is_refused(stored: Var, loaded: Var, name: str) -> None:
    func = kernel(X, Y, loop(i, 8, tir.Store(Y, (stored,), tir.Load(X, (loaded,)))))
    with pytest.raises(VerifyError, match=f"{name}\\[") as error:
        require_in_bounds(func)
    assert "not proven to stay in [8]" in str(error.value)
    assert "def k" in str(error.value)


def test_a_condition_keeps_an_access_inside() -> None:
    inner = tir.If(
        less_than(4 * i + j, 8), (tir.Store(Y, (4 * i + j,), tir.Load(X, (4 * i + j,))),)
    )
    body = loop(i, 3, loop(j, 4, inner, kind=tir.LoopKind.VECTORIZED))
    assert all(p.proven for p in require_in_bounds(kernel(X, Y, body)))
    bare = loop(i, 3, loop(j, 4, *inner.then, kind=tir.LoopKind.VECTORIZED))
    with pytest.raises(VerifyError):
        require_in_bounds(kernel(X, Y, bare))


def test_a_condition_on_data_proves_nothing() -> None:
    inside = tir.Comparison("lt", tir.Load(X, (i,)), tir.Literal(8.0, "float32"))
    body = loop(i, 8, tir.If(inside, (tir.Store(Y, (i + 1,), tir.Load(X, (i,))),)))
    with pytest.raises(VerifyError):
        require_in_bounds(kernel(X, Y, body))


# Assume and undef ---------------------------------------------------------------------------------


def assumption(index: Var = i) -> tir.Assume:
    claim = tir.Comparison("eq", tir.Load(X, (index,)), tir.Literal(0.0, "float32"))
    return tir.Assume(less_than(index, 4), claim)


def test_assumptions_go_with_the_loops_that_held_them() -> None:
    copy = loop(j, 8, tir.Store(Y, (j,), tir.Load(X, (j,))))
    func = kernel(
        X, Y, tir.Block("x_padding", (loop(i, 8, assumption()),)), tir.Block("copy", (copy,))
    )
    assert remove_assume(func).body == (tir.Block("copy", (copy,)),)


def test_assumptions_beside_work_go_alone() -> None:
    store = tir.Store(Y, (i,), tir.Load(X, (i,)))
    func = kernel(X, Y, loop(i, 8, assumption(), store))
    assert remove_assume(func).body == (loop(i, 8, store),)
    without = kernel(X, Y, loop(i, 8, store))
    assert remove_assume(without) is without
    assert remove_undef(without) is without


def test_stores_of_undef_go_and_the_others_stay() -> None:
    store = tir.Store(Y, (i,), tir.Load(X, (i,)))
    pad = tir.Block(
        "y_padding",
        (loop(j, 8, tir.If(less_than(5, j), (tir.Store(Y, (j,), tir.Undef("float32")),))),),
    )
    func = kernel(X, Y, loop(i, 8, store), pad)
    done = remove_undef(func)
    assert done.body == (loop(i, 8, store),)
    x = np.arange(8, dtype=np.float32)
    assert np.array_equal(tir.interpret(done, {"x": x})["y"], x)


def test_an_else_branch_is_kept() -> None:
    keep = tir.Store(Y, (i,), tir.Load(X, (i,)))
    choice = tir.If(less_than(i, 4), (tir.Store(Y, (i,), tir.Undef("float32")),), (keep,))
    done = remove_undef(kernel(X, Y, loop(i, 8, choice)))
    x = np.arange(8, dtype=np.float32)
    got = tir.interpret(done, {"x": x}, undefined=-1.0)["y"]
    assert got.tolist() == [-1, -1, -1, -1, 4, 5, 6, 7]
    assert not [e for s in tir.walk(done.body) if isinstance(s, tir.Store) for e in [s.value]
                if isinstance(e, tir.Undef)]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        tir.Binary("add", tir.Load(X, (i,)), tir.Undef("float32")),
        tir.Binary("mul", tir.Literal(0.0, "float32"), tir.Undef("float32")),
        tir.Select(
            tir.Comparison("gt", tir.Undef("float32"), tir.Load(X, (i,))),
            tir.Load(X, (i,)),
            tir.Load(X, (i,)),
        ),
        tir.Select(less_than(i, 4), tir.Unary("neg", tir.Undef("float32")), tir.Undef("float32")),
    ],
)
def test_storing_a_value_of_undef_leaves_anything(value: tir.Expr) -> None:
    kept = tir.Store(Y, (i,), tir.Load(X, (i,)))
    for stmt in (tir.Store(Y, (i,), value), tir.Reduce(tir.ReduceOp.ADD, Y, (i,), value)):
        assert remove_undef(kernel(X, Y, loop(i, 8, kept, stmt))).body == (loop(i, 8, kept),)


def test_a_select_beside_undef_becomes_its_other_side_where_that_may_be_loaded() -> None:
    inside = tir.Select(less_than(i, 4), tir.Load(X, (i,)), tir.Undef("float32"))
    done = remove_undef(kernel(X, Y, loop(i, 8, tir.Store(Y, (i,), inside))))
    assert done.body == (loop(i, 8, tir.Store(Y, (i,), tir.Load(X, (i,)))),)
    outside = tir.Select(less_than(i, 4), tir.Load(X, (i + 4,)), tir.Undef("float32"))
    value = tir.Binary("add", outside, tir.Load(X, (i,)))
    done = remove_undef(kernel(X, Y, loop(i, 8, tir.Store(Y, (i,), value))))
    require_in_bounds(done)
    x = np.arange(8, dtype="float32")
    got = tir.interpret(done, {"x": x}, undefined=-1.0)["y"]
    assert got.tolist() == [4, 6, 8, 10, -1, -1, -1, -1]


def test_a_select_beside_undef_stays_a_condition_where_its_other_side_is_forbidden() -> None:
    nobody = tir.Comparison("ne", tir.Load(X, (j,)), tir.Undef("float32"))
    stage = tir.Block("x_padding", (loop(j, 8, tir.Assume(less_than(j, 4), nobody)),))
    guarded = tir.Select(less_than(i, 4), tir.Load(X, (i,)), tir.Undef("float32"))
    func = kernel(X, Y, stage, loop(i, 8, tir.Store(Y, (i,), guarded)))
    (left,) = remove_assume(remove_undef(func)).body
    store = tir.Store(Y, (i,), tir.Load(X, (i,)))
    assert left == loop(i, 8, tir.If(less_than(i, 4), (store,)))


def test_a_branch_on_undef_is_refused() -> None:
    choice = tir.Comparison("gt", tir.Load(X, (i,)), tir.Undef("float32"))
    func = kernel(X, Y, loop(i, 8, tir.If(choice, (tir.Store(Y, (i,), tir.Load(X, (i,))),))))
    with pytest.raises(VerifyError, match="what runs depends on undef, in `if data"):
        remove_undef(func)


def test_undef_as_an_index_value_stays_possible_only_as_a_store() -> None:
    func = kernel(X, Y, loop(i, 8, tir.Store(Y, (i,), tir.Undef("float32"))))
    assert remove_undef(func).body == ()
    index = kernel(X, tir.Buffer("y", (8,), "int64"))
    assert tir.IndexValue(i).dtype == index.outputs[0].dtype
