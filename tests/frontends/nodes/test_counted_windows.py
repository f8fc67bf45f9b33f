"""Tests of windows, pads and normalizations along axes of which a run decides the extent: one
program gives what the definitions of each extent give, whatever stands behind its elements."""

import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import ExtentsLost, InvalidModel, RunError
from graphflow.base.sizes import Size, SizeRelation
from graphflow.frontends import import_model
from graphflow.frontends.importer import import_checked
from graphflow.graph import interpret_graph
from support.models.sized_runs import (
    OPTIONS,
    beside_peer,
    difference,
    parsed_model,
    peer_of,
    sized_feeds,
)
from support.seeds import seeds

OPSET = 22
"""The first one whose ceil mode is that of onnxruntime."""


@dataclass
class Case:
    """A model under construction, with one input x, and the bounds of its sizes."""

    shape: list[int | str]
    sizes: dict[str, tuple[int, int]]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    last: str = "x"

    def add(self, op: str, *constants: np.ndarray[Any, Any], **attributes: Any) -> None:
        names = [f"c{len(self.constants) + k}" for k in range(len(constants))]
        self.constants += map(numpy_helper.from_array, constants, names)
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.last, *names], [result], **attributes))
        self.last = result

    def model(self) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        self.nodes.append(helper.make_node("Identity", [self.last], ["y"]))
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", infos, results, self.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def opened(rng: random.Random, rank: int, least: int) -> Case:
    """An input of which some spatial axes are sizes, and perhaps the batch."""
    open_axes = [rng.random() < 0.7 for _ in range(rank)]
    open_axes[0] |= not any(open_axes)
    names = [
        "hwd"[axis] if is_open else rng.randint(5, 8) for axis, is_open in enumerate(open_axes)
    ]
    sizes = {}
    for name in (name for name in names if isinstance(name, str)):
        lo = rng.randint(1, 3) if rng.random() < 0.2 else rng.randint(least, least + 3)
        sizes[name] = (lo, lo + rng.randint(0, 7))
    batch: int | str = 2
    if rng.random() < 0.4:
        batch, sizes["n"] = "n", (1, 3)
    return Case([batch, rng.choice([2, 4]), *names], sizes)


