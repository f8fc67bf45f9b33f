"""Tests of sizes without a most: the bounds of the programs that runs get."""

import threading
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.api.open_shapes.ranges import Ranges, most_for
from graphflow.base.errors import InvalidModel
from graphflow.base.sizes import BOUNDLESS, Size, sizes_of
from graphflow.models.zoo.sequences.gpt import gpt
from graphflow.program import OpenTensor
from support.models.sized_runs import OPTIONS, difference, parsed_model, peer_of

INPUTS = (OpenTensor("x", "float32", ("b", "n")), OpenTensor("y", "float32", ("n", "m")))
B, N, M = Size("b", 1, 4), Size("n", 0, BOUNDLESS), Size("m", 1, BOUNDLESS)


def given(b: int, n: int, m: int) -> dict[str, tuple[int, ...]]:
    return {"x": (b, n), "y": (n, m)}


def bounds(ranges: Ranges, n: int, m: int) -> dict[str, int]:
    return {size.name: size.hi for size in ranges.around(given(1, n, m))}


def test_a_most_is_twice_the_extent_or_more() -> None:
    assert [most_for(n) for n in (0, 1, 4, 5, 16, 17)] == [8, 8, 8, 16, 32, 64]
    assert [most_for(n, 8) for n in (7, 25, 97)] == [32, 128, 512]  # 200 tokens: four programs


def test_sizes_grow_together_and_never_shrink() -> None:
    ranges = Ranges(INPUTS, (B, N, M))
    assert ranges.is_open and not Ranges(INPUTS, (B,)).is_open
    assert bounds(ranges, 3, 1) == {"b": 4, "n": 8, "m": 8}
    assert bounds(ranges, 8, 5) == {"b": 4, "n": 8, "m": 8}
    assert bounds(ranges, 9, 5) == {"b": 4, "n": 64, "m": 32}  # more than half of both
    assert bounds(ranges, 2, 1) == {"b": 4, "n": 64, "m": 32}


def test_the_next_program_is_asked_for_once_and_used_when_it_is_made() -> None:
    ranges = Ranges(INPUTS, (N, M))
    assert bounds(ranges, 4, 4) == {"n": 8, "m": 8}
    assert ranges.ahead(given(1, 6, 4)) is None
    sizes = ranges.ahead(given(1, 7, 5))
    assert sizes == (Size("n", 0, 32), Size("m", 1, 32))
    assert ranges.ahead(given(1, 7, 5)) is None
    assert bounds(ranges, 7, 5) == {"n": 8, "m": 8}
    ranges.adopt(sizes)
    assert bounds(ranges, 1, 1) == {"n": 32, "m": 32}


def test_little_room_is_left_where_more_is_refused() -> None:
    ranges = Ranges(INPUTS, (B, N, M))
    assert bounds(ranges, 20, 3) == {"b": 4, "n": 64, "m": 8}
    assert ranges.tighten()
    assert bounds(ranges, 20, 3) == {"b": 4, "n": 32, "m": 8}
    assert ranges.ahead(given(1, 24, 3)) is None
    assert ranges.ahead(given(1, 25, 3)) == (B, Size("n", 0, 64), Size("m", 1, 8))
    assert bounds(ranges, 32, 3) == {"b": 4, "n": 32, "m": 8}
    assert bounds(ranges, 33, 3) == {"b": 4, "n": 64, "m": 8}
    assert ranges.tighten() and not ranges.tighten()
    assert bounds(ranges, 33, 3) == {"b": 4, "n": 40, "m": 3}
    assert ranges.ahead(given(1, 33, 1)) == (B, Size("n", 0, 48), Size("m", 1, 3))
    assert bounds(ranges, 7, 5) == {"b": 4, "n": 40, "m": 5}
    assert not Ranges(INPUTS, (B,)).tighten()


def test_ranges_end_with_a_table_of_the_model() -> None:
    """A row of 20 is taken by the size, which with more of these might stand behind it."""
    model = parsed_model(
        """g (float[n,2] x) => (float y) { s=Shape<end=1>(x) o=Constant<value=int64[1] {1}>()
        b=Sub(s,o) z=Constant<value=int64[1] {0}>() h=Constant<value=int64[2] {20,2}>()
        t=ConstantOfShape<value=float[1] {2}>(h) r=Slice(t,b,s,z) y=Add(x,r) }"""
    )
    exe = gf.compile(model, sizes={"n": (1, None)}, options=OPTIONS)
    for n in (3, 7, 9, 16, 17, 20):
        x = np.full((n, 2), n, np.float32)
        np.testing.assert_array_equal(exe.run({"x": x})["y"], x + 2)
        wait()
    assert exe.report()["sizes"]["n"]["one_program"]
    assert len(exe.specializations) <= 5


def test_bounds_are_stated_as_pairs() -> None:
    (size,) = sizes_of({"n": (1, None)})
    assert not size.is_bounded and str(size) == "n from 1 on"
    with pytest.raises(TypeError, match=r"or \(lo, None\)"):
        sizes_of({"n": (None, 4)})
    with pytest.raises(InvalidModel):
        sizes_of({"n": (-1, None)})


def wait() -> None:
    """Until no program is compiled ahead."""
    for thread in threading.enumerate():
        if thread.name == "compile ahead":
            thread.join(60)


def test_a_program_is_compiled_ahead_of_the_run_that_needs_it() -> None:
    exe = gf.compile(
        parsed_model("g (float[n,4] x) => (float[n,4] y) { y = Softmax<axis=0>(x) }"),
        sizes={"n": (1, None)},
        options=OPTIONS,
    )
    compiled = []
    for n in (2, 6, 7, 24, 25, 3):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        wanted = np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0)
        np.testing.assert_allclose(exe.run({"x": x})["y"], wanted, 1e-5, 1e-6)
        wait()
        compiled.append(exe.report()["programs"]["compiled"])
    assert compiled == [1, 1, 2, 2, 3, 3]  # for up to 8, 32 and 128
    assert exe.report()["sizes"]["n"] == {
        "least": 1, "most": None, "one_program": True, "why_not": "",
    }  # fmt: skip


@pytest.mark.slow
def test_a_decoder_without_bounds() -> None:
    """The most of all tokens is that of the past and the new ones, whatever range they are in."""
    model = gpt(0, layers=1, width=48)
    names: dict[str, Any] = {"sequence": (1, None), "past": (0, None), "total": (1, None)}
    exe = gf.compile(model, sizes={"batch": (1, 2), **names}, options=OPTIONS)
    bound, peer = exe.bind(), peer_of(model)
    past = [tensor.name for tensor in exe.inputs if tensor.name.startswith("past")]
    state: dict[str, Any] = dict.fromkeys(past, np.zeros((1, 3, 0, 16), np.float32))
    for number, length in enumerate((5, 1, 1, 6, 1, 20)):
        total = state[past[0]].shape[2] + length
        ids = np.random.default_rng(number).integers(0, 99, (1, length))
        feeds = {"input_ids": ids, "attention_mask": np.ones((1, total), np.int64), **state}
        wanted = peer.run(None, {name: np.asarray(value) for name, value in feeds.items()})
        found = bound.run(feeds)
        results = {name: np.asarray(value) for name, value in found.items()}
        assert not difference(results, dict(zip(results, wanted, strict=True)), 1e-4)
        state = dict(zip(past, list(found.values())[1:], strict=True))
        wait()
    assert exe.report()["programs"]["compiled"] <= 4
    assert exe.report()["sizes"]["past"]["one_program"]
