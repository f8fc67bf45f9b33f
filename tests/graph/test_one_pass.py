"""Tests of two products in one pass: which chains have an expansion, what it computes, the plan."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.codegen import host_target
from graphflow.frontends import import_model
from graphflow.graph import Expansions, canonicalize, fuse_groups, in_one_pass, interpret_graph
from graphflow.kernels.recipes import LEFT_OUT, ONE_PASS, SharedLoops
from support.planning.attentions import Attention, attention
from support.planning.decoders import Decoder
from support.targets import by_turns, in_turn

SLOW_MEMORY = {"l2_bytes": 1 << 14, "dram_gbps": 0.02}
"""What makes storing the scores of small models dearer than anything else."""


def slow_memory() -> Target:
    return replace(host_target(), **SLOW_MEMORY)


def not_taken(exe: gf.Executable) -> list[str]:
    """Why products are not computed in one pass, of a program in which none are."""
    choices = exe.compiled.plan.choices.values()
    assert not any(ONE_PASS in choice.variant_name for choice in choices)
    return [str(r.reason) for c in choices for r in c.refused if r.variant == ONE_PASS]


def expansions(attention: Attention) -> Expansions:
    graph = fuse_groups(canonicalize(import_model(attention.model, {})))
    return in_one_pass(Expansions(graph))


def test_the_last_product_of_an_attention_computes_all_of_it() -> None:
    case = attention(2, 5, 7, 3, mask="row")
    found = expansions(case)
    ((one,),) = found.of_node.values()
    assert one.absorbed == ("scores", "weights")
    feeds, graph = case.feeds(0), found.take([one], {*one.absorbed})
    assert not {*one.absorbed} & {*graph.values}
    (got,) = interpret_graph(graph, feeds).values()
    np.testing.assert_allclose(got, case.want(feeds), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shown", ["scores", "weights"])
def test_what_others_read_is_not_absorbed(shown: str) -> None:
    assert not expansions(attention(2, 5, 7, 3, outputs=("y", shown))).of_node


def test_products_with_nothing_reduced_between_them_stay_apart() -> None:
    """Rows of a band would read all weights again; see docs/trials.md."""
    assert not expansions(attention(2, 5, 7, 3, softmax=False)).of_node


def open_attention(rows: str, keys: str, mask: str | None) -> onnx.ModelProto:
    """An attention of two heads whose rows and keys have symbolic extents, with a `mask` that is
    added for each key (`row`), or for each row and key (`each`), or that says which keys a row of
    all heads is shown (`shown`), or which rows are shown which keys (`outer`), or that no run
    gives: the distance of each key from each row (`far`)."""
    shapes: dict[str, list[int | str]] = {
        "q": ["batch", 2, rows, 16],
        "k": ["batch", 2, keys, 16],
        "v": ["batch", 2, keys, 33],
    }
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["product"]),
    ]
    scores = "product"
    if mask == "outer":
        nodes.append(helper.make_node("And", ["seeing", "seen"], ["both"]))
        nodes.append(helper.make_node("And", ["yes", "both"], ["shown"]))
    bools: dict[str, list[int | str]] = {}
    if mask == "outer":
        bools = {"seeing": ["batch", 1, rows, 1], "seen": ["batch", 1, 1, keys]}
    elif mask == "shown":
        bools = {"shown": [rows, keys]}
    if bools:
        nodes.append(helper.make_node("Where", ["shown", "product", "never"], ["scores"]))
        scores = "scores"
    elif mask == "far":
        nodes += [
            helper.make_node("Shape", ["q"], ["extents"], start=2, end=3),
            helper.make_node("Squeeze", ["extents"], ["count"]),
            helper.make_node("Range", ["nothing", "count", "one"], ["places"]),
            helper.make_node("Cast", ["places"], ["keys_at"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["keys_at", "one"], ["rows_at"]),
            helper.make_node("Sub", ["keys_at", "rows_at"], ["far"]),
            helper.make_node("Add", ["product", "far"], ["scores"]),
        ]
        scores = "scores"
    elif mask is not None:
        shapes["mask"] = ["batch", *((1, 1) if mask == "row" else (2, rows)), keys]
        nodes.append(helper.make_node("Add", ["product", "mask"], ["scores"]))
        scores = "scores"
    nodes.append(helper.make_node("Softmax", [scores], ["weights"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["weights", "v"], ["y"]))
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    inputs += [helper.make_tensor_value_info(n, TensorProto.BOOL, s) for n, s in bools.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2, rows, 33])
    constants = {"never": np.float32(-1e9), "yes": np.array(True)}
    constants |= {"nothing": np.array(0), "one": np.array(1)}
    known = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "attention", inputs, [y], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def attended(feeds: Mapping[str, np.ndarray], bias: ArrayLike = 0) -> np.ndarray:
    scores = feeds["q"].astype(np.float64) @ feeds["k"].swapaxes(-1, -2) + bias
    shown = feeds.get("shown", feeds.get("seeing", True) & feeds.get("seen", np.True_))
    scores = np.where(shown, scores, -1e9)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True) @ feeds["v"])


@in_turn("mask", [None, "row", "each", "shown", "outer", "far"])
def test_keys_of_an_open_length_end_at_that_of_the_run(mask: str | None, target: Target) -> None:
    """What stands behind it in the program's memory, here NaN of a longer run, takes no part."""
    proto, room = open_attention("n", "n", mask), {"batch": 3, "n": 70}
    sizes = {name: (1, most) for name, most in room.items()}
    exe = gf.compile(proto, sizes=sizes, target=replace(target, **SLOW_MEMORY), threads=2)
    names = [choice.variant_name for choice in exe.compiled.plan.choices.values()]
    assert sum(ONE_PASS in name for name in names) == 1
    rng = np.random.default_rng(0)

    def given(batch: int, n: int) -> dict[str, np.ndarray]:
        extents = {"batch": batch, "n": n}
        shapes = {t.name: [extents.get(str(e), e) for e in t.shape or ()] for t in exe.inputs}
        feeds = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
        bools = {t.name for t in exe.inputs if t.dtype == "bool"}
        return feeds | {name: array > 0 for name, array in feeds.items() if name in bools}

    longest = {n: a if a.dtype == np.bool_ else a * np.nan for n, a in given(**room).items()}
    for batch, n in [(3, 70), (1, 1), (2, 2), (1, 13), (2, 14), (1, 15), (3, 33), (2, 64), (1, 69)]:
        exe.run(longest)
        feeds = given(batch, n)
        places = np.arange(n)
        bias = places - places[:, None] if mask == "far" else feeds.get("mask", 0)
        np.testing.assert_allclose(exe.run(feeds)["y"], attended(feeds, bias), rtol=1e-4, atol=1e-5)


