"""Tests of operators whose output shapes depend on data, max pooling with indices and its inverse,
sequences and suppression, against onnxruntime, numpy and ONNX's reference evaluator."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import InvalidModel, RunError, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.models.sized_runs import parsed_model
from support.single import noise, peer, single
from support.targets import in_turn

I64, F32 = np.int64, np.float32
FEW = settings(max_examples=30, deadline=None)


def node(op: str, arrays: list[Any], outputs: int = 1, opset: int = 17, **attributes: Any) -> Any:
    """A model of one node whose outputs' extents ONNX does not say."""
    infos = [
        helper.make_tensor_value_info(f"i{k}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for k, a in enumerate(arrays)
    ]
    names = [f"o{k}" for k in range(outputs)]
    made = helper.make_node(op, [i.name for i in infos], names, name="the_node", **attributes)
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([made], "g", infos, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    typed = shape_inference.infer_shapes(model)
    known = {info.name: info for info in typed.graph.value_info}
    for info in typed.graph.output:
        info.CopyFrom(known.get(info.name, info))
    return typed


def results(model: Any, arrays: list[Any]) -> list[Any]:
    """What the graph means, cut as a run cuts it."""
    graph = import_model(model)
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    made = interpret_graph(graph, feeds)
    for trim in graph.trims:
        extent = int(made[trim.extents].reshape(-1)[trim.element])
        made[trim.output] = made[trim.output][(slice(None),) * trim.axis + (slice(extent),)]
    return [made[name] for name in graph.results]


def same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


def by_reference(model: Any, arrays: list[Any]) -> list[Any]:
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]


@st.composite
def tensors(draw: Any, least: int = 1) -> Any:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=least, max_size=3)))
    dtype = draw(st.sampled_from([F32, I64, np.int32, np.uint8]))
    values = draw(st.lists(st.integers(0, 2), min_size=int(np.prod(shape)), max_size=99))
    return np.array(values[: int(np.prod(shape))], dtype).reshape(shape)


@FEW
@given(x=tensors())
def test_non_zero(x: Any) -> None:
    same(results(node("NonZero", [x]), [x]), [np.array(np.nonzero(x), I64)])


@FEW
@given(data=st.data())
def test_compress(data: st.DataObject) -> None:
    x = data.draw(tensors())
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    extent = x.size if axis is None else x.shape[axis]
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=1, max_size=extent + 1)))
    attributes = {} if axis is None else {"axis": axis}
    model = node("Compress", [x, keep], **attributes)
    wanted = np.compress(keep[:extent], x, axis)
    same(results(model, [x, keep]), [wanted])