def add_window(rng: random.Random, case: Case) -> None:
    """A convolution or pooling with any attributes."""
    op, rank = rng.choice(["Conv", "MaxPool", "AveragePool", "LpPool"]), len(case.shape) - 2
    kernel = [rng.randint(1, 4) for _ in range(rank)]
    auto = rng.choice([*["NOTSET"] * 5, "SAME_UPPER", "SAME_LOWER", "VALID"])
    # onnxruntime refuses SAME pads where a stride skips elements, and with dilations.
    most = kernel if "SAME" in auto else [3] * rank
    attributes: dict[str, Any] = {"strides": [rng.randint(1, n) for n in most], "auto_pad": auto}
    if auto == "NOTSET":
        attributes["pads"] = [rng.randint(0, k - 1) for k in (*kernel, *kernel)]
    if "SAME" not in auto and rng.random() < 0.4:
        attributes["dilations"] = [rng.randint(1, 2) for _ in range(rank)]
    if op != "Conv":
        attributes["kernel_shape"] = kernel
        attributes["ceil_mode"] = rng.randint(0, 1) if auto == "NOTSET" else 0
    if op == "AveragePool":
        attributes["count_include_pad"] = rng.randint(0, 1)
    constants = []
    if op == "Conv":
        channels = int(case.shape[1])
        groups, outputs = rng.choice([1, channels]), rng.choice([channels, 2 * channels])
        values = np.random.default_rng(rng.randint(0, 99))
        constants.append(values.standard_normal((outputs, channels // groups, *kernel)))
        constants += [values.standard_normal(outputs)] * rng.randint(0, 1)
        attributes["group"] = groups
        case.shape[1] = channels  # of the input
    case.add(op, *(np.asarray(c, np.float32) for c in constants), **attributes)


def add_transposed(rng: random.Random, case: Case) -> None:
    """A transposed convolution with any attributes."""
    rank, channels = len(case.shape) - 2, int(case.shape[1])
    kernel = [rng.randint(1, 4) for _ in range(rank)]
    strides = [rng.randint(1, 3) for _ in range(rank)]
    groups = rng.choice([1, channels])
    weights = np.random.default_rng(1).standard_normal((channels, 4 // groups, *kernel))
    case.add(
        "ConvTranspose",
        weights.astype(np.float32),
        strides=strides,
        pads=[rng.randint(0, k - 1) for k in (*kernel, *kernel)],
        output_padding=[rng.randint(0, stride - 1) for stride in strides],
        dilations=[rng.randint(1, 2) for _ in range(rank)],
        group=groups,
    )


def add_pad(rng: random.Random, case: Case) -> None:
    rank = len(case.shape)
    mode = rng.choice(["constant", "constant", "edge", "reflect"])
    pads = [0, 0, *(rng.randint(-2 if mode == "constant" else 0, 3) for _ in range(rank - 2))]
    pads += [0, 0, *(rng.randint(-1 if mode == "constant" else 0, 3) for _ in range(rank - 2))]
    values = [np.array(rng.choice([0, -1.5]), np.float32)] if mode == "constant" else []
    case.add("Pad", np.array(pads), *values, mode=mode)


def add_norm(rng: random.Random, case: Case) -> None:
    channels = int(case.shape[1])
    scale, shift = np.random.default_rng(3).standard_normal((2, channels)).astype(np.float32)
    if rng.random() < 0.5:
        case.add("InstanceNormalization", scale, shift)
    else:
        groups = rng.choice([1, channels // 2])
        case.add("GroupNormalization", scale, shift, num_groups=groups, epsilon=1e-3)


def add_reader(rng: random.Random, case: Case) -> None:
    """What shows a wrong extent or an element too many."""
    rank = len(case.shape)
    match rng.randint(0, 4):
        case 0:
            case.add(rng.choice(["GlobalAveragePool", "GlobalMaxPool"]))
        case 1:
            case.add("ReduceMean", np.arange(2, rank))
        case 2:
            case.add("Softmax", axis=-1)
        case 3:
            window = {"kernel_shape": [2] * (rank - 2), "pads": [1] * (2 * rank - 4)}
            case.add("MaxPool", **window, strides=[2] * (rank - 2))
        case _:
            case.add("Relu")


def drawn(seed: int) -> Case:
    rng = random.Random(seed)
    first = [add_window, add_window, add_pad, add_norm, add_transposed][seed % 5]
    rank = rng.choice([1, 1, 2, 2, 3])
    case = opened(rng, rank, 4)
    if first is add_norm:
        case.shape[1] = 4
    first(rng, case)
    add_reader(rng, case)
    return case


def special_results(
    model: onnx.ModelProto, sizes: dict[str, tuple[int, int]], runs: list[dict[str, int]]
) -> list[str]:
    """What is wrong with runs of NaN and infinities beside the definitions of their extents."""
    wrong = []
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    largest = {name: hi for name, (_, hi) in sizes.items()}
    for seed, extents in enumerate(runs):
        feeds = sized_feeds(exe, extents, seed)
        x, rng = feeds["x"], np.random.default_rng(seed)
        for number in (np.nan, np.inf, -np.inf):
            x[rng.random(x.shape) < (0.04 if seed else 0.0)] = number
        with np.errstate(all="ignore"):
            wanted = interpret_graph(import_model(model, {"x": x.shape}), feeds)
        for poison in (np.nan, np.inf, -np.inf):
            behind = sized_feeds(exe, {**extents, **largest}, seed)
            behind["x"][...] = poison
            exe.run(behind)
            said = difference(exe.run(feeds), wanted, 1e-4)
            wrong += [f"{extents} behind {poison}: {said}"] if said else []
    return wrong


def runs_of(sizes: dict[str, tuple[int, int]], seed: int) -> list[dict[str, int]]:
    rng = random.Random(seed)
    ends = [{name: bounds[k] for name, bounds in sizes.items()} for k in (0, 1)]
    return ends + [{name: rng.randint(*bounds) for name, bounds in sizes.items()} for _ in "abc"]


@pytest.mark.parametrize("seed", seeds(12, 120))
def test_any_window_of_any_extent(seed: int) -> None:
    case = drawn(seed)
    model, runs = case.model(), runs_of(case.sizes, seed)
    try:
        wrong, why_not = beside_peer(model, case.sizes, runs)
    except InvalidModel:
        return  # too large a window for the largest extents
    if why_not:
        assert any(reason in why_not for reason in ("no window fits", "SAME", "cropped", "fewer"))
        return
    assert not wrong
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not special_results(model, case.sizes, runs)


def test_most_windows_have_one_program() -> None:
    served = 0
    for seed in range(40):
        case = drawn(seed)
        model = case.model()
        sizes = [Size(name, lo, hi) for name, (lo, hi) in case.sizes.items()]
        shape = tuple(case.sizes[n][1] if isinstance(n, str) else n for n in case.shape)
        try:
            import_checked(model, {"x": shape}, None, (), False, {}, sizes)
            served += 1
        except gf.GraphflowError:
            pass
    assert served >= 28


def counted_as(text: str, least: int, most: int) -> tuple[str, int, int]:
    """The count of the last axis of y, as text and bounds."""
    graph = import_checked(
        parsed_model(f"g (float[1,1,n] x) => (float[1,1,k] y) {{ {text} }}", 17),
        {"x": (1, 1, most)}, None, (), False, {}, [Size("n", least, most)],
    )  # fmt: skip
    tensor = graph.counted[graph.values["y"]][2]
    return tensor, least, graph.values["y"].shape[2]


def test_runs_into_which_no_window_fits_are_excluded_or_refused() -> None:
    """The bounds that a user states stay what they are; each run is checked against a relation."""
    text = "g (float[1,1,n] x) => (float y) { y=MaxPool<kernel_shape=[2]>(x) }"
    args = parsed_model(text), {"x": (1, 1, 5)}, None, (), False, {}
    for least, found in ((1, (SizeRelation("n", (), 2, is_exact=False),)), (2, ())):
        assert import_checked(*args, [Size("n", least, 5)]).relations == found
    text = (
        "g (float[1,1,n] x, float[1,1,m] z) => (float y) "
        "{ c=Concat<axis=2>(x,z) y=MaxPool<kernel_shape=[3]>(c) }"
    )
    sizes = [Size("n", 1, 5), Size("m", 1, 3)]
    with pytest.raises(ExtentsLost, match="no window fits into 2"):
        shapes = {"x": (1, 1, 5), "z": (1, 1, 3)}
        import_checked(parsed_model(text), shapes, None, (), False, {}, sizes)


def test_same_pads_that_all_multiples_of_a_step_have() -> None:
    text = (
        "g (float[1,1,n] x) => (float y) <float[1,1,3] w={1,2,3}, float[1,1,2] v={1,2}> "
        '{ a=Conv<auto_pad="SAME_UPPER",strides=[2]>(x,w) r=Relu(a) '
        'b=Conv<auto_pad="SAME_UPPER",strides=[2]>(r,w) c=ConvTranspose<strides=[2]>(b,v) '
        "d=Add(c,r) e=ConvTranspose<strides=[2]>(d,v) y=Add(e,x) }"
    )
    runs = [{"n": 4}, {"n": 8}]
    assert beside_peer(parsed_model(text), {"n": (1, 8)}, runs, exact=1) == ([], "")


def test_every_second_row_beside_the_others() -> None:
    """As networks do that move pixels to channels: there are as many of both in even extents."""
    text = (
        "g (float[1,n,3] x) => (float[1,k,6] y) <int64[1] a={0}, int64[1] b={1}, int64[1] s={2}, "
        "int64[1] e={9223372036854775807}> "
        "{ p=Slice(x,a,e,b,s) q=Slice(x,b,e,b,s) y=Concat<axis=2>(p,q) }"
    )
    runs = [{"n": n} for n in (2, 8, 6)]
    assert beside_peer(parsed_model(text), {"n": (1, 8)}, runs, exact=3) == ([], "")


UP = {
    "a transposed convolution": "u=ConvTranspose<strides=[2]>(b,w)",
    "a resize": 'u=Resize<coordinate_transformation_mode="asymmetric",nearest_mode="floor">(b,,s)',
}


@pytest.mark.parametrize("up", UP.values(), ids=UP)
def test_extents_that_agree_for_multiples_of_a_step(up: str) -> None:
    """What is halved twice and doubled twice is as long for multiples of four."""
    text = (
        "g (float[1,1,n] x) => (float[1,2,n] y) <float[1,1,2] w={1,2}, float[3] s={1,1,2}> "
        "{ p=MaxPool<kernel_shape=[2],strides=[2]>(x) b=MaxPool<kernel_shape=[2],strides=[2]>(p) "
        f"{up} q=Add(p,u) {up.replace('u=', 'v=').replace('(b,', '(q,')} y=Concat<axis=1>(x,v) }}"
    )
    model, sizes = parsed_model(text), {"n": (1, 24)}
    runs = [{"n": n} for n in (4, 24, 12, 20, 8)]
    assert beside_peer(model, sizes, runs) == ([], "")
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    for n in (1, 6, 23):
        said = f"'x' has {n} elements .* n has to be a multiple of 4"
        with pytest.raises(InvalidModel, match=said):
            exe.run({"x": np.zeros((1, 1, n), np.float32)})
    assert len(exe.specializations) == 1


def test_equal_extents_of_windows_are_one_size() -> None:
    """Two ways to halve a length may be added; also where steps of two are made of one of four."""
    same = "a=MaxPool<kernel_shape=[3],strides=[2],pads=[1,1]>(x) "
    other = "b=MaxPool<kernel_shape=[1],strides=[2]>(x) y=Add(a,b)"
    assert counted_as(same + other, 1, 9)[2] == 5
    twice = "b=MaxPool<kernel_shape=[1],strides=[2]>(a) c=MaxPool<kernel_shape=[1],strides=[4]>(x) "
    assert counted_as(same + twice + "y=Add(b,c)", 1, 9)[2] == 3


def test_same_pads_that_extents_change_or_not() -> None:
    """A pad of one element or none is at the end; at the beginning it is a part of the tensor,
    which a mean does not count."""
    same = 'y=MaxPool<kernel_shape=[2],strides=[2],auto_pad="SAME_UPPER">(x)'
    assert counted_as(same, 1, 5)[2] == 3
    assert counted_as(same.replace("UPPER", "LOWER"), 1, 5)[2] == 3
    average = same.replace("MaxPool", "AveragePool").replace("UPPER", "LOWER")
    with pytest.raises(ExtentsLost, match=r"SAME_LOWER pads its beginning by \[0, 1\]"):
        counted_as(average, 1, 5)


def test_the_reason_names_every_axis_that_a_run_decides() -> None:
    """The last axis has the pads that extents change, and not the first counted one."""
    text = (
        "g (float[m,1,n] x) => (float y) "
        '{ y=AveragePool<kernel_shape=[2],strides=[2],auto_pad="SAME_LOWER">(x) }'
    )
    sizes = [Size("m", 1, 3), Size("n", 1, 5)]
    with pytest.raises(ExtentsLost, match="its input x has along axes 0, 2 is only known"):
        import_checked(parsed_model(text), {"x": (3, 1, 5)}, None, (), False, {}, sizes)


PLACES = {
    "halves": "kernel_shape=[2,2],strides=[2,2]",
    "pads around": "kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]",
    "columns first": "kernel_shape=[3,2],strides=[1,2],pads=[0,1,2,0],storage_order=1",
    "rounded up": "kernel_shape=[2,2],strides=[2,2],ceil_mode=1",
    "steps between taps": "kernel_shape=[2,2],dilations=[2,1]",
    "windows of pads alone": "kernel_shape=[2,2],pads=[1,1,1,1],dilations=[2,3]",
}


@pytest.mark.parametrize("attributes", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("dtype", ["float", "int8"])
def test_places_of_maxima_count_in_the_image_of_a_run(attributes: str, dtype: str) -> None:
    text = f"g ({dtype}[b,2,h,w] x) => ({dtype} y, int64 i) {{ y,i=MaxPool<{attributes}>(x) }}"
    runs = [{"b": b, "h": h, "w": w} for b, h, w in ((1, 3, 12), (2, 12, 3), (1, 5, 4), (2, 7, 7))]
    sizes = {"b": (1, 2), "h": (3, 12), "w": (3, 12)}
    assert beside_peer(parsed_model(text, 18), sizes, runs, exact=2) == ([], "")


GIVEN_WEIGHTS = {
    "of a convolution": "Conv<pads=[1,1,1,1]>",
    "of a transposed one": "ConvTranspose<strides=[2,2]>",
}


@pytest.mark.parametrize(("dtype", "tolerance"), [("float", 1e-4), ("float16", 2e-2)])
@pytest.mark.parametrize("op", GIVEN_WEIGHTS.values(), ids=GIVEN_WEIGHTS)
def test_a_run_may_give_the_weights_of_windows_that_overhang(
    op: str, dtype: str, tolerance: float
) -> None:
    """They have to be finite, as zeros behind the image are multiplied with them."""
    text = f"g ({dtype}[b,2,h,5] x, {dtype}[2,2,3,3] k) => ({dtype} y) {{ y={op}(x,k) }}"
    model = parsed_model(text)
    sizes = {"b": (1, 2), "h": (3, 9)}
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    for h in (3, 9, 5):
        feeds = sized_feeds(exe, {"b": 1, "h": h}, h)
        (wanted,) = peer_of(model).run(None, feeds)
        assert not difference(exe.run(feeds), {"y": wanted}, tolerance)
    assert len(exe.specializations) == 1
    feeds["k"][0, 1, 2] = np.inf, 1, np.nan
    with pytest.raises(RunError, match="the number of weights in k that are not finite is 2"):
        exe.run(feeds)


NORMALIZED = """
    g (float[b,2,n] x) => (float y) <float[6,1,1] s = {2,3,4,5,6,7}, float[1] v = {0}> {
        l = ReduceL2<axes=[1,2]>(v)
        u = Div(v, l)
        k = Mul(u, s)
        y = Conv<pads=[1,1]>(x, k)
    }
"""


@pytest.mark.parametrize("is_zero", [False, True])
def test_weights_that_are_computed_of_constants_have_to_be_finite(is_zero: bool) -> None:
    """Those of an output channel without any weights are zero divided by zero."""
    model = parsed_model(NORMALIZED, 13)
    v = np.random.default_rng(5).standard_normal((6, 2, 3)).astype(np.float32)
    v[4] *= not is_zero
    (placed,) = (tensor for tensor in model.graph.initializer if tensor.name == "v")
    placed.CopyFrom(numpy_helper.from_array(v, "v"))
    runs = [{"b": 1, "n": n} for n in (3, 9, 5)]
    errors, reason = beside_peer(model, {"b": (1, 2), "n": (3, 9)}, runs)
    assert not errors
    assert ("its weights, times the zeros behind that, may be NaN" in reason) == is_zero
    assert is_zero or not reason