def test_few_rows_of_another_size_than_keys_stay_apart(code_is_left_out: None) -> None:
    """As those of a decoder, of which a run may have one for a thousand keys."""
    sizes = {"batch": (1, 2), "rows": (1, 64), "keys": (1, 64)}
    exe = gf.compile(open_attention("rows", "keys", None), sizes=sizes, target=slow_memory())
    (reason,) = not_taken(exe)
    assert reason == "a run may have few rows, 1, for many keys, and bands have whole vectors"


def test_one_row_behind_a_cache_stays_apart(code_is_left_out: None) -> None:
    """Its kernels read each key and each value once, at the bandwidth of memory."""
    sizes = {"new": (1, 1), "past": (0, 64)}
    exe = gf.compile(Decoder(4, 4, 32, "added").model, sizes=sizes, target=slow_memory())
    (reason,) = not_taken(exe)
    assert reason.endswith("has 0 sums of products in which several rows share a factor")


@in_turn("mask threads", [None, "selected", "added"], [1, 2])
def test_rows_behind_a_cache(mask: str | None, threads: int, target: Target) -> None:
    """Bands are as wide as the fewest rows of a run at most; the mask has an element for each row
    and key, and is not computed for itself.  Runs of which all is NaN come before the others."""
    decoder, room = Decoder(4, 4, 32, mask), {"new": 75, "past": 90}
    sizes = {"new": (33, room["new"]), "past": (0, room["past"])}
    slow = replace(target, **SLOW_MEMORY)
    exe = gf.compile(decoder.model, sizes=sizes, target=slow, threads=threads)
    (recipe,) = (
        choice.variant.recipe
        for choice in exe.compiled.plan.choices.values()
        if ONE_PASS in choice.variant_name
    )
    assert isinstance(recipe, SharedLoops)
    assert recipe.lanes * recipe.vectors <= 33
    if mask is not None:
        assert "same pass" in exe.explain("seen")
    longest = {n: np.full_like(array, np.nan) for n, array in decoder.feeds(**room).items()}
    runs = [(75, 90), (33, 0), (34, 1), (48, 16), (49, 15), (64, 64), (65, 63), (75, 0), (33, 90)]
    for new, past in runs:
        exe.run(longest)
        feeds = decoder.feeds(new, past, seed=new)
        np.testing.assert_allclose(exe.run(feeds)["y"], decoder.want(feeds), rtol=1e-4, atol=1e-5)