@FEW
@given(data=st.data())
def test_unique(data: st.DataObject) -> None:
    x, ordered = data.draw(tensors()), data.draw(st.booleans())
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    attributes = {} if axis is None else {"axis": axis}
    model = node("Unique", [x], 4, sorted=int(ordered), **attributes)
    found = results(model, [x])
    y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not ordered:
        order = np.argsort(first)
        y, first, counts = y.take(order, axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    wanted = [y, first, inverse.reshape(-1), counts]
    same(found, [w if k == 0 else w.astype(I64) for k, w in enumerate(wanted)])


def test_nan_and_zeros_among_unique_elements() -> None:
    x = np.array([np.nan, 0.0, 1.0, -0.0, np.nan, np.inf], F32)
    y, first, inverse, counts = results(node("Unique", [x], 4), [x])
    np.testing.assert_array_equal(y, [0, 1, np.inf, np.nan])
    assert [first.tolist(), inverse.tolist()] == [[1, 2, 5, 0], [3, 0, 1, 0, 3, 2]]
    assert counts.tolist() == [2, 1, 1, 2]


@in_turn("dtype ordered", (F32, I64, np.uint8, np.bool_), (0, 1))
def test_unique_rows_of_several_chunks(dtype: Any, ordered: int, target: Any) -> None:
    """Columns of extremes, which are keys that count as taken, and many equal rows."""
    rng = np.random.default_rng(5)
    some = {
        F32: [np.inf, -np.inf, 3e38, -1.5, 0.25],
        I64: [2**63 - 1, -(2**63), 0, 5, -(2**62)],
        np.uint8: [0, 255, 7],
        np.bool_: [False, True],
    }[dtype]
    for shape in ((400, 2), (333, 1)):
        x = rng.choice(np.array(some, dtype), shape)
        model = node("Unique", [x], 4, sorted=ordered, axis=0)
        exe = gf.compile(model, target=target, threads=2, options=gf.Options(workers=0))
        made = list(exe.run({"i0": x}).values())
        y, first, inverse, counts = np.unique(x, True, True, True, axis=0)
        if not ordered:
            order = np.argsort(first)
            y, first, counts = y[order], first[order], counts[order]
            inverse = np.argsort(order)[inverse.reshape(-1)]
        wanted = [first, inverse.reshape(-1), counts]
        same(made, [y, *(w.astype(I64) for w in wanted)])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_unique_of_no_elements(shape: tuple[int, ...]) -> None:
    """Rows of no elements are equal."""
    x, axis = np.zeros(shape, F32), 0 if len(shape) == 2 else None
    exe = gf.compile(node("Unique", [x], 4, axis=axis), threads=1, options=gf.Options(workers=0))
    one = min(shape[0], 1)
    zeros = [np.zeros(n, I64) for n in (one, shape[0])]
    wanted = [x[:one], *zeros, np.full(one, shape[0], I64)]
    same(list(exe.run({"i0": x}).values()), wanted)


def test_compiled_outputs_are_cut_at_each_run() -> None:
    x = np.zeros((3, 5), F32)
    exe = gf.compile(node("NonZero", [x]), threads=2, options=gf.Options(workers=0))
    for places in ((), ((1, 2),), ((0, 0), (2, 4), (2, 3))):
        x[:] = 0
        for place in places:
            x[place] = np.nan
        assert exe.run({"i0": x})["o0"].tolist() == np.array(np.nonzero(x)).tolist()
    keep = np.array([True, False, True])
    exe = gf.compile(node("Compress", [x, keep], axis=0), threads=1, options=gf.Options(workers=0))
    same([exe.run({"i0": x, "i1": keep})["o0"]], [x[keep]])
    assert exe.run({"i0": x, "i1": ~keep[:1].repeat(3)})["o0"].shape == (0, 5)


def test_an_output_of_unknown_extent_may_be_asked_for_its_shape() -> None:
    model = node("NonZero", [np.zeros(4, F32)])
    model.graph.node.append(helper.make_node("Shape", ["o0"], ["z"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.INT64, (2,)))
    exe = gf.compile(model, options=gf.Options(workers=0, fallback=None))
    for x in ([0, 0, 0, 0], [1, 0, 2, 0], [1, 2, 3, 4]):
        assert exe.run({"i0": np.array(x, F32)})["z"].tolist() == [1, np.count_nonzero(x)]


def test_an_output_of_unknown_extent_is_refused_where_a_node_needs_another_one() -> None:
    model = node("NonZero", [np.zeros(4, F32)])
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 3]), "shape"))
    model.graph.node.append(helper.make_node("Reshape", ["o0", "shape"], ["z"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.INT64, (1, 3)))
    with pytest.raises(UnsupportedOp, match="how many elements its input o0 has is only known"):
        import_model(model)
    graph = import_model(model, fallback=True)
    assert not graph.trims and not graph.guards
    (section,) = graph.sections.values()
    assert "how many elements its input o0 has" in section.nodes[0].reason


def test_what_is_known_when_the_model_is_compiled_has_known_extents() -> None:
    model = node("NonZero", [np.zeros(4, F32)])
    tensor = helper.make_tensor("i0", TensorProto.FLOAT, (4,), [0, 3, 0, 1])
    del model.graph.input[:]
    model.graph.initializer.append(tensor)
    graph = import_model(model)
    assert graph.initializers["o0"].tolist() == [[1, 3]] and not graph.trims


@in_turn("most", (5, 12))
def test_the_best_of_what_a_mask_keeps(most: int, target: Any) -> None:
    """As detectors write it: places and scores behind a NonZero each of one mask, and the best of
    them, at most so many, or all if there are fewer."""
    model = parsed_model(
        f"""g (float[40] scores, float[40,4] boxes) => (float[N] best, float[N,4] taken)
        <float least = {{0.5}}, int64[1] most = {{{most}}}, int64[1] flat = {{-1}},
         int64[1] one = {{1}}, int64[1] first = {{0}}, int64 zero = {{0}}> {{
            keep = Greater(scores, least)
            a = NonZero(keep)  b = Transpose(a)  kept = GatherND(scores, b)
            c = NonZero(keep)  d = Transpose(c)  places = Squeeze(d, one)
            shape = Shape(places)  count = Gather(shape, zero)  given = Unsqueeze(count, first)
            both = Concat<axis=0>(most, given)  least_of = ReduceMin<keepdims=0>(both)
            k = Reshape(least_of, flat)
            best, order = TopK(kept, k)
            at = Gather(places, order)  taken = Gather(boxes, at)
        }}"""
    )
    exe = gf.compile(model, threads=1, target=target, options=gf.Options(workers=0, fallback=None))
    rng = np.random.default_rng(7)
    boxes = F32(rng.random((40, 4)))
    for count in (40, 3, 0, 5, 6, 40, 1):
        kept = rng.permutation(np.arange(40) < count)
        scores = F32(np.where(kept, 0.6, 0.1) + np.arange(40) / 1e3)
        feeds = {"scores": scores, "boxes": boxes}
        same(list(exe.run(feeds).values()), list(peer(model, feeds).values()))


# Pooling -----------------------------------------------------------------------------------------

POOLED = [
    ((2, 3, 8), {"kernel_shape": [3], "strides": [2]}),
    ((2, 3, 6, 5), {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}),
    ((1, 2, 7, 7), {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 1]}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 2, 5, 4, 3), {"kernel_shape": [2, 2, 2], "pads": [1, 0, 0, 0, 1, 0]}),
    ((1, 1, 5, 5), {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
]


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize(("shape", "attributes"), POOLED)
def test_max_pool_with_indices(shape: Any, attributes: Any, storage_order: int) -> None:
    for x in (noise(*shape), np.float32(np.random.default_rng(1).integers(0, 3, shape))):
        model = node("MaxPool", [x], 2, storage_order=storage_order, **attributes)
        same(results(model, [x]), list(peer(model, {"i0": x}).values()))


def test_nan_in_a_window_with_indices_is_as_in_onnxruntime() -> None:
    x = np.array([np.nan, 1, np.nan, 2, 3, np.nan, np.nan, -1], F32).reshape(1, 1, 8)
    model = node("MaxPool", [x], 2, kernel_shape=[2], strides=[2])
    same(results(model, [x]), list(peer(model, {"i0": x}).values()))


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2]},
        {"kernel_shape": [2, 3], "dilations": [3, 2]},
    ],
)
def test_places_of_maxima_in_lanes(attributes: Any, storage_order: int) -> None:
    """Equal elements, NaN and infinities at all taps; the first of nothing but NaN is the place."""
    values = np.array([np.nan, -np.inf, np.inf, -0.0, 0.0, 1.0], F32)
    random = np.random.default_rng(2)
    x = values[np.concatenate([random.integers(0, most, (1, 20, 40, 37)) for most in (6, 2)])]
    model = node("MaxPool", [x], 2, storage_order=storage_order, **attributes)
    exe = gf.compile(model, threads=2, options=gf.Options(workers=0))
    assert not any("stage by stage" in row.variant for row in exe.decisions().rows)
    same(list(exe.run({"i0": x}).values()), list(peer(model, {"i0": x}).values()))


