"""Random models of which extents are sizes: one program for all of them beside onnxruntime, and
beside programs of each of the extents.

In: a model, the bounds of its sizes, and extents of runs.  Out: what is wrong with the runs, and
whether one program served them.  `draw_batch` opens the batch of a random model of `fuzzing`, whose
constants of one batch make some models impossible for others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

import graphflow as gf
from graphflow.models import with_open_batch
from support.fuzz.fuzz_reference import Peer
from support.fuzz.fuzz_test import Failure, Result, result
from support.models.fuzzing import random_model
from support.models.sized_runs import Feeds, beside_peer

TOLERANCE = 2e-3
MOST_RUNS = 6


@dataclass(frozen=True, slots=True)
class SizedModel:
    """A model, the bounds of its sizes, and the extents of some runs."""

    model: onnx.ModelProto
    sizes: Mapping[str, tuple[int, int]]
    runs: tuple[Mapping[str, int], ...]


def draw_batch(seed: int) -> SizedModel:
    """A random model with a symbolic batch."""
    runs = tuple({"n": extent} for extent in (5, 1, 3, 5, 2, 4))
    return SizedModel(with_open_batch(random_model(seed), "n"), {"n": (1, 5)}, runs)


def run_sized(case: SizedModel, exact: int = MOST_RUNS) -> Result:
    """What is wrong with a model, counted as a case served by one program or not, or refused.

    `exact` runs are compared with programs of their extents alone too, each of which is compiled.
    """
    try:
        wrong, why_not = beside_peer(
            case.model,
            case.sizes,
            case.runs,
            tolerance=TOLERANCE,
            exact=exact,
            is_comparable=lambda feeds: is_well_conditioned(case.model, feeds),
        )
    except gf.GraphflowError:
        return result("", cases=1, refused=1)  # impossible for the greatest extents
    return result("; ".join(wrong), "numbers", cases=1, one_program=not why_not)


def is_well_conditioned(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Whether rounding errors in the model change its results little for these inputs, as they do
    not where the reciprocal of nearly 0 is taken (`fuzz_reference`)."""
    alone = onnx.ModelProto()
    alone.CopyFrom(model)
    for info in alone.graph.input:
        if info.name in feeds:
            dims = zip(info.type.tensor_type.shape.dim, feeds[info.name].shape, strict=True)
            for dim, extent in dims:
                dim.dim_value = extent
    del alone.graph.value_info[:]
    for output in alone.graph.output:
        output.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(alone, data_prop=True)
    known = [*inferred.graph.value_info, *inferred.graph.output]
    if any(not d.HasField("dim_value") for v in known for d in v.type.tensor_type.shape.dim):
        return True  # nothing shows that errors grow
    return not Peer(inferred).reference(feeds, 0).refused


def check_sized(case: SizedModel) -> Failure | None:
    """What is wrong with a model."""
    return run_sized(case).failure
