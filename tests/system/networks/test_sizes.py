"""Tests of sizes end to end: one program gives what onnxruntime gives for every extent, whatever is
in the room behind a run's elements; what no program can serve is compiled for each shape."""

import os
import pickle
import random
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow import tir
from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import NodeCall
from graphflow.kernels.definitions.elementwise import elementwise
from graphflow.kernels.recipes import TRANSFORMED_TILES
from graphflow.models import ModelBuilder, named, with_open_batch
from graphflow.models.zoo import zoo_model
from graphflow.models.zoo.detector import detector_any
from graphflow.models.zoo.sequences.albert import albert
from graphflow.models.zoo.sequences.bert import bert
from graphflow.models.zoo.sequences.gpt import gpt
from graphflow.models.zoo.sequences.llama import llama
from graphflow.models.zoo.sequences.speech import speech
from graphflow.models.zoo.sequences.t5 import t5
from graphflow.models.zoo.vit import vit
from support.fuzz.attention_fuzz import run_attention
from support.fuzz.counted_fuzz import run_counted
from support.fuzz.sized_fuzz import draw_batch, run_sized
from support.fuzz.sized_sequences import draw_sequence
from support.kernels.planned_only import code_left_out
from support.models.executed_work import executed_work
from support.models.sized_cases import EACH_SHAPE, ONE_PROGRAM
from support.models.sized_runs import (
    OPTIONS,
    beside_peer,
    difference,
    exact_results,
    parsed_model,
    peer_of,
    sized_feeds,
)
from support.seeds import seeds

PAGE = os.sysconf("SC_PAGESIZE")
MOST = 5
SIZES = {"n": (1, MOST)}
RUNS = ({"n": 1}, {"n": 3})

SERIES = (
    "g (float[n,4] x) => (float y) <float[4,3] w={1,2,3,4,5,6,7,8,9,1,2,3}> "
    "{ m=MatMul(x,w) y=Softmax(m) }"
)


def ordinary(names: Any, every: int = 5) -> list[Any]:
    """All names, most of which are marked slow."""
    slow = pytest.mark.slow
    return [
        name if k % every == 0 else pytest.param(name, marks=slow) for k, name in enumerate(names)
    ]


def opset_of(text: str) -> int:
    return 18 if "keep_aspect_ratio_policy" in text else 17


def extents(*numbers: int) -> tuple[dict[str, int], ...]:
    return tuple({"n": number} for number in numbers)


# Operators ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ordinary(ONE_PROGRAM))
def test_one_program_serves_an_operator_for_all_sizes(name: str) -> None:
    model = parsed_model(ONE_PROGRAM[name])
    assert beside_peer(model, SIZES, RUNS) == ([], "")


@pytest.mark.parametrize("name", ordinary(EACH_SHAPE))
def test_what_depends_on_a_size_is_compiled_for_each_shape(name: str) -> None:
    node, reason, text = EACH_SHAPE[name]
    runs = extents(1, 3, 4, MOST)  # some models are valid for one of these only
    wrong, why_not = beside_peer(parsed_model(text, opset_of(text)), SIZES, runs)
    assert not wrong
    assert node in why_not and reason in why_not


@pytest.mark.parametrize("name", ["sum of a range", "range and a number", "sine of a range"])
def test_a_range_to_a_size_is_not_computed_with_at_import(name: str) -> None:
    test_one_program_serves_an_operator_for_all_sizes(name)


