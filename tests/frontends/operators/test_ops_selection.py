"""Tests of parts of an axis of which a run decides the extent, beside onnxruntime."""

import itertools

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel
from support.models.sized_runs import OPTIONS, beside_peer, parsed_model

NUMBERED = (
    "g (float[2,n] x) => (float y, float z, float w) { y,z,w=Split<axis=1,num_outputs=3>(x) }"
)


@pytest.mark.parametrize(
    ("text", "sizes", "opset"),
    [
        pytest.param(NUMBERED, {"n": (4, 20)}, 18, id="by their number"),
        pytest.param(
            "g (float[n,2] x) => (float y, float z) { y,z=Split<axis=0>(x) }",
            {"n": (2, 8)},
            17,
            id="in halves",
        ),
        pytest.param(
            "g (float[n] x, float[m] v, float[k] w) => (float y, float z)"
            " { a=Shape(v) b=Shape(w) s=Concat<axis=0>(a,b) y,z=Split(x,s) }",
            {"n": (0, 9), "m": (0, 4), "k": (0, 5)},
            17,
            id="by two sizes",
        ),
    ],
)
def test_one_program_splits_all_extents(
    text: str, sizes: dict[str, tuple[int, int]], opset: int
) -> None:
    """onnxruntime refuses those that no parts make up."""
    lo, hi = sizes["n"]
    runs = [{"n": n, "m": n - n // 2, "k": n // 2} for n in (hi, lo, *range(lo, hi + 1))]
    runs = [
        {name: min(n, sizes[name][1]) for name, n in run.items() if name in sizes} for run in runs
    ]
    assert beside_peer(parsed_model(text, opset), sizes, runs) == ([], "")


def test_parts_of_which_one_may_be_of_fewer_than_none_have_programs_of_their_own() -> None:
    """Of three equal parts of one element the last has one less than none."""
    wrong, why_not = beside_peer(parsed_model(NUMBERED, 18), {"n": (1, 20)}, [{"n": 3}, {"n": 7}])
    assert not wrong and "may be -1 in a run" in why_not


def test_a_split_in_halves_is_of_even_extents() -> None:
    text = "g (float[n,2] x) => (float y, float z) { y,z=Split<axis=0>(x) }"
    exe = gf.compile(parsed_model(text), sizes={"n": (2, 8)}, options=OPTIONS)
    with pytest.raises(InvalidModel, match="n has to be a multiple of 2"):
        exe.run({"x": np.zeros((3, 2), np.float32)})


@pytest.mark.parametrize(
    ("start", "end"), [*itertools.product((-1, 3, -3), (-(2**63), 1)), (-1, -4), (-3, -4)]
)
@pytest.mark.parametrize("step", [-1, -2, -50])
def test_one_program_takes_elements_backwards(start: int, end: int, step: int) -> None:
    text = (
        f"g (float[2,n] x) => (float y) <int64[1] s={{{start}}}, int64[1] e={{{end}}},"
        f" int64[1] a={{1}}, int64[1] t={{{step}}}> {{ y=Slice(x,s,e,a,t) }}"
    )
    runs = [{"n": n} for n in (7, 4, 5, 6, 7)]
    assert beside_peer(parsed_model(text), {"n": (4, 7)}, runs) == ([], "")


@pytest.mark.parametrize("bounds", ["p,e", "s,p"])
def test_a_bound_that_may_be_the_last_element_has_a_program_for_each_shape(bounds: str) -> None:
    """A bound of -1 counts from the back, and each greater one from the front."""
    text = (
        "g (float[n] x, float[m] v) => (float y) <int64[1] s={-1}, int64[1] e={-100},"
        " int64[1] a={0}, int64[1] two={2}>"
        f" {{ k=Shape(v) p=Sub(k,two) y=Slice(x,{bounds},a,s) }}"
    )
    runs = [{"n": n, "m": m} for n in (5, 8) for m in (1, 2, 4)]
    wrong, why_not = beside_peer(parsed_model(text), {"n": (5, 8), "m": (1, 4)}, runs)
    assert not wrong and "may have either sign" in why_not


def test_parts_of_a_number_that_data_decide() -> None:
    text = (
        "g (float[2,n] x, bool[4] c) => (float y) { t=Compress<axis=1>(x,c)"
        " a,b=Split<axis=1,num_outputs=2>(t) y=Concat<axis=1>(b,a) }"
    )
    wrong, why_not = beside_peer(parsed_model(text, 18), {"n": (1, 9)}, [{"n": 5}, {"n": 9}])
    assert (wrong, why_not) == ([], "")