def test_max_unpool() -> None:
    x = np.arange(1, 9, dtype=F32).reshape(1, 2, 2, 2)
    places = np.array([0, 2, 8, 10, 17, 19, 25, 27]).reshape(x.shape)
    model = node("MaxUnpool", [x, places], kernel_shape=[2, 2], strides=[2, 2])
    same(results(model, [x, places]), list(peer(model, {"i0": x, "i1": places}).values()))
    exe = gf.compile(model, threads=1, options=gf.Options(workers=0))
    with pytest.raises(RunError, match="an index of tensor i1 is 32, and has to be from 0"):
        exe.run({"i0": x, "i1": places + 5})


# Sequences ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, 1])
def test_reverse_sequence(batch: int) -> None:
    x, lengths = noise(4, 4, 3), np.array([0, 1, 3, 4])
    attributes = {"batch_axis": batch, "time_axis": 1 - batch}
    model = single("ReverseSequence", [x, lengths], 10, None, **attributes)
    feeds = {"i0": x, "i1": lengths}
    graph = import_model(model)
    made = interpret_graph(graph, feeds)["o0"]
    np.testing.assert_array_equal(made, by_reference(model, [x, lengths])[0])
    assert {(guard.lo, guard.hi) for guard in graph.guards} == {(0, 4)}