def test_taps_that_are_moved_over_an_image_of_a_size() -> None:
    text = """g (float[n,2,n,5] x) => (float[n,3,m,4] y)
    { c=Conv(x,u) d=Sin(c) y=DeformConv(x,w,d) }"""
    model, rng = parsed_model(text, 19), np.random.default_rng(0)
    for name, filters in {"w": 3, "u": 8}.items():
        values = rng.standard_normal((filters, 2, 2, 2)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    runs = [{"n": n, "m": n - 1} for n in (2, 3, 5)]
    assert beside_peer(model, {"n": (2, 5)}, runs) == ([], "")


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_taps_behind_an_image_of_a_size_are_outside(target: gf.Target) -> None:
    """Also where their factor is infinite, which would make a NaN of a zero that lies there."""
    text = """g (float[1,1,n,4] x, float[1,2,n,4] t, float[1,1,n,4] f) => (float[1,1,n,4] y)
    <float[1,1,1,1] w={1}> { y=DeformConv<kernel_shape=[1,1]>(x,w,t,,f) }"""
    model = parsed_model(text, 19)
    exe = gf.compile(model, sizes={"n": (2, 6)}, options=OPTIONS, target=target)
    for n in (2, 3, 6):
        feeds = sized_feeds(exe, {"n": n}, n)
        feeds["t"][:, 0, -1], feeds["t"][:, 1, -1], feeds["f"][:, :, -1] = 2, 0, np.inf
        wanted = exact_results(model, feeds, OPTIONS)
        assert not np.isnan(wanted["y"]).any()
        assert not difference(exe.run(feeds), wanted, 1e-6)


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_side_of_one_element_reflects_every_position_to_it(mode: str, target: gf.Target) -> None:
    """Also one that is no number, as in the program for this side alone."""
    model = parsed_model(
        f"""g (float[1,1,n,3] x, float[1,2,1,2] t) => (float[1,1,2,1] y)
    {{ y=GridSample<mode="{mode}",padding_mode="reflection",align_corners=1>(x,t) }}""",
        20,
    )
    exe = gf.compile(model, sizes={"n": (1, 4)}, options=OPTIONS, target=target)
    alone = gf.compile(model, options=replace(OPTIONS, threads=1))
    x = np.array([[[[np.inf, 2, 3]]]], np.float32)
    for place in (0.0, 2.5, np.nan, np.inf):
        t = np.array([[[[-1, place]], [[0.3, place]]]], np.float32)
        assert not difference(exe.run({"x": x, "t": t}), alone.run({"x": x, "t": t}), 1e-6)
    assert len(alone.specializations) == 1


MENDED = ("resize not larger", "squeeze none", "cast bool")


@pytest.mark.parametrize("name", MENDED)
def test_what_was_wrong_once(name: str) -> None:
    test_what_depends_on_a_size_is_compiled_for_each_shape(name)


@pytest.mark.parametrize(
    "name", ["compress beside", "picked and joined", "picked beside", "picked and transposed"]
)
def test_axes_of_a_size_beside_those_that_data_decides(name: str) -> None:
    test_one_program_serves_an_operator_for_all_sizes(name)


def test_a_head_that_a_run_may_not_fill_is_a_portion_of_its_own() -> None:
    """The elements of a slice are counted by the lesser of the size and its end."""
    test_one_program_serves_an_operator_for_all_sizes("slice then matmul")


def test_an_operator_of_a_vendor_that_the_opset_does_not_have_is_compiled_for_each_shape() -> None:
    """It is rewritten to one of a later opset, which no section can hold."""
    text = (
        "g (float[n,4,1,8] x, float[9,4] c, float[9,4] s) => (float[n,4,1,8] y) "
        "<int64[5,1] i={0,1,2,0,1}> { y = com.microsoft.RotaryEmbedding(x,i,c,s) }"
    )
    wrong, why_not = beside_peer(parsed_model(text), SIZES, extents(MOST))
    assert not wrong and "how many elements its input x has" in why_not


def test_an_operator_of_a_vendor_that_gathers_along_a_size() -> None:
    text = (
        "g (float[2,4,3,8] x, float[n,4] c, float[n,4] s) => (float[2,4,3,8] y) "
        "<int64[2,3] i={0,1,2,0,1,2}> { y = com.microsoft.RotaryEmbedding(x,i,c,s) }"
    )
    assert beside_peer(parsed_model(text), SIZES, extents(3, 4)) == ([], "")


# Sizes --------------------------------------------------------------------------------------------

TWO_SIZES = {
    "rows and columns": "g (float[n,m,4] x, float[4,3] w) => (float y) { y=MatMul(x,w) }",
    "same of both": "g (float[n,m] x, float[n,m] z) => (float y) { y=Add(x,z) }",
    "softmax beside": "g (float[n,m,4] x) => (float y) { y=Softmax(x) }",
    "joined": "g (float[n,4] x, float[m,4] z) => (float y) { c=Concat<axis=0>(x,z) "
    "t=Transpose(c) p=MatMul(t,c) y=MatMul(c,p) }",
    "attention": "g (float[n,m,4] x) => (float y) { t=Transpose<perm=[0,2,1]>(x) s=MatMul(x,t) "
    "p=Softmax(s) y=MatMul(p,x) }",
    "mean of both": "g (float[n,m,4] x) => (float y) { y=ReduceMean<axes=[0,1]>(x) }",
    "merged": "g (float[2,n,m] x) => (float y) { s=Constant<value=int64[2] {0,-1}>() "
    "f=Reshape(x,s) y=Softmax(f) }",
    "merged in front": "g (float[n,m,4] x, float[4,4] w) => (float y) { s=Constant<value=int64[2] "
    "{-1,4}>() f=Reshape(x,s) p=MatMul(f,w) t=Shape(x) y=Reshape(p,t) }",
    "swapped": "g (float[n,m] x) => (float y) { s=Shape(x) i=Constant<value=int64[2] {1,0}>() "
    "t=Gather(s,i) y=Reshape(x,t) }",
    "outer reshaped": "g (float[n,m] x) => (float y) { a=Constant<value=int64[1] {-1}>() "
    "y=Reshape(x,a) }",
    "product of both": "g (float[n,m] x) => (float y) { s=Shape<end=1>(x) t=Shape<start=1>(x) "
    "p=Mul(s,t) a=ConstantOfShape<value=float[1] {2}>(p) r=Reshape(x,p) y=Mul(a,r) }",
    "tokens of a map": "g (float[n,2,m,m] x) => (float y) { s=Constant<value=int64[3] {0,0,-1}>() "
    "c=MaxPool<kernel_shape=[2,2],strides=[2,2],pads=[1,1,0,0]>(x) f=Reshape(c,s) "
    "t=Transpose<perm=[0,2,1]>(f) q=MatMul(t,f) p=Softmax(q) y=MatMul(p,t) }",
    "equal": "g (float[n,4] x, float[m,4] z) => (bool y) { a=Shape(x) b=Shape(z) y=Equal(a,b) }",
    "shapes": "g (float[n,m] x, float[1,1] z) => (float y) { s=Shape(x) e=Expand(z,s) y=Add(x,e) }",
}
BOTH_RUNS = tuple({"n": n, "m": m} for n, m in ((1, 1), (3, 1), (1, 4), (4, 3)))


@pytest.mark.parametrize("name", TWO_SIZES)
def test_two_sizes(name: str) -> None:
    sizes = {"n": (1, 4), "m": (1, 4)}
    assert beside_peer(parsed_model(TWO_SIZES[name]), sizes, BOTH_RUNS) == ([], "")


def test_elements_of_two_sizes_meet_where_the_sizes_are_equal() -> None:
    """One program serves these runs; another one those in which a size is 1, and none the rest."""
    text = "g (float[n,4] x, float[m,4] z) => (float y) { y=Add(x,z) }"
    exe = gf.compile(parsed_model(text), sizes={"n": (1, 4), "m": (1, 4)}, threads=1)
    for n, m in ((4, 4), (2, 2), (1, 4), (3, 1)):
        x, z = np.full((n, 4), 2.0, np.float32), np.full((m, 4), 3.0, np.float32)
        assert (exe.run({"x": x, "z": z})["y"] == np.full((max(n, m), 4), 5.0)).all()
    with pytest.raises(InvalidModel, match="n = m has to hold"):
        exe.run({"x": np.ones((4, 4), np.float32), "z": np.ones((3, 4), np.float32)})


@pytest.mark.parametrize("bounds", [(1, 1), (3, 3), (1, 7), (2, 17)])
@pytest.mark.parametrize("lead", [1, 2])
def test_sizes_along_the_second_axis(bounds: tuple[int, int], lead: int) -> None:
    text = f"g (float[{lead},n,8] x, float[8,24] w) => (float y) {{ m=MatMul(x,w) y=Softmax(m) }}"
    wrong, why_not = beside_peer(parsed_model(text), {"n": bounds}, extents(*sorted({*bounds})))
    assert not wrong
    assert not why_not or bounds[1] == 1


def test_bounds_of_a_slice_from_the_back_are_exact() -> None:
    text = "g (float[n,2] x) => (float y) { i=Constant<value=int64[1] {0}>() "
    model = parsed_model(text + "e=Constant<value=int64[1] {-2}>() y=Slice(x,i,e,i) }")
    assert beside_peer(model, {"n": (0, MOST)}, extents(0, 1, 2, 3, MOST)) == ([], "")


@pytest.mark.parametrize(
    ("shape", "target", "is_one"),
    [("n", "m,n", True), ("4,1,3", "m,1", True), ("1,5", "m", False), ("5,1", "2,m,7", False)],
)
def test_axes_are_repeated_up_to_a_size(shape: str, target: str, is_one: bool) -> None:
    names = {"n": "Shape(x)", "m": "Shape(z)"}
    parts = [names.get(n, f"Constant<value=int64[1] {{{n}}}>()") for n in target.split(",")]
    stated = " ".join(f"e{k}={part}" for k, part in enumerate(parts))
    listed = ",".join(f"e{k}" for k in range(len(parts)))
    model = parsed_model(
        f"g (float[{shape}] x, float[m] z) => (float y) "
        f"{{ {stated} t=Concat<axis=0>({listed}) y=Expand(x,t) }}"
    )
    sizes = {name: (1, 5) for name in "nm" if name in f"{shape},m"}
    runs = [dict.fromkeys(sizes, 5), {**dict.fromkeys(sizes, 3), "m": 1}, dict.fromkeys(sizes, 2)]
    wrong, why_not = beside_peer(model, sizes, runs)
    assert not wrong
    assert (why_not == "") == is_one


def test_an_axis_of_at_most_one_is_not_repeated_up_to_another() -> None:
    model = parsed_model("g (float[n] x, float[m] z) => (float y) { s=Shape(z) y=Expand(x,s) }")
    runs = [{"n": n, "m": m} for n in (1, 0) for m in (0, 1)]
    wrong, why_not = beside_peer(model, {"n": (0, 1), "m": (0, 1)}, runs)
    assert not wrong and "states the extent of axis 0" in why_not


def test_an_axis_of_one_may_be_squeezed_where_no_run_gives_one() -> None:
    text = "g (float[n,1,4] x) => (float y) { y = Squeeze(x) }"
    assert beside_peer(parsed_model(text), {"n": (2, 5)}, extents(2, 5)) == ([], "")


def test_one_size_of_two_inputs_is_one_number() -> None:
    model = parsed_model("g (float[n,4] x, float[n,4] z) => (float y) { y=Add(x,z) }")
    exe = gf.compile(model, sizes=SIZES, options=OPTIONS)
    with pytest.raises(gf.GraphflowError, match=r"'z' has 3 elements.*'x' has 2 elements"):
        exe.run({"x": np.ones((2, 4), "f4"), "z": np.ones((3, 4), "f4")})


SUMMED = (
    "g (float[p,4] past, float[k,4] new, float[t,1] mask) => (float y) "
    "{ a=Concat<axis=0>(past,new) y=Mul(a,mask) }"
)
"""A mask as long as what is joined: a run has t = p + k, or a mask of one element."""


def test_a_relation_between_inputs_is_found_and_checked() -> None:
    sizes = {"p": (0, 5), "k": (1, 3), "t": (1, 8)}
    runs = [{"p": p, "k": k, "t": p + k} for p, k in ((0, 1), (5, 3), (2, 2), (4, 1))]
    assert beside_peer(parsed_model(SUMMED), sizes, runs) == ([], "")
    exe = gf.compile(parsed_model(SUMMED), sizes=sizes, options=OPTIONS)
    wrong = sized_feeds(exe, {"p": 2, "k": 2, "t": 5}, 0)
    with pytest.raises(gf.GraphflowError, match=r"'mask' has 5 .*'past' has 2 .*t = .*would be 4"):
        exe.run(wrong)


def test_the_scale_of_zeros_is_that_of_the_operator() -> None:
    """The operator has a body too, which divides by it."""
    model = parsed_model(ONE_PROGRAM["dynamic quantize"])
    exe = gf.compile(model, sizes={"n": (0, MOST)}, options=OPTIONS)
    for n in (0, 2):
        results = exe.run({"x": np.zeros((n, 4), np.float32)})
        assert (results["s"], results["z"], results["y"].shape) == (1, 0, (n, 4))


ENDS_OF_EMPTY = ("lstm", "gru", "rnn", "einsum", "matmulinteger", "qlinear", "convinteger")
"""Models with these end the process of onnxruntime where tensors are empty."""


@pytest.mark.parametrize("name", ordinary(ONE_PROGRAM, every=9))
def test_empty_tensors(name: str) -> None:
    """A mean of nothing is NaN, as in numpy; onnxruntime makes it 0."""
    if "mean" in name or name.startswith(ENDS_OF_EMPTY):
        pytest.skip("onnxruntime gives something else, or nothing")
    wrong, _ = beside_peer(parsed_model(ONE_PROGRAM[name]), {"n": (0, MOST)}, extents(0, 2))
    assert not wrong


@pytest.mark.parametrize("rest", ["-1,2", "2,2"])
def test_a_reshape_to_the_batch_of_another_input_makes_these_equal(rest: str) -> None:
    """The batch of a decoder, by which the keys of an encoder are reshaped."""
    text = f"""g (float[n,4] x, int64[m] z) => (float[m,k,2] y) {{ s=Shape(z)
    r=Constant<value=int64[2] {{{rest}}}>() u=Concat<axis=0>(s,r) y=Reshape(x,u) }}"""
    runs = [{"n": n, "m": n} for n in (1, 3, 4)]
    assert beside_peer(parsed_model(text), {"n": (1, 4), "m": (1, 4)}, runs) == ([], "")


def test_updates_of_a_scatter_are_as_many_as_its_indices() -> None:
    text = """g (float[6,3] z, float[n,3] x, int64[m,3] i) => (float[6,3] y)
    { y=ScatterElements<axis=0,reduction="add">(z,i,x) }"""
    runs = [{"n": n, "m": n} for n in (1, 3, 4)]
    assert beside_peer(parsed_model(text, 18), {"n": (1, 4), "m": (1, 4)}, runs) == ([], "")


def test_a_reshape_to_another_batch_has_a_program_of_its_own() -> None:
    text = """g (float[n,4] x, int64[m] z) => (float[m,k,2] y) { s=Shape(z)
    r=Constant<value=int64[2] {-1,2}>() u=Concat<axis=0>(s,r) y=Reshape(x,u) }"""
    exe = gf.compile(parsed_model(text), sizes={"n": (1, 4), "m": (1, 4)}, threads=1)
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for m in (4, 2):
        found = exe.run({"x": x, "z": np.zeros(m, np.int64)})["y"]
        assert np.array_equal(found, x.reshape(m, -1, 2))
    assert len(exe.specializations) == 2


def test_a_run_that_broadcasts_instead_has_a_program_of_its_own() -> None:
    sizes = {"p": (0, 5), "k": (1, 3), "t": (1, 8)}
    runs = [{"p": 2, "k": 2, "t": t} for t in (4, 1)]
    assert beside_peer(parsed_model(SUMMED), sizes, runs) == ([], "")


@pytest.mark.parametrize("most", [6, 9])
def test_the_most_of_a_sum_may_differ_from_that_of_its_parts(most: int) -> None:
    """It limits them, or is lowered."""
    sizes = {"p": (0, 5), "k": (1, 3), "t": (1, most)}
    runs = [{"p": p, "k": k, "t": p + k} for p, k in ((2, 2), (0, 1), (5, 1), (3, 3))]
    assert beside_peer(parsed_model(SUMMED), sizes, runs) == ([], "")


def test_bounds_that_no_run_satisfies_are_refused() -> None:
    sizes = {"p": (0, 5), "k": (1, 3), "t": (9, 12)}
    with pytest.raises(InvalidModel, match=r"t = .* has to hold, which is at most 8, .* is 9"):
        gf.compile(parsed_model(SUMMED), sizes=sizes, options=OPTIONS)


def test_a_sum_that_is_a_number_bounds_its_parts_by_the_least_of_each() -> None:
    """Where a value says that 8 rows are attended to, at most 8 of them are new ones."""
    text = (
        "g (float[1,n,32] q, float[1,n,16] k, float[1,n,16] v, float[1,2,p,8] pk, "
        "float[1,2,p,8] pv, int32[1] last) => (float y, float keys, float values) "
        "<int32 rows = {8}> { y, keys, values = com.microsoft.GroupQueryAttention"
        "<num_heads = 4, kv_num_heads = 2>(q, k, v, pk, pv, last, rows) }"
    )
    model, sizes = parsed_model(text), {"n": (1, 8), "p": (0, 16)}
    with warnings.catch_warnings(action="ignore"):
        exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    for run in ({"n": 1, "p": 7}, {"n": 8, "p": 0}):
        feeds = {**sized_feeds(exe, run, 1), "last": np.array([7], np.int32)}
        wanted = dict(zip(("y", "keys", "values"), peer_of(model).run(None, feeds), strict=True))
        assert not difference(exe.run(feeds), wanted, 1e-4)


@pytest.mark.parametrize("name", ["elementwise", "a part of the longer"])
def test_two_sizes_that_have_to_agree(name: str) -> None:
    """The second model works if m is at most n, which is an inequality."""
    texts = {
        "elementwise": "g (float[n,4] x, float[m,4] z) => (float y) { y=Add(x,z) }",
        "a part of the longer": "g (float[n,4] x, float[m,4] z) => (float y) "
        "{ s=Shape<end=1>(z) o=Constant<value=int64[1] {0}>() c=Slice(x,o,s,o) y=Add(c,z) }",
    }
    wrong, why_not = beside_peer(parsed_model(texts[name]), {"n": (1, 4), "m": (1, 4)}, BOTH_RUNS)
    assert not wrong and not why_not


def test_blocks_of_an_axis_are_multiples_of_a_step() -> None:
    model = parsed_model("g (float[1,2,n,4] x) => (float y) { y=SpaceToDepth<blocksize=2>(x) }")
    runs = extents(2, 6, 4, 8)
    assert beside_peer(model, {"n": (2, 8)}, runs, exact=2) == ([], "")


def test_a_size_of_one_value_is_a_constant() -> None:
    """A program for n = 3 alone may do what none for several extents can."""
    text = "g (float[n,4] x, float[m,4] z) => (float y, float s) "
    text += "{ a=Constant<value=int64[1] {-1}>() y=Reshape(x,a) s=Neg(z) }"
    sizes, runs = {"n": (3, 3), "m": (1, 4)}, [{"n": 3, "m": m} for m in (1, 4)]
    assert beside_peer(parsed_model(text), sizes, runs) == ([], "")
    assert beside_peer(parsed_model(text), {"n": (3, 3), "m": (2, 2)}, [{"n": 3, "m": 2}]) == (
        [],
        "",
    )


def test_a_run_beyond_the_bounds_has_a_program_of_its_own() -> None:
    assert beside_peer(parsed_model(SERIES), SIZES, extents(7, 2, 6)) == ([], "")


# Ways to run --------------------------------------------------------------------------------------


def compiled(text: str = SERIES, **options: Any) -> gf.Executable:
    chosen = gf.Options(cache="off", workers=0, **options)
    return gf.compile(parsed_model(text), sizes=SIZES, options=chosen)


def assert_right(exe: gf.Executable, number: int, text: str = SERIES) -> None:
    feeds = sized_feeds(exe, {"n": number}, number)
    (wanted,) = peer_of(parsed_model(text)).run(None, feeds)
    assert not difference(exe.run(feeds), {"y": wanted}, 1e-4)


@pytest.mark.parametrize("options", [{"poison": True}, {"threads": 1}, {"check_assumes": True}])
def test_options(options: dict[str, Any]) -> None:
    exe = compiled(**options)
    for number in (5, 1, 3):
        assert_right(exe, number)


def test_runs_of_different_extents_at_once() -> None:
    model = parsed_model(ONE_PROGRAM["conv grouped"])
    exe, peer = gf.compile(model, sizes=SIZES, options=OPTIONS), peer_of(model)
    feeds = [sized_feeds(exe, {"n": 1 + k % MOST}, k) for k in range(10)]
    wanted = [peer.run(None, given)[0] for given in feeds]

    def runs(start: int) -> list[str]:
        order = [(start + 3 * k) % len(feeds) for k in range(2 * len(feeds))]
        return [difference(exe.run(feeds[k]), {"y": wanted[k]}, 1e-4) for k in order]

    with ThreadPoolExecutor(4) as pool:
        assert not any(wrong for found in pool.map(runs, range(8)) for wrong in found)


def test_saved_loaded_and_pickled(tmp_path: Path) -> None:
    exe = compiled()
    assert_right(exe, 2)
    exe.save(tmp_path / "model.gfx")
    for other in (gf.load(tmp_path / "model.gfx"), pickle.loads(pickle.dumps(exe))):
        for number in (5, 1, 3):
            feeds = sized_feeds(exe, {"n": number}, number)
            assert not difference(other.run(feeds), exe.run(feeds), 0.0)


def test_computed_sizes_are_saved(tmp_path: Path) -> None:
    """Also a formula and a relation with negative numbers."""
    text = "g (float[n,4] x, float[m,4] z) => (float y, float w) { " + (
        "b=Constant<value=int64[1] {1}>() e=Constant<value=int64[1] {9}>() "
        "a=Constant<value=int64[1] {0}>() p=Slice(x,b,e,a) y=Add(p,z) w=Concat<axis=0>(p,x) }"
    )
    exe = gf.compile(parsed_model(text), sizes={"n": (2, 6), "m": (1, 5)}, options=OPTIONS)
    (one,) = exe.specializations
    assert one.program.spec.computed and one.program.spec.relations
    one.save(tmp_path / "model.gfx")
    other = gf.load(tmp_path / "model.gfx")
    assert other.program.spec.computed == one.program.spec.computed
    assert other.program.spec.relations == one.program.spec.relations
    for number in (6, 2, 4):
        feeds = sized_feeds(one, {"n": number, "m": number - 1}, number)
        assert not difference(other.run(feeds), one.run(feeds), 0.0)


def test_multiples_of_a_step_are_saved(tmp_path: Path) -> None:
    text = (
        "g (float[1,1,n] x) => (float y) <float[1,1,2] w={1,2}> "
        "{ p=MaxPool<kernel_shape=[2],strides=[2]>(x) u=ConvTranspose<strides=[2]>(p,w) "
        "y=Add(u,x) }"
    )
    exe = gf.compile(parsed_model(text), sizes={"n": (1, 8)}, options=OPTIONS)
    (one,) = exe.specializations
    assert [str(relation) for relation in one.program.spec.relations] == ["n % 2 = 0"]
    one.save(tmp_path / "model.gfx")
    other = gf.load(tmp_path / "model.gfx")
    assert other.program.spec.relations == one.program.spec.relations
    feeds = sized_feeds(one, {"n": 6}, 0)
    assert not difference(other.run(feeds), one.run(feeds), 0.0)
    with pytest.raises(InvalidModel, match="n has to be a multiple of 2, such as 6"):
        other.run(sized_feeds(one, {"n": 5}, 0))


def test_sizes_of_one_node_are_multiples_of_steps_together() -> None:
    text = (
        "g (float[1,1,n,m] x) => (float y) <float[1,1,2,2] w={1,2,3,4}> "
        "{ p=MaxPool<kernel_shape=[2,2],strides=[2,2]>(x) u=ConvTranspose<strides=[2,2]>(p,w) "
        "y=Add(u,x) }"
    )
    model, sizes = parsed_model(text), {"n": (1, 8), "m": (1, 6)}
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    (one,) = exe.specializations
    relations = {str(relation) for relation in one.program.spec.relations}
    assert relations == {"n % 2 = 0", "m % 2 = 0"}
    runs = ({"n": 6, "m": 4}, {"n": 2, "m": 6})
    assert beside_peer(model, sizes, runs, compiled=exe) == ([], "")


def test_a_bound_run_has_the_extent_of_its_inputs() -> None:
    exe = compiled()
    program = exe.program
    for number in (5, 2, 4):
        feeds = sized_feeds(exe, {"n": number}, number)
        bound = program.bind(feeds)
        bound.run()
        assert not difference(bound.outputs, exe.run(feeds), 0.0)


def test_arrays_of_any_strides() -> None:
    exe = compiled()
    wide = np.random.default_rng(0).standard_normal((6, 8)).astype("f4")
    for given in (wide[::2, ::2], wide[:3, :4].astype(">f4"), np.asfortranarray(wide[:2, :4])):
        (wanted,) = peer_of(parsed_model(SERIES)).run(None, {"x": given.astype("f4")})
        assert not difference(exe.run({"x": given}), {"y": wanted}, 1e-4)


def test_one_program_is_kept() -> None:
    exe = compiled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(1, MOST + 1):
            exe.run(sized_feeds(exe, {"n": number}, 0))
    assert len(exe.specializations) == 1


# Networks and random models -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_random_models(seed: int) -> None:
    failure = run_sized(draw_batch(seed), exact=1).failure
    assert failure is None, failure.text


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_random_models_over_sequences(seed: int) -> None:
    failure = run_sized(draw_sequence(seed), exact=1).failure
    assert failure is None, failure.text


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_random_models_over_what_masks_keep(seed: int) -> None:
    failure = run_counted(draw_sequence(seed)).failure
    assert failure is None, failure.text


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_random_attention_operators(seed: int) -> None:
    failure = run_attention(seed).failure
    assert failure is None, failure.text


@pytest.mark.parametrize("draw", [draw_batch, draw_sequence])
def test_most_random_models_have_one_program(draw: Any) -> None:
    counts = [run_sized(draw(seed), exact=0).counts for seed in range(4)]
    assert sum(found["one_program"] for found in counts) >= 2


@pytest.mark.parametrize(
    "name",
    [
        "zoo:probe:grouped4:20",
        "zoo:probe:squeeze_excite:20",
        *(
            pytest.param(f"zoo:{name}", marks=pytest.mark.slow)
            for name in ("resnet18", "mobilenet_v3_small", "unet", "densenet40_k12")
        ),
    ],
)
def test_networks(name: str) -> None:
    model = named(name)
    assert model is not None
    opened = with_open_batch(model, "n")
    assert beside_peer(opened, SIZES, extents(1, 3, MOST), tolerance=5e-3) == ([], "")


@pytest.mark.slow
def test_an_encoder_of_any_batch_and_length() -> None:
    """Softmax and its product with the values add over the length of a run."""
    model = bert(0, layers=1, width=32, heads=2, positions=16)
    sizes = {"batch_size": (1, 3), "sequence_length": (1, 16)}
    runs = [dict(zip(sizes, pair, strict=True)) for pair in ((1, 1), (3, 16), (2, 7), (1, 15))]
    assert beside_peer(model, sizes, runs, most=2) == ([], "")


@pytest.mark.slow
def test_an_encoder_whose_layers_share_their_weights() -> None:
    model = albert(0, layers=2, width=32, heads=2, narrow=16, positions=16)
    sizes = {"batch_size": (1, 3), "sequence_length": (1, 16)}
    runs = [dict(zip(sizes, pair, strict=True)) for pair in ((1, 1), (3, 16), (2, 7), (1, 15))]
    assert beside_peer(model, sizes, runs, most=2) == ([], "")


def test_an_encoder_and_a_decoder_of_two_lengths() -> None:
    """Scores have a bias for the distance of tokens, which is computed from ranges to a size."""
    model = t5(0, layers=1, width=32, heads=2)
    sizes = {"batch": (1, 3), "encoder": (1, 24), "decoder": (1, 9)}
    triples = ((1, 1, 1), (3, 24, 9), (2, 7, 3), (1, 23, 1), (2, 1, 9))
    runs = [dict(zip(sizes, triple, strict=True)) for triple in triples]
    assert beside_peer(model, sizes, runs, most=2) == ([], "")


@pytest.mark.slow
def test_an_encoder_of_speech_of_any_batch_and_length() -> None:
    """The length is that of two convolutions of stride 2; positions are cut to it."""
    model = speech(0, layers=1, width=32, heads=2, positions=16)
    sizes = {"batch": (1, 3), "frames": (1, 64)}
    pairs = ((1, 1), (3, 64), (2, 2), (1, 3), (3, 29), (1, 63))
    runs = [dict(zip(sizes, pair, strict=True)) for pair in pairs]
    assert beside_peer(model, sizes, runs) == ([], "")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"threads": 1}, marks=pytest.mark.slow),
        pytest.param({"threads": 3}, marks=pytest.mark.slow),
        {"poison": True},
    ],
)
def test_an_encoder_of_random_batches_and_lengths(options: dict[str, Any]) -> None:
    """Tiles of rows, their rests, and iterations are left out along both sizes."""
    model, rng = bert(0, layers=1, width=64, heads=2, positions=40), random.Random(0)
    most = {"batch_size": 5, "sequence_length": 40}
    runs = [{name: rng.randint(1, hi) for name, hi in most.items()} for _ in range(40)]
    chosen = gf.Options(cache="off", workers=0, **options)
    sizes = {name: (1, hi) for name, hi in most.items()}
    assert beside_peer(model, sizes, runs, chosen, most=2) == ([], "")


