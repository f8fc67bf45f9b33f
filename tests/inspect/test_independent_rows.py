"""Tests of the proof that rows along a size are independent: where it holds, where it must not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.models import ModelBuilder

Emits = Callable[[ModelBuilder, str], str]


def rows_of(build: ModelBuilder) -> dict[str, Any]:
    """What the report says of the only size; with one row and with several it runs."""
    exe = gf.compile(
        build.model(), sizes={"batch": (1, 4)}, options=gf.Options(threads=1, workers=0)
    )
    (rows,) = exe.specializations[0].report()["rows"]
    assert rows["size"] == "batch" and rows["independent"] == (not rows["why_not"])
    return {"exe": exe, **rows}


def model(emits: Emits, shape: tuple[int | str, ...] = ("batch", 6)) -> ModelBuilder:
    build = ModelBuilder(seed=1)
    build.output(emits(build, build.input("x", shape)))
    return build


def image(emits: Emits) -> ModelBuilder:
    return model(emits, ("batch", 3, 6, 6))


APART: dict[str, Callable[[], ModelBuilder]] = {
    "elementwise": lambda: model(lambda b, x: b.node("Add", [b.relu(x), x])),
    "a product": lambda: model(lambda b, x: b.node("MatMul", [x, b.weight(6, 5)])),
    "a softmax of each row": lambda: model(lambda b, x: b.node("Softmax", [x], axis=1)),
    "a sum of each row": lambda: model(
        lambda b, x: b.node("ReduceSum", [x, b.constant(np.array([1]))], keepdims=0)
    ),
    "a convolution": lambda: image(lambda b, x: b.relu(b.conv(x, 5, 3, pads=[1, 1, 1, 1]))),
    "pooling and a flat product": lambda: image(
        lambda b, x: b.node(
            "MatMul",
            [b.node("Flatten", [b.node("GlobalAveragePool", [b.conv(x, 5, 3)])]), b.weight(5, 2)],
        )
    ),
    "a concatenation": lambda: model(lambda b, x: b.node("Concat", [x, b.relu(x)], axis=1)),
    "a gather of each row": lambda: model(
        lambda b, x: b.node("Gather", [x, b.constant(np.array([5, 0]))], axis=1)
    ),
}

TOGETHER: dict[str, Callable[[], ModelBuilder]] = {
    "a softmax over the rows": lambda: model(lambda b, x: b.node("Softmax", [x], axis=0)),
    "a mean over the rows": lambda: model(
        lambda b, x: b.node("Sub", [x, b.node("ReduceMean", [x], axes=[0], keepdims=1)])
    ),
    "a sum over the rows": lambda: model(
        lambda b, x: b.node("CumSum", [x, b.constant(np.array(0))])
    ),
    "a product of rows": lambda: model(
        lambda b, x: b.node("MatMul", [b.node("Transpose", [x], perm=[1, 0]), x])
    ),
    "the last row": lambda: model(
        lambda b, x: b.node("Add", [x, b.node("Gather", [x, b.constant(np.array([-1]))], axis=0)])
    ),
    "the number of rows": lambda: model(
        lambda b, x: b.node(
            "Mul",
            [
                x,
                b.node(
                    "Cast",
                    [b.node("Gather", [b.node("Shape", [x]), b.constant(np.array(0))])],
                    to=1,
                ),
            ],
        )
    ),
    "rows by their number": lambda: model(
        lambda b, x: b.node(
            "Add",
            [
                x,
                b.node(
                    "Unsqueeze",
                    [
                        b.node(
                            "Cast",
                            [
                                b.node(
                                    "Range",
                                    [
                                        b.constant(np.array(0)),
                                        b.node(
                                            "Gather",
                                            [b.node("Shape", [x]), b.constant(np.array(0))],
                                        ),
                                        b.constant(np.array(1)),
                                    ],
                                )
                            ],
                            to=1,
                        ),
                        b.constant(np.array([1])),
                    ],
                ),
            ],
        )
    ),
    "rows in another order": lambda: model(
        lambda b, x: b.node(
            "ReverseSequence", [x, b.constant(np.full(6, 1, np.int64))], time_axis=0, batch_axis=1
        )
    ),
    "a result of no row": lambda: model(
        lambda b, x: b.node("ReduceMax", [x], axes=[0, 1], keepdims=0)
    ),
}


@pytest.mark.parametrize("case", APART)
def test_rows_that_are_independent(case: str) -> None:
    found = rows_of(APART[case]())
    assert found["why_not"] == ""
    exe = found["exe"]
    (tensor,) = exe.inputs
    shape = (3, *(n for n in tensor.shape if isinstance(n, int)))
    x = np.random.default_rng(3).standard_normal(shape, dtype=np.float32)
    (whole,) = exe.run({"x": x}).values()
    for k in range(3):
        (one,) = exe.run({"x": x[k : k + 1]}).values()
        np.testing.assert_allclose(one[0], whole[k], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", TOGETHER)
def test_rows_that_depend_on_each_other(case: str) -> None:
    try:
        found = rows_of(TOGETHER[case]())
    except (ValueError, IndexError):  # no program serves several extents: nothing is claimed
        return
    assert found["why_not"]


def test_a_network_with_two_sizes() -> None:
    """The rows of a batch are independent, the tokens of a sequence are not: attention over words,
    whose numbers are masked and checked."""
    b = ModelBuilder(1)
    words = b.node("Gather", [b.weight(20, 8), b.input("ids", ("batch", "length"), "int64")])
    scores = b.node("MatMul", [words, b.node("Transpose", [words], perm=[0, 2, 1])])
    b.output(b.node("MatMul", [b.node("Softmax", [scores], axis=-1), words]))
    sizes = {"batch": (1, 2), "length": (1, 8)}
    exe = gf.compile(b.model(), sizes=sizes, options=gf.Options(threads=1, workers=0))
    batch, length = exe.specializations[0].report()["rows"]
    assert (batch["size"], batch["why_not"]) == ("batch", "")
    assert length["size"] == "length" and length["why_not"]