READ_BY_ANOTHER = [
    "float[2,3,8] x) => (float z) { p, y = MaxPool<kernel_shape = [2]>(x)",
    "float[2,3,8] x, int64[3] lengths) => (float z) { y = ReverseSequence(x, lengths)",
    "float[1,2,5,5] x, float[1,2,2,2] w, float[1,8,4,4] o) => (float z) { y = DeformConv(x, w, o)",
    "float[1,9,1] x, float[4] w) => (float z) <int64 s={2}> { y = STFT(x, s, w)",
    "uint8[1,2,5,5] x, uint8[1,2,2,2] w, uint8 a) => (float z) { y = ConvInteger(x, w, a)",
]


@pytest.mark.parametrize("nodes", READ_BY_ANOTHER)
def test_results_of_known_extents_have_no_counts_for_their_readers(nodes: str) -> None:
    graph = import_model(parsed_model(f"g ({nodes} z = Cast<to = 1>(y) }}", opset=19))
    assert not graph.trims


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str) -> None:
    x, update, starts = noise(2, 3, 4, 5), noise(2, 3, 2, 5, seed=1), np.array([2, 1])
    starts = starts + (mode == "circular")
    model = single("TensorScatter", [x, update, starts], 24, None, mode=mode)
    feeds = {"i0": x, "i1": update, "i2": starts}
    made = interpret_graph(import_model(model), feeds)["o0"]
    np.testing.assert_array_equal(made, by_reference(model, [x, update, starts])[0])
    outside = single("TensorScatter", [x, update], 24, {2: np.array([3, 5])}, mode=mode)
    with pytest.raises(InvalidModel, match="has to be from 0 to"):
        import_model(outside)


@pytest.mark.parametrize("starts", [[1, 0], [0, 1]])
def test_updates_of_which_a_run_gives_a_part(starts: list[int]) -> None:
    x, update = noise(2, 3, 4, 5), noise(2, 3, 3, 5, seed=1)
    model = single("TensorScatter", [x, update, np.array(starts)], 24, None)
    model.graph.input[1].type.tensor_type.shape.dim[2].dim_param = "rows"
    exe = gf.compile(model, sizes={"rows": (0, 3)}, options=gf.Options(threads=1))
    for rows in (3, 0, 2, 1):
        arrays = [x, update[:, :, :rows], np.array(starts)]
        found = exe.run({f"i{k}": array for k, array in enumerate(arrays)})["o0"]
        np.testing.assert_array_equal(found, by_reference(model, arrays)[0])
    assert len(exe.specializations) == 1
    with pytest.raises(RunError, match=r"the end of the elements .* is 5"):
        exe.run({"i0": x, "i1": update, "i2": np.array([2, 1])})
    with pytest.raises(RunError, match="the least index i2 is -1"):
        exe.run({"i0": x, "i1": update, "i2": np.array([0, -1])})


# Suppression -------------------------------------------------------------------------------------


def suppression(boxes: Any, scores: Any, most: int, **attributes: Any) -> Any:
    """A model with run-time thresholds."""
    arrays = [boxes, scores, np.array([0.4], F32), np.array([0.2], F32)]
    model = node("NonMaxSuppression", arrays, **attributes)
    made = model.graph.node[0]
    made.input[:] = ["i0", "i1", "most", "i2", "i3"]
    model.graph.initializer.append(helper.make_tensor("most", TensorProto.INT64, (1,), [most]))
    return model


@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("most", [1, 3, 100])
def test_non_max_suppression(centered: int, most: int) -> None:
    rng = np.random.default_rng(most)
    boxes = F32(rng.integers(0, 12, (2, 20, 4)))
    scores = F32(rng.integers(0, 8, (2, 3, 20)) / 8)
    model = suppression(boxes, scores, most, center_point_box=centered)
    arrays = {"i0": boxes, "i1": scores, "i2": np.array([0.4], F32), "i3": np.array([0.2], F32)}
    exe = gf.compile(model, threads=2, options=gf.Options(workers=0))
    for overlap, least in ((0.4, 0.2), (0.0, 0.5), (1.0, 0.0), (0.3, 2.0)):
        arrays |= {"i2": np.array([overlap], F32), "i3": np.array([least], F32)}
        same([exe.run(arrays)["o0"]], list(peer(model, arrays).values()))