def test_an_encoder_works_in_proportion_to_batch_and_length() -> None:
    """Up to whole tiles of rows, and to the keys, of which each query reads all."""
    model = bert(0, layers=1, width=64, heads=2, positions=64)
    sizes = {"batch_size": (1, 4), "sequence_length": (1, 64)}
    work = work_of(model, sizes)
    for batch in (1, 2, 3):
        assert work(batch, 64) == pytest.approx(batch / 4 * work(4, 64), rel=0.01)
    for length, share in ((32, 0.6), (16, 0.35), (1, 0.13)):
        assert work(4, length) < share * work(4, 64)
        assert work(1, length) < share * work(1, 64)


def work_of(model: onnx.ModelProto, sizes: dict[str, tuple[int, int]]) -> Callable[..., int]:
    """The work of a run in which inputs have given sizes."""
    with code_left_out():
        (one,) = gf.compile(model, sizes=sizes, options=OPTIONS).specializations
    spec = one.program.spec

    @cache
    def work(*extents: int) -> int:
        values = {s.input: n for s, n in zip(spec.sizes, extents, strict=True)}
        for size in spec.computed:
            values[size.input] = size.formula.value([values[k] for k in size.operands])
        named = {spec.inputs[number].name: n for number, n in values.items()}
        return executed_work(one.compiled.lowered, named)

    return work


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_images_of_a_batch_are_filtered_in_transformed_tiles(target: gf.Target) -> None:
    b = ModelBuilder()
    x, w = b.input("x", ("n", 32, 16, 16)), b.weight(32, 32, 3, 3, scale=0.06)
    y = b.node("Relu", [b.node("Conv", [x, w], pads=[1, 1, 1, 1])])
    b.output(b.node("Conv", [y, b.weight(32, 32, 3, 3, scale=0.06)], pads=[1, 1, 1, 1]))
    model, sizes = b.model(), {"n": (1, 4)}
    exe = gf.compile(model, sizes=sizes, options=OPTIONS, target=target)
    (one,) = exe.specializations
    variants = [node["variant"] for node in one.report()["program"]["nodes"]]
    assert sum(TRANSFORMED_TILES in (variant or "") for variant in variants) == 2
    assert beside_peer(model, sizes, extents(1, 3, 4, 2), compiled=exe) == ([], "")


