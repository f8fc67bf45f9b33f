"""Tests of variants in one pass over bands of rows: what a band holds, and how it reads a mask."""

from math import prod

import numpy as np
import onnx
import pytest

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.kernels.recipes import SharedLoops, kernel_variants
from graphflow.layout import row_major
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import Compiled, compile_graph
from graphflow.pipeline.request import CompileRequest


def attention(tokens: int, mask: np.ndarray | None) -> onnx.ModelProto:
    """Attention of two heads of 64, with a mask that is added to the scores."""
    build = ModelBuilder(seed=4)
    queries = build.input("q", (1, 2, tokens, 64))
    keys = build.node("Transpose", [build.input("k", (1, 2, tokens, 64))], perm=[0, 1, 3, 2])
    scores = build.node("MatMul", [queries, keys])
    if mask is not None:
        scores = build.add(scores, build.constant(mask))
    weights = build.node("Softmax", [scores], axis=-1)
    build.output(build.node("MatMul", [weights, build.input("v", (1, 2, tokens, 64))]))
    return build.model()


def planned(tokens: int, mask: np.ndarray | None) -> tuple[Compiled, SharedLoops]:
    """The compiled model, and the recipe of its products."""
    target = PROCESSORS["zen4"]
    made = compile_graph(CompileRequest(attention(tokens, mask), target=target))
    recipes = (choice.variant.recipe for choice in made.plan.choices.values())
    (recipe,) = (recipe for recipe in recipes if isinstance(recipe, SharedLoops) and recipe.tile)
    return made, recipe


def causal(tokens: int) -> np.ndarray:
    return np.where(np.tri(tokens, dtype=bool), 0, -np.inf).astype(np.float32)


@pytest.mark.parametrize("masked", [False, True])
def test_what_the_stages_make_takes_turns_on_the_stack(masked: bool) -> None:
    """Scores, masked scores and powers of 2,048 keys are 24 KB a row, 1.5 MB of 64 rows."""
    made, recipe = planned(2048, causal(2048) if masked else None)
    assert recipe.vectors > 1
    scratch = max(
        sum(
            stmt.buffer.bytes
            for stmt in tir.walk(kernel.func.body)
            if isinstance(stmt, tir.Allocate) and stmt.buffer.scope == "scratch"
        )
        for kernel in made.lowered.kernels.values()
    )
    rows = recipe.lanes * recipe.vectors
    assert 2048 * 4 * rows <= scratch < 2 * 2048 * 4 * rows <= made.target.stack_bytes


def test_queries_and_sums_are_transposed_in_registers() -> None:
    """A trap: both take turns in one memory, which is the other side of either copy."""
    made, recipe = planned(512, None)
    assert set(recipe.transposed) == {"a", "y"}
    (kernel,) = made.lowered.kernels.values()
    stores = [s for s in tir.walk(kernel.func.body) if isinstance(s, tir.Store)]
    copies = [(s.buffer.name, s.value.buffer.name) for s in stores if isinstance(s.value, tir.Load)]
    given = {made for made, read in copies if read == "a"}
    stored = {read for made, read in copies if made == "y"}
    assert len(given) == len(stored) == 1 and given != stored
    shapes = {
        s.buffer.name: s.buffer for s in tir.walk(kernel.func.body) if isinstance(s, tir.Allocate)
    }
    assert {(shapes[name].shape, shapes[name].scope) for name in given | stored} == {
        ((16, 16), "register")
    }


@pytest.mark.parametrize(("tokens", "box"), [(128, (8, 128, 16)), (120, (120, 120))])
def test_a_band_reads_one_piece_of_a_mask(tokens: int, box: tuple[int, ...]) -> None:
    """The mask of 16 rows lies in blocks of a cache line for each key, where all blocks are
    whole; else row by row for each key."""
    made, recipe = planned(tokens, causal(tokens))
    assert recipe.leaves_out
    kernels = made.lowered.kernels.values()
    read = {p.buffer.shape for k in kernels for p in k.func.params if k.func.params[0] is not p}
    assert {shape for shape in read if prod(shape) == tokens**2} >= {box}


def test_a_mask_whose_rows_begin_later_is_not_in_blocks() -> None:
    """Row i reads row i + 1 of it: no index of the mask is the row alone."""
    (func,) = (n.func for n in planned(128, causal(128))[0].graph.nodes if len(n.inputs) == 4)
    mask = func.inputs[2]
    longer = replace(mask, shape=(129, 128))
    body = tir.redirect_accesses(func.body, mask, longer, lambda at: (at[0] + 1, *at[1:]))
    params = tuple(replace(p, buffer=longer) if p.buffer == mask else p for p in func.params)
    later = replace(func, params=params, body=body)
    found = kernel_variants(later, frozenset((mask.name,)), PROCESSORS["zen4"])
    bands = [v for v in found if isinstance(v.recipe, SharedLoops) and v.recipe.tile]
    assert bands and all(v.layouts[mask.name] == row_major(longer.shape) for v in bands)