def test_suppression_without_a_number_of_boxes_picks_none() -> None:
    boxes, scores = noise(1, 5, 4), noise(1, 1, 5)
    model = node("NonMaxSuppression", [boxes, scores])
    assert results(model, [boxes, scores])[0].shape == (0, 3)


def test_suppression_of_no_boxes_picks_none() -> None:
    model = suppression(np.zeros((1, 0, 4), F32), np.zeros((1, 2, 0), F32), 5)
    exe = gf.compile(model, threads=1, options=gf.Options(workers=0))
    arrays = {each.name: np.zeros(each.shape, F32) for each in exe.inputs}
    assert exe.run(arrays)["o0"].shape == (0, 3)


@in_turn("count centered", (16, 40, 300), (0, 1))
def test_boxes_of_several_vectors_are_picked(count: int, centered: int, target: Any) -> None:
    """Ties, scores that do not count, and more picked boxes than fit a vector."""
    rng = np.random.default_rng(count)
    boxes = F32(rng.integers(0, 60, (2, count, 4)))
    boxes[:, ::7, 2] = boxes[:, ::7, 0]  # without an area, unless the extent is given
    scores = F32(rng.integers(-8, 8, (2, 3, count)) / 8)
    scores[0, 0], scores[1, 1, ::3], scores[1, 2, 5:] = 0.5, -np.inf, np.nan
    scores[0, 1] = -np.abs(scores[0, 1])
    scores[0, 1, ::2] = 0.0  # beside −0.0, which is equal
    for most in (5, 20, count):
        model = suppression(boxes, scores, most, center_point_box=centered)
        arrays = {"i0": boxes, "i1": scores}
        options = gf.Options(workers=0)
        exe = gf.compile(model, threads=2, target=target, options=options)
        for overlap, least in ((0.3, -2.0), (0.0, -np.inf), (0.9, 0.25), (0.5, 9.0)):
            arrays |= {"i2": np.array([overlap], F32), "i3": np.array([least], F32)}
            made = exe.run(arrays)["o0"]
            np.testing.assert_array_equal(made, picked_one_by_one(arrays, most, centered))


def picked_one_by_one(arrays: Any, most: int, centered: int) -> Any:
    """The definition, in float32."""
    boxes, overlap, least = arrays["i0"], arrays["i2"][0], arrays["i3"][0]
    a, b, c, d = (boxes[..., k] for k in range(4))
    if centered:
        sides = [a - c / F32(2), a + c / F32(2), b - d / F32(2), b + d / F32(2)]
    else:
        sides = [np.minimum(a, c), np.maximum(a, c), np.minimum(b, d), np.maximum(b, d)]
    sides.append((sides[1] - sides[0]) * (sides[3] - sides[2]))
    rows: list[list[int]] = []
    for batch, classes in enumerate(arrays["i1"]):
        for number, scores in enumerate(classes):
            counts = np.nonzero((scores > least) & (scores > -np.inf))[0]
            picked: list[Any] = []
            for box in sorted(counts, key=lambda k: (-scores[k], k)):
                if len(picked) == most:
                    break
                one = [side[batch, box] for side in sides]
                if all(iou(one, [s[batch, p] for s in sides]) <= overlap for p in picked):
                    picked.append(box)
            rows += [[batch, number, box] for box in picked]
    return np.array(rows, I64).reshape(-1, 3)


def iou(one: list[Any], other: list[Any]) -> Any:
    """The intersection over union; −1 where nothing overlaps."""
    low = [max(one[k], other[k]) for k in (0, 2)]
    high = [min(one[k], other[k]) for k in (1, 3)]
    shared = (high[0] - low[0]) * (high[1] - low[1])
    union = one[4] + other[4] - shared
    apart = high[0] <= low[0] or high[1] <= low[1]
    return -1.0 if apart or min(shared, one[4], other[4], union) <= 0 else shared / union