def test_a_convolution_in_transformed_tiles_works_in_proportion_to_both_sides() -> None:
    b = ModelBuilder(opset=17)
    x = b.input("x", (1, 32, "h", "w"))
    b.output(b.relu(b.conv(x, 32, 3, pads=[1, 1, 1, 1])))
    work = work_of(b.model(), {"h": (1, 64), "w": (1, 64)})
    assert work(16, 64) < 0.3 * work(64, 64)
    assert work(64, 16) < 0.3 * work(64, 64)
    assert work(4, 4) < 0.01 * work(64, 64)


def test_a_hidden_layer_works_in_proportion_to_tokens() -> None:
    """Its channels do not fill vectors and the most tokens do, but few runs have as many."""
    text = "{ h=MatMul(x,w) s=Sigmoid(h) y=MatMul(s,v) }"
    model = parsed_model(
        f"g (float[1,n,128] x, float[128,40] w, float[40,8] v) => (float y) {text}"
    )
    work = work_of(model, {"n": (1, 16)})
    assert work(1) < 0.1 * work(16)


def test_an_encoder_of_speech_works_in_proportion_to_computed_lengths() -> None:
    """Those of two convolutions of stride 2; each query reads all keys.  An attention in one pass
    has bands of whole vectors of queries."""
    model = speech(0, layers=1, width=32, heads=2, positions=64)
    work = work_of(model, {"batch": (1, 4), "frames": (1, 256)})
    for batch in (1, 2, 3):
        assert work(batch, 256) == pytest.approx(batch / 4 * work(4, 256), rel=0.01)
    for frames, share in ((128, 0.55), (64, 0.33), (1, 0.09)):
        assert work(4, frames) < share * work(4, 256)


