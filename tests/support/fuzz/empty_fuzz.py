"""Random chains of movements of small tensors, many of them without an element or of one.

In: a seed.  What is drawn: a model that splits, slices, joins, pads, repeats, gathers and reduces
tensors of any rank, with axes counted from either end.  It is compared with onnxruntime.
"""

from collections import Counter
from random import Random

import numpy as np

import graphflow as gf
from graphflow.codegen import avx2_target, host_target
from graphflow.models import ModelBuilder
from support.fuzz.fuzz_test import Result, attempted
from support.single import peer

TARGETS = (host_target(), avx2_target())
Shape = tuple[int, ...]


def run_empty(seed: int) -> Result:
    """A chain of a seed."""
    return Result(attempted(lambda: _compare(seed)), Counter(cases=1))


def _compare(seed: int) -> None:
    rng, b = Random(seed), ModelBuilder(seed)
    shape = tuple(rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(rng.randint(1, 4)))
    name = b.input("x", shape)
    for _ in range(rng.randint(1, 6)):
        name, shape = _step(rng, b, name, shape)
        if rng.random() < 0.4:
            b.output(b.node("Neg", [name]), shape=shape)
    b.output(b.node("Abs", [name]), shape=shape)
    model = b.model()
    feeds = {"x": np.random.default_rng(seed).standard_normal(model_shape(model), np.float32)}
    options = gf.Options(fallback=None, workers=0, threads=1 + seed % 2)
    found = gf.compile(model, options=options, target=TARGETS[seed // 2 % 2]).run(feeds)
    for key, wanted in peer(model, feeds).items():
        np.testing.assert_allclose(found[key], wanted, 1e-5, 1e-5, err_msg=f"seed {seed}, {key}")


def model_shape(model: object) -> Shape:
    """The extents of the only input of a model."""
    (info,) = model.graph.input  # type: ignore[attr-defined]
    return tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)


def _step(rng: Random, b: ModelBuilder, x: str, shape: Shape) -> tuple[str, Shape]:
    rank = len(shape)
    axis = rng.randrange(rank)
    stated, extent = axis - rng.choice((0, rank)), shape[axis]

    def integers(*numbers: int) -> str:
        return b.constant(np.array(numbers, np.int64))

    def along(new: int) -> Shape:
        return (*shape[:axis], new, *shape[axis + 1 :])

    match rng.randrange(8):
        case 0:
            order = rng.sample(range(rank), rank)
            return b.node("Transpose", [x], perm=order), tuple(shape[k] for k in order)
        case 1:
            first = rng.randint(0, extent)
            parts = [f"{x}.a", f"{x}.b"]
            b.node("Split", [x, integers(first, extent - first)], parts, axis=stated)
            sizes = (first, extent - first)
            taken = rng.randrange(2)
            b.output(b.node("Exp", [parts[1 - taken]]), shape=along(sizes[1 - taken]))
            return parts[taken], along(sizes[taken])
        case 2:
            start, stop = sorted((rng.randint(0, extent), rng.randint(0, extent)))
            step = rng.choice((1, 1, 2, 3))
            bounds = [integers(n) for n in (start, stop, stated, step)]
            return b.node("Slice", [x, *bounds]), along(len(range(start, stop, step)))
        case 3:
            return b.node("Concat", [x, x], axis=stated), along(2 * extent)
        case 4 if extent:
            places = [rng.randrange(-extent, extent) for _ in range(rng.randint(0, 3))]
            return b.node("Gather", [x, integers(*places)], axis=stated), along(len(places))
        case 5 if rank < 5:
            made = b.node("Unsqueeze", [x, integers(axis)])
            return made, (*shape[:axis], 1, *shape[axis:])
        case 6:
            pads = [0] * (2 * rank)
            pads[axis] = rng.randint(0, 2)
            return b.node("Pad", [x, integers(*pads)]), along(extent + pads[axis])
        case _:
            return b.node("ReduceSum", [x, integers(stated)]), along(1)