def test_queries_behind_a_cache_that_share_keys() -> None:
    decoder = Decoder(4, 2, 64, "selected")
    sizes = {"new": (32, 70), "past": (0, 66)}
    exe = gf.compile(decoder.model, sizes=sizes, target=slow_memory(), threads=1)
    longest = {n: np.full_like(array, np.nan) for n, array in decoder.feeds(70, 66).items()}
    for new, past in [(32, 0), (70, 66), (33, 65), (64, 1)]:
        exe.run(longest)
        feeds = decoder.feeds(new, past, seed=new)
        np.testing.assert_allclose(exe.run(feeds)["y"], decoder.want(feeds), rtol=1e-4, atol=1e-5)


@in_turn("mask", ["selected", "added"])
def test_layers_compute_the_mask_that_they_share(mask: str, target: Target) -> None:
    """Each of two layers computes it for its scores, and it is not stored."""
    decoder = Decoder(2, 2, 32, mask, layers=2)
    sizes = {"new": (32, 64), "past": (0, 40)}
    slow = replace(target, **SLOW_MEMORY)
    exe = gf.compile(decoder.model, sizes=sizes, target=slow, threads=1)
    names = [choice.variant_name for choice in exe.compiled.plan.choices.values()]
    assert sum(ONE_PASS in name for name in names) == 2
    for new, past in [(64, 40), (32, 0), (50, 39)]:
        feeds = decoder.feeds(new, past, seed=new)
        np.testing.assert_allclose(exe.run(feeds)["y"], decoder.want(feeds), rtol=1e-4, atol=1e-5)


@by_turns("mask rows", [None, "row", "where"], [45, 32])
def test_a_plan_takes_it_where_memory_is_slow(mask: str | None, rows: int) -> None:
    case = attention(2, rows, 21, 9, mask=mask)
    exe = gf.compile(case.model, target=slow_memory(), options=Options(threads=2, validate=True))
    names = [choice.variant_name for choice in exe.compiled.plan.choices.values()]
    assert sum(ONE_PASS in name for name in names) == 1
    for seed in (0, 1):
        feeds = case.feeds(seed)
        (got,) = exe.run(feeds).values()
        np.testing.assert_allclose(got, case.want(feeds), rtol=2e-5, atol=2e-6)
    assert "same pass" in exe.explain("weights")


def test_special_values_come_out_as_from_separate_kernels() -> None:
    case = attention(1, 40, 24, 16, mask="row")
    apart = gf.compile(case.model, threads=1)
    joint = gf.compile(case.model, target=slow_memory(), threads=1)
    feeds = case.feeds(3)
    for name, at, value in (
        ("q", (0, 3, 2), np.nan),
        ("k", (0, 5, 1), np.inf),
        ("v", (0, 7, 4), -np.inf),
        ("v", (0, 7, 4), 3e38),
        ("mask", (9,), -np.inf),
        ("mask", (slice(None),), -np.inf),
    ):
        given = {key: array.copy() for key, array in feeds.items()}
        given[name][at] = value
        (want,), (got,) = apart.run(given).values(), joint.run(given).values()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=name)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6, err_msg=name)


@in_turn("rows", [32, 40])
def test_a_mask_of_rows_that_all_heads_share_is_transposed_once(rows: int, target: Target) -> None:
    """Before the bands of all heads, as other conversions are."""
    case = attention(2, rows, 21, 9, mask="each")
    exe = gf.compile(case.model, target=replace(target, **SLOW_MEMORY), threads=1)
    names = [choice.variant_name for choice in exe.compiled.plan.choices.values()]
    assert sum(ONE_PASS in name for name in names) == 1
    assert [call.name for call in exe.compiled.physical.calls if "mask" in call.name]
    apart = gf.compile(case.model, target=target, threads=1)
    feeds = case.feeds(0)
    for at, value in (((0, 0), 0), ((slice(9), 3), -np.inf), ((7, 5), np.nan), (2, -np.inf)):
        feeds["mask"][at] = value
        (want,), (got,) = apart.run(feeds).values(), exe.run(feeds).values()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_queries_that_share_keys() -> None:
    case = attention(4, 35, 18, 8, groups=2)
    exe = gf.compile(case.model, target=slow_memory(), threads=1)
    feeds = case.feeds(0)
    (got,) = exe.run(feeds).values()
    np.testing.assert_allclose(got, case.want(feeds), rtol=2e-5, atol=2e-6)