def test_an_image_network_works_in_proportion_to_its_sides() -> None:
    """Its windows read zeros behind the image, as far as they reach, and it is resized."""
    model = parsed_model(
        """g (float[1,8,h,w] x) => (float y) { z=Constant<value=int64[4] {8,8,3,3}>()
        c=ConstantOfShape<value=float[1] {0.1}>(z) a=Conv<pads=[1,1,1,1],strides=[2,2]>(x,c)
        r=Relu(a) b=Conv<pads=[1,1,1,1]>(r,c) q=Relu(b) s=Shape(x)
        y=Resize<mode="linear">(q,,,s) }"""
    )
    work = work_of(model, {"h": (8, 64), "w": (8, 64)})
    for height, width, share in ((32, 64, 0.55), (32, 32, 0.42), (16, 16, 0.2), (8, 8, 0.1)):
        assert work(height, width) < share * work(64, 64)


def test_an_encoder_of_images_works_in_proportion_to_tokens() -> None:
    """The tokens are a product of quotients, and one more; what joins them runs to the most."""
    model = vit(0, layers=1, width=48, heads=2, image=None, patch=8)
    work = work_of(model, {"batch": (1, 2), "height": (8, 96), "width": (8, 96)})
    assert work(1, 96, 96) == pytest.approx(work(2, 96, 96) / 2, rel=0.01)
    for height, width, share in ((48, 96, 0.6), (96, 48, 0.63), (48, 48, 0.38), (8, 8, 0.16)):
        assert work(2, height, width) < share * work(2, 96, 96)


