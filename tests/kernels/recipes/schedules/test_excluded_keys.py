"""Keys that a mask excludes: bits as without leaving them out, whatever the operands hold."""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import Expansions, canonicalize, fuse_groups, in_one_pass
from graphflow.kernels.lowering import KernelTask, LoweredKernel
from graphflow.kernels.lowering.task import make_here
from graphflow.kernels.recipes import KernelVariant, SharedLoops, kernel_variants
from support.native import Native
from support.placing import place, unplace
from support.planning.attentions import LOWEST, attention
from support.targets import in_turn

Array: TypeAlias = np.ndarray[Any, Any]

SPECIAL = (np.inf, -np.inf, np.nan, 1e38, -1e38, 3e38, -0.0, 1e-40)
TARGETS = {"avx2": avx2_target(), "host": host_target()}
EXCLUDING = (-np.inf, LOWEST, -1e9, -1e4)


def operator(heads: int, rows: int, keys: int, depth: int) -> onnx.ModelProto:
    """The operator that ONNX has, which gives a row of zeros where all keys are excluded, as those
    of the last row are."""
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    shapes = {"q": rows, "k": keys, "v": keys}
    shown = np.arange(rows)[:, None] + np.zeros(keys) < rows - 1
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], is_causal=1)],
        "attention",
        [info(name, kind, (1, heads, count, depth)) for name, count in shapes.items()],
        [info("y", kind, (1, heads, rows, depth))],
        [onnx.numpy_helper.from_array(shown, "mask")],
    )
    opsets = [onnx.helper.make_opsetid("", 23)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


@lru_cache(maxsize=64)
def definition(mask: str, shape: tuple[int, int, int, int]) -> tir.PrimFunc:
    """The definition of a masked attention in one pass; `shape` are heads, rows, keys, columns."""
    model = operator(*shape) if mask == "operator" else attention(*shape, mask=mask).model
    graph = fuse_groups(canonicalize(import_model(model, {})))
    ((found,),) = in_one_pass(Expansions(graph)).of_node.values()
    return found.node.func


def mask_of(func: tir.PrimFunc, keys: int) -> str:
    (name,) = (b.name for b in func.inputs if b.shape and b.shape[-1] == keys and len(b.shape) < 3)
    return name


@lru_cache(maxsize=64)
def kernels(
    mask: str, shape: tuple[int, int, int, int], target: str, vectors: int
) -> tuple[KernelVariant, tuple[tuple[LoweredKernel, Native], ...]]:
    """A variant, and the kernels that leave keys out and that do not."""
    func, on = definition(mask, shape), TARGETS[target]
    constants = frozenset(b.name for b in func.inputs if len(b.shape) in (1, 2))
    found = [*kernel_variants(func, constants, on)]
    variant = next(v for v in found if isinstance(v.recipe, SharedLoops) and v.recipe.tile)
    assert isinstance(variant.recipe, SharedLoops)
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    made = []
    for leaves_out in (False, True):
        recipe = replace(variant.recipe, vectors=vectors, tile=5, leaves_out=leaves_out)
        task = KernelTask("kernel", func, placements, recipe, on)
        (kernel,) = make_here({"kernel": task}).values()
        assert kernel.instead_of is None
        assert ("excluded" in tir.to_text(kernel.func)) == leaves_out
        made.append((kernel, Native(kernel.func, on)))
    return variant, tuple(made)


def results(
    mask: str, shape: tuple[int, int, int, int], target: str, vectors: int, arrays: dict[str, Array]
) -> list[Array]:
    variant, made = kernels(mask, shape, target, vectors)
    placed = {name: place(variant.layouts[name], array, 0.0) for name, array in arrays.items()}
    return [
        unplace(variant.layouts["y"], native(placed, ((0, kernel.extent),))["y"])
        for kernel, native in made
    ]


def require_same(got: list[Array]) -> None:
    plain, bounded = got
    np.testing.assert_array_equal(np.isnan(plain), np.isnan(bounded))
    numbers = ~np.isnan(plain)
    np.testing.assert_array_equal(plain.view(np.uint32)[numbers], bounded.view(np.uint32)[numbers])


def operands(
    mask: str, shape: tuple[int, int, int, int], seen: Array, excluding: float, seed: int
) -> dict[str, Array]:
    """Operands by parameter; the mask shows the keys in `seen`, of (rows, keys)."""
    func = definition(mask, shape)
    rng = np.random.default_rng(seed)
    name = mask_of(func, shape[2])
    arrays: dict[str, Array] = {}
    for buffer in func.inputs:
        if buffer.name == name and buffer.dtype == "bool":
            arrays[name] = seen
        elif buffer.name == name:
            shown = seen if len(buffer.shape) == 2 else seen.any(0)
            arrays[name] = np.where(shown, 0.0, excluding).astype(np.float32)
        elif buffer.dtype == "bool":
            arrays[buffer.name] = ~seen.any(1, keepdims=True)
        elif buffer.shape == (1,):
            arrays[buffer.name] = np.zeros(1, np.float32)
        elif not buffer.shape:
            is_scale = buffer.name == min(b.name for b in func.inputs if not b.shape)
            number = 0.25 if is_scale else excluding
            arrays[buffer.name] = np.float32(number)
        else:
            arrays[buffer.name] = rng.standard_normal(buffer.shape).astype(np.float32)
    return arrays


def causal(rows: int, keys: int) -> Array:
    return np.tril(np.ones((rows, keys), np.bool_))


@in_turn("mask excluding", ("where", "each", "row", "operator"), EXCLUDING, targets=[*TARGETS])
def test_special_values_at_each_place(mask: str, target: str, excluding: float) -> None:
    shape = (1, 37, 45, 6)
    seen = causal(37, 45)
    if mask == "row":
        seen[:, 20:] = False
    plain = operands(mask, shape, seen, excluding, 0)
    require_same(results(mask, shape, target, 1, plain))
    for name in (n for n, array in plain.items() if array.ndim >= 3):
        for value in SPECIAL:
            for at in ((0, 0), (3, 19), (-1, -1)):
                arrays = {n: a.copy() for n, a in plain.items()}
                plane = arrays[name].reshape(arrays[name].shape[-2:])
                plane[at[0] % plane.shape[0], at[1] % plane.shape[1]] = value
                require_same(results(mask, shape, target, 1, arrays))


@pytest.mark.parametrize("target", TARGETS)
def test_zeros_keep_their_signs(target: str) -> None:
    """A sum that is −0, as its only term underflows, becomes 0 by a zero that is positive."""
    shape = (1, 37, 45, 6)
    arrays = operands("where", shape, causal(37, 45), -np.inf, 0)
    query, key, value = (name for name, array in arrays.items() if array.ndim >= 3)
    arrays[query][:] = 1.0
    arrays[key][:] = -20.0
    arrays[key][:, :, 0] = 0.0
    arrays[value][:, :3] = np.array([-0.0, -1e-45, -1e-45], np.float32)[:, None]
    arrays[value][:, 3:, 0] = -1.0
    plain, bounded = results("where", shape, target, 1, arrays)
    require_same([plain, bounded])
    assert not bounded[0, 2].any()
    assert np.signbit(bounded[0, 2]).tolist()[0] and not np.signbit(bounded[0, 2]).all()


@in_turn("other", [0.0, -0.0, 2.0, np.nan], targets=TARGETS)
def test_rows_that_get_another_weight(target: str, other: float) -> None:
    """Of a row all of whose keys are excluded the weights are a number that a run gives."""
    shape, seen = (1, 37, 45, 6), causal(37, 45)
    seen[5:9] = False
    for excluding in EXCLUDING:
        arrays = operands("operator", shape, seen, excluding, 0)
        (name,) = (n for n, array in arrays.items() if array.shape == (1,))
        arrays[name][:] = other
        require_same(results("operator", shape, target, 1, arrays))
        (name,) = (n for n, array in arrays.items() if array.dtype == np.bool_)
        arrays[name][20:30] = True
        require_same(results("operator", shape, target, 1, arrays))


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_any_mask_and_operands(data: st.DataObject) -> None:
    mask = data.draw(st.sampled_from(["where", "each", "row", "operator"]))
    shape = data.draw(st.sampled_from([(1, 37, 45, 6), (2, 32, 40, 16), (1, 16, 9, 3)]))
    _, rows, keys, _ = shape
    target = data.draw(st.sampled_from([*TARGETS]))
    vectors = data.draw(st.sampled_from([1, 2]))
    if vectors * TARGETS[target].computed_lanes("float32") > rows:
        vectors = 1
    ends = data.draw(st.lists(st.integers(0, keys), min_size=rows, max_size=rows))
    begins = data.draw(st.lists(st.sampled_from([0, 0, 3, 20]), min_size=rows, max_size=rows))
    places = np.arange(keys)
    seen = (places < np.array(ends)[:, None]) & (places >= np.array(begins)[:, None])
    excluding = data.draw(st.sampled_from([*EXCLUDING, -1001.0, -50.0, np.nan]))
    arrays = operands(mask, shape, seen, excluding, data.draw(st.integers(0, 9)))
    scale = data.draw(st.sampled_from([1.0, 1.0, 30.0, 1e18]))
    for name in arrays:
        if arrays[name].ndim >= 3:
            arrays[name] *= np.float32(scale)
            if data.draw(st.booleans()):
                place = data.draw(st.integers(0, arrays[name].size - 1))
                arrays[name].reshape(-1)[place] = data.draw(st.sampled_from(SPECIAL))
    if mask != "where" and data.draw(st.booleans()):
        name = mask_of(definition(mask, shape), keys)
        place = data.draw(st.integers(0, arrays[name].size - 1))
        arrays[name].reshape(-1)[place] = data.draw(st.sampled_from(SPECIAL))
    require_same(results(mask, shape, target, vectors, arrays))