def test_poison_in_padding_changes_nothing() -> None:
    case = attention(2, 37, 19, 5, mask="where")
    exe = gf.compile(case.model, target=slow_memory(), options=Options(threads=1, poison=True))
    feeds = case.feeds(0)
    (first,) = exe.run(feeds, poison=0.0).values()
    (second,) = exe.run(feeds, poison=np.nan).values()
    np.testing.assert_array_equal(first, second)


MASKS = {
    "causal": np.tril(np.ones((64, 64), np.bool_)),
    "causal, added": np.where(np.tril(np.ones((64, 64))), 0, -np.inf).astype(np.float32),
    "window": np.tril(np.triu(np.ones((64, 64), np.bool_), -9)),
    "padding": np.where(np.arange(64) < 30, 0, -10000).astype(np.float32),
}


@pytest.mark.parametrize("name", MASKS)
def test_keys_that_a_constant_mask_excludes_cost_less(name: str) -> None:
    """The same bits as where the mask is an input, whose elements no price knows."""
    case = attention(2, 64, 64, 8, mask=MASKS[name])
    almost_all = np.ones((64, 64), np.bool_)
    almost_all[0, 32] = False  # where all are true there is no mask
    shown = attention(2, 64, 64, 8, mask=almost_all)
    masked, whole = (gf.compile(x.model, target=slow_memory(), threads=1) for x in (case, shown))
    cycles = []
    for exe in (masked, whole):
        plan = exe.compiled.plan
        (choice,) = (c for c in plan.choices.values() if ONE_PASS in c.variant_name)
        assert choice.variant_name.endswith(LEFT_OUT)
        cycles.append(choice.variant.work.cycles)
    assert cycles[0] < 0.85 * cycles[1]
    feeds = case.feeds(0)
    (got,) = masked.run(feeds).values()
    np.testing.assert_allclose(got, case.want(feeds), rtol=2e-5, atol=2e-6)
    assert LEFT_OUT in masked.explain("y")


def test_without_a_mask_the_explanation_says_that_no_key_is_left_out() -> None:
    case = attention(2, 48, 40, 8)
    exe = gf.compile(case.model, target=slow_memory(), threads=1)
    (choice,) = (c for c in exe.compiled.plan.choices.values() if ONE_PASS in c.variant_name)
    (reason,) = (str(r.reason) for r in choice.refused if LEFT_OUT in r.variant)
    assert "no mask excludes keys" in reason


@in_turn("heads", [2, 3])
def test_values_in_blocks_of_channels_are_read_in_one_pass(heads: int, target: Target) -> None:
    """Bands add up the values of channels that lie in several blocks, whose number the heads and
    the places of a tile give together: no key is left out, and nothing else is different."""
    rng = np.random.default_rng(0)
    constants = {
        "kernel": rng.standard_normal((48 * heads, 5, 1, 1), dtype=np.float32),
        "split": np.array([2, heads, 48, 36]),
        "bias": rng.standard_normal((heads, 49, 36), dtype=np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["image"]),
        helper.make_node("Reshape", ["image", "split"], ["turned"]),
        helper.make_node("Transpose", ["turned"], ["v"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "k"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    shapes = {"x": (2, 5, 6, 6), "q": (2, heads, 49, 16), "k": (2, heads, 16, 36)}
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "blocks",
        [info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [info("y", TensorProto.FLOAT, (2, heads, 49, 48))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    lanes = target.computed_lanes("float32")
    exe = gf.compile(
        proto, target=replace(target, **SLOW_MEMORY), layouts={"image": f"NCHW{lanes}c"}
    )
    assert any(ONE_PASS in c.variant_name for c in exe.compiled.plan.choices.values())
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    image = np.einsum("nchw,oc->nohw", feeds["x"], constants["kernel"][:, :, 0, 0])
    values = {"v": image.reshape(2, heads, 48, 36).swapaxes(-1, -2)}
    turned = {"q": feeds["q"], "k": feeds["k"].swapaxes(-1, -2)}
    want = attended(turned | values, constants["bias"])
    np.testing.assert_allclose(exe.run(feeds)["y"], want, rtol=1e-4, atol=1e-5)