@pytest.mark.slow
def test_an_encoder_of_images_of_any_size() -> None:
    """The tokens are those of all patches: two extents are merged into one."""
    model = vit(0, layers=1, width=24, heads=2, image=None, patch=8)
    sizes = {"batch": (1, 2), "height": (8, 40), "width": (8, 64)}
    triples = ((1, 8, 8), (2, 40, 64), (1, 15, 16), (2, 39, 9), (1, 24, 63))
    runs = [dict(zip(sizes, triple, strict=True)) for triple in triples]
    assert beside_peer(model, sizes, runs) == ([], "")


def test_the_decoder_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It chooses the tokens that onnxruntime does from all tokens at once, in one program."""
    model, prompt = gpt(0, layers=1, width=48), [5, 17, 300]
    onnx.save(model, tmp_path / "decoder.onnx")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "README.md").read_text()
    _, _, block = page.partition(
        "token after token, with keys and values that grow:\n\n```python\n"
    )
    names = {"gf": gf, "np": np, "heads": 3, "width": 16, "prompt": prompt}
    names["past_names"] = [f"past_key_values.0.{part}" for part in ("key", "value")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(block.partition("```")[0], names)
    tokens, empty = names["tokens"], np.zeros((1, 3, 0, 16), np.float32)
    feeds = {
        "input_ids": np.array([tokens]),
        "attention_mask": np.ones((1, len(tokens)), np.int64),
        **dict.fromkeys(names["past_names"], empty),
    }
    logits = peer_of(model).run(["logits"], feeds)[0]
    assert len(tokens) == 60 and len(names["exe"].specializations) == 1
    assert names["decoder"].copied == 0
    assert tokens[3:] == logits[0, 2:-1].argmax(-1).tolist()


@pytest.mark.parametrize("build", [gpt, llama])
def test_a_decoder_with_keys_and_values_of_any_length_keeps_them_in_place(
    build: Callable[..., onnx.ModelProto],
) -> None:
    """Whatever lies behind the rows of a run; the most of all tokens limits those of the past.

    Runs that keep nothing may have any lengths, in any order; the past may be empty.
    """
    model = build(0, layers=1)
    sizes = {"batch": (1, 2), "sequence": (1, 8), "past": (0, 24), "total": (1, 24)}
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    lengths = ((1, 1, 0), (2, 8, 16), (2, 1, 23), (2, 1, 17), (1, 5, 0), (1, 8, 3))
    runs = [{"batch": b, "sequence": n, "past": p, "total": n + p} for b, n, p in lengths]
    assert beside_peer(model, sizes, runs, most=2, compiled=exe) == ([], "")
    bound, peer = exe.bind(), peer_of(model)
    names = [tensor.name for tensor in exe.inputs if tensor.name.startswith("past")]
    state: dict[str, Any] = {}
    for number, length in enumerate((7, 1, 1, 3, 8)):
        past = state[names[0]].shape[2] if state else 0
        extents = {"batch": 2, "sequence": length, "past": past, "total": past + length}
        feeds = sized_feeds(exe, extents, number)
        feeds["attention_mask"][...] = 1
        given = {**feeds, **state}
        wanted = peer.run(None, {name: np.asarray(value) for name, value in given.items()})
        found = bound.run(given)
        results = {name: np.asarray(value) for name, value in found.items()}
        assert not difference(results, dict(zip(results, wanted, strict=True)), 1e-4)
        assert bound.copied == 0
        presents = [value for value in found.values() if isinstance(value, gf.StateTensor)]
        state = dict(zip(names, presents, strict=True))
        for one in presents:
            rows = np.array(one)
            one.memory.array[...] = np.nan
            one.memory.array[tuple(map(slice, one.shape))] = rows
    assert len(exe.specializations) == 1


def test_a_detector_for_images_of_any_size() -> None:
    """The boxes that suppression keeps are counted by data, beside sizes."""
    model = detector_any(0, width=8)
    sizes = {"batch": (1, 2), "height": (8, 40), "width": (8, 64)}
    triples = ((1, 8, 8), (2, 40, 64), (1, 15, 16), (2, 39, 9), (1, 24, 63))
    runs = [dict(zip(sizes, triple, strict=True)) for triple in triples]
    assert beside_peer(model, sizes, runs) == ([], "")


DECODER = {"batch": (1, 4), "sequence": (1, 16), "past": (0, 48), "total": (1, 64)}
TEXTS = {"batch_size": (1, 8), "sequence_length": (1, 64)}
IMAGES = {"batch": (1, 4), "height": (16, 96), "width": (16, 96)}
ANY_SHAPE = {
    "bert": TEXTS,
    "albert": TEXTS,
    "gpt": DECODER,
    "llama": DECODER,
    "t5": {"batch": (1, 4), "encoder": (1, 64), "decoder": (1, 32)},
    "vit_any": IMAGES,
    "detector_any": IMAGES,
    "speech": {"batch": (1, 4), "frames": (1, 256)},
}
"""Networks of the zoo, and the sizes of their inputs."""


def selected_of(model: onnx.ModelProto, found: Any) -> Any:
    """What onnxruntime's suppression keeps of the boxes and scores of a run.

    Scores that are equal but for rounding have another order in onnxruntime's own scores.
    """
    given = ["boxes", "scores"]
    suppression = onnx.utils.Extractor(model).extract_model(given, ["selected"])
    return peer_of(suppression).run(None, {name: found[name] for name in given})[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ANY_SHAPE)
def test_two_hundred_shapes(name: str) -> None:
    """Each run comes after one of poison; programs and memory do not grow with the shapes."""
    model, sizes, rng = zoo_model(name), ANY_SHAPE[name], random.Random(name)
    exe, peer = gf.compile(model, sizes=sizes, options=OPTIONS), peer_of(model)
    most = {size: hi for size, (_, hi) in sizes.items()}
    poison = sized_feeds(exe, most, 0, most=2, poison=True)
    names, resident = [output.name for output in peer.get_outputs()], list[int]()
    for seed in range(200):
        extents = {size: rng.randint(*bounds) for size, bounds in sizes.items()}
        if "past" in extents:
            extents["total"] = extents["past"] + extents["sequence"]
        feeds = sized_feeds(exe, extents, seed, most=2)
        wanted = dict(zip(names, peer.run(None, feeds), strict=True))
        exe.run(poison)
        found = exe.run(feeds)
        if name == "detector_any":
            wanted["selected"] = selected_of(model, found)
        assert not difference(found, wanted, 1e-4), extents
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)
    assert len(exe.specializations) <= 4
    assert max(resident[20:]) - max(resident[:20]) < 16 << 20


def test_an_operator_of_the_callers_is_compiled_for_each_shape() -> None:
    """Its function may put the number of elements into a kernel, as a literal like others."""

    def scaled(node: NodeCall) -> None:
        shape, dtype = node.shape(0), node.dtype(0)
        count = tir.Literal(float(shape[0]), dtype)
        func = elementwise("scaled", {"x": (shape, dtype)}, lambda x: tir.Binary("mul", x, count))
        node.emit(func)

    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Scaled", ["x"], ["y"], domain="com.example")],
            "scaled",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)],
        ir_version=8,
    )
    with pytest.warns(UserWarning, match="an operator of the caller's may depend on this number"):
        exe = gf.compile(
            model, sizes=SIZES, operators={"com.example.Scaled": scaled}, options=OPTIONS
        )
    for n in (1, 3):
        assert (exe.run({"x": np.ones((n, 4), np.float32)})["y"] == n).all()


# Integers of a run --------------------------------------------------------------------------------

STATED = {
    "the greatest": "int64[1] k) => (float y, int64 i) { y, i=TopK(x,k) }",
    "a range": """int64 k) => (int64 y) <int64 zero={0}, int64 one={1}> { y=Range(zero,k,one) }""",
    "the first": "int64[1] k) => (float y) <int64[1] b={0}, int64[1] a={1}> { y=Slice(x,b,k,a) }",
    "pads": """int64[1] k) => (float y) <int64[3] zeros={0,0,0}>
        { pads=Concat<axis=0>(zeros,k) y=Pad(x,pads) }""",
    "repeated": """int64[1] k) => (float y) <int64[1] one={1}>
        { many=Concat<axis=0>(k,one) y=Tile(x,many) }""",
    "read by kernels": """int32 k) => (float y, int32 q)
        { f=Cast<to=1>(k) y=Mul(x,f) q=Add(k,k) }""",
    "trips": """int64 k) => (float y) <bool go={1}>
        { y=Loop(k,go,x) <body = b (int64 i, bool c, float[4,n] a) => (bool d, float[4,n] s)
        { d=Identity(c) s=Add(a,x) }> }""",
    "returned": "int64 k) => (float y, int64 k) { y=Relu(x) }",
}


@pytest.mark.parametrize("text", STATED.values(), ids=STATED)
def test_an_integer_of_a_run_is_a_size(text: str) -> None:
    model = parsed_model(f"g (float[4,n] x, {text}", 18)
    runs = [{"n": n, "k": k} for n, k in ((9, 1), (9, 8), (10, 3), (10, 10), (12, 4))]
    sizes = {"n": (9, 12), "k": (1, 9)}
    assert beside_peer(model, sizes, runs, exact=1) == ([], "")


def test_an_integer_is_no_size_where_its_number_is_needed() -> None:
    text = """g (float[12] x, int64[1] k) => (float y) <int64[1] rest={-1}>
        { s=Concat<axis=0>(k,rest) y=Reshape(x,s) }"""
    runs = [{"k": k} for k in (1, 4, 6, 4)]
    wrong, why_not = beside_peer(parsed_model(text), {"k": (1, 8)}, runs)
    assert not wrong and "Reshape" in why_not


def test_an_integer_and_axes_of_its_name_have_one_size() -> None:
    """Where they differ, a run has a program of its own."""
    text = """g (float[k,2] x, int64[1] k) => (float y) <int64[1] one={1}>
        { s=Concat<axis=0>(one,k) y=Tile(x,s) }"""
    model, sizes = parsed_model(text), {"k": (1, 5)}
    runs = [{"k": k} for k in (1, 5, 2)]
    assert beside_peer(model, sizes, runs) == ([], "")
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    feeds = {"x": np.ones((3, 2), np.float32), "k": np.array([2])}
    np.testing.assert_array_equal(exe.run(feeds)["y"], np.ones((3, 4), np.float32))
    assert len(exe.specializations) == 2


def test_an_integer_beyond_the_bounds_has_a_program_of_its_own() -> None:
    """Those within them keep theirs."""
    model = parsed_model(f"g (float[4,n] x, {STATED['the greatest']}")
    sizes = {"n": (9, 12), "k": (1, 4)}
    runs = [{"n": 9, "k": k} for k in (0, 7, 2, 7, 4)]
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    assert beside_peer(model, sizes, runs, compiled=exe) == ([], "")
    assert len(exe.specializations) == 3


def test_integers_without_a_most_have_ranges(tmp_path: Path) -> None:
    model = parsed_model(f"g (float[4,n] x, {STATED['repeated']}")
    exe = gf.compile(model, sizes={"n": (1, 4), "k": (1, None)}, options=OPTIONS)
    wanted = peer_of(model)
    for k in (1, 7, 8, 20, 3, 70):
        feeds = sized_feeds(exe, {"n": 3, "k": k}, k)
        np.testing.assert_array_equal(exe.run(feeds)["y"], wanted.run(None, feeds)[0])
    assert 2 <= len(exe.specializations) <= 4
    exe.save(tmp_path / "repeated.gfx")
    saved = gf.load(tmp_path / "repeated.gfx")
    for k in (1, 70, 8):
        feeds = sized_feeds(exe, {"n": 3, "k": k}, k)
        np.testing.assert_array_equal(saved.run(feeds)["y"], wanted.run(None, feeds)[0])


@pytest.mark.parametrize(("dtype", "greatest"), [("int32", 2**31 - 1), ("int64", 2**63 - 1)])
def test_bounds_of_an_integer_are_within_its_type(dtype: str, greatest: int) -> None:
    text = f"g (float[6] x, {dtype}[1] k) => (float y) <int64[1] z={{0}}> "
    model = parsed_model(text + "{ e=Cast<to=7>(k) s=Slice(x,z,e) y=ReduceSum<keepdims=0>(s) }")
    x = np.ones(6, np.float32)
    for most in (None, 2**31):
        exe = gf.compile(model, sizes={"k": (0, most)}, options=OPTIONS)
        for k in (3, greatest, 0, 5):
            assert exe.run({"x": x, "k": np.array([k], dtype)})["y"] == min(k, 6)
        assert len(exe.specializations) <= 3


def test_an_output_without_elements_is_written_into_an_array_of_none() -> None:
    """Whose strides are 0, as numpy makes it."""
    exe = gf.compile(
        parsed_model("g (float[5,n] x) => (float y) { y=Neg(x) }"),
        sizes={"n": (0, 4)},
        options=OPTIONS,
    )
    for n in (4, 0):
        given, out = np.ones((5, n), np.float32), np.zeros((5, n), np.float32)
        assert exe.run({"x": given}, out={"y": out})["y"] is out and (out == -1).all()


def test_a_copied_output_that_a_sum_reads_has_zeros_behind() -> None:
    """The copy is left out, and the softmax in front of it writes zeros behind the elements."""
    text = "g (float[n,4] x) => (float i, float y) { s=Softmax<axis=0>(x) i=Identity(s) "
    model = parsed_model(text + "y=ReduceSum<keepdims=0>(s) }")
    assert beside_peer(model, {"n": (1, MOST)}, extents(MOST, 1, 3, 2), exact=1) == ([], "")


def test_an_axis_of_a_size_is_not_repeated_less_than_never() -> None:
    text = "g (float[n,2] x) => (float y) <int64[2] r={1,-1}> { q=Neg(r) y=Tile(x,q) }"
    exe = gf.compile(parsed_model(text), sizes={"n": (1, 4)}, options=OPTIONS)
    with pytest.raises(InvalidModel, match=r"repeats \(-1, 1\) do not fit"):
        exe.run({"x": np.ones((3, 2), np.float32)})


# The greater of sizes -----------------------------------------------------------------------------

GREATER = {
    "of two lengths": """float[k] z) => (float y) <int64 zero={0}, int64 one={1}>
        { a=Shape(x) b=Shape(z) c=Max(a,b) q=Squeeze(c) r=Range(zero,q,one) y=Cast<to=1>(r) }""",
    "pads up to a length": """float[k] z) => (float y) <int64[1] ten={10}, int64[1] zero={0}>
        { a=Shape(x) c=Sub(ten,a) p=Max(c,zero) q=Concat<axis=0>(zero,p) y=Pad(x,q) }""",
    "of several": """float[k] z) => (float y) <int64[1] five={5}>
        { a=Shape(x) b=Shape(z) c=Max(a,b,five) y=Expand(start,c) }""",
}


@pytest.mark.parametrize("text", GREATER.values(), ids=GREATER)
def test_the_greater_of_sizes_is_a_size(text: str) -> None:
    model = parsed_model(f"g (float[n] x, float[1] start, {text}", 18)
    runs = [{"n": n, "k": k} for n, k in ((3, 5), (16, 2), (10, 10), (1, 16), (7, 6))]
    assert beside_peer(model, {"n": (1, 16), "k": (1, 16)}, runs, exact=1) == ([], "")


@pytest.mark.parametrize(("h", "w"), [((1, 9), (1, 16)), ((9, 12), (20, 24)), ((9, 11), (1, 20))])
def test_images_are_padded_or_cropped_to_one_size(h: tuple[int, int], w: tuple[int, int]) -> None:
    text = """g (float[2,h,w] x) => (float y) <int64[2] s={9,20}>
        { y=CenterCropPad<axes=[1,2]>(x,s) }"""
    runs = [{"h": n, "w": m} for n, m in zip(h, w, strict=True)] + [{"h": h[0], "w": w[1]}]
    assert beside_peer(parsed_model(text, 18), {"h": h, "w": w}, runs) == ([], "")
