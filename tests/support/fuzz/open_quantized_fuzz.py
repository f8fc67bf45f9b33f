"""Random quantized models whose batch and height are sizes: one program for all of them gives the
bits that programs of each of the extents give.

In: a seed.  Out: what is wrong, and whether one program served the runs.  Scales are powers of two
and biases have few bits, so that floats are exact: results depend on no order of a sum and on no
contraction.  Targets go by the seed.
"""

import random
import warnings
from collections import Counter

import numpy as np
import onnx
from onnx import numpy_helper

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.codegen import avx2_target, host_target
from support.fuzz.fuzz_test import Failure, Result, attempted
from support.models.quantized_models import random_quantized_model
from support.models.sized_runs import OPTIONS, sized_feeds

TARGETS = (host_target(), avx2_target())
MOST_BATCH = 3
RUNS = 3


def run_open_quantized(seed: int, runs: int = RUNS) -> Result:
    """The result of the fuzz test for a seed: runs of the least and of the most extents, and of at
    most `RUNS` others."""
    counts = Counter(cases=1)
    return Result(attempted(lambda: _check(seed, runs, counts)), counts)


def _check(seed: int, runs: int, counts: Counter[str]) -> None:
    model, height = open_quantized_model(seed)
    rng, target = random.Random(seed), TARGETS[seed % 2]
    sizes = {"n": (1, MOST_BATCH), "h": (1, height)}
    ends = [{name: bounds[k] for name, bounds in sizes.items()} for k in (0, 1)]
    others = [{name: rng.randint(*bounds) for name, bounds in sizes.items()} for _ in range(RUNS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exe = gf.compile(model, sizes=sizes, target=target, options=OPTIONS)
        except gf.GraphflowError:
            counts["refused"] += 1  # impossible for the greatest extents
            return
        why_not = exe.report()["sizes"]["h"]["why_not"]
        counts["one_program"] += not why_not
        for extents in () if why_not else (*ends, *others[:runs]):
            feeds = sized_feeds(exe, extents, seed)
            try:
                alone = gf.compile(model, target=target, options=replace(OPTIONS, threads=1))
                wanted = alone.run(feeds)
            except gf.GraphflowError:
                continue  # no window fits into so few elements
            exe.run(sized_feeds(exe, ends[1], seed, poison=True))
            for name, array in exe.run(feeds).items():
                same = array.shape == wanted[name].shape and np.array_equal(array, wanted[name])
                if not same:
                    raise Failure("numbers", f"{extents}: {name} has other elements than alone")
            counts["runs"] += 1


def open_quantized_model(seed: int) -> tuple[onnx.ModelProto, int]:
    """The quantized model of a seed with scales that are powers of two, whose input has an open
    batch and height, and the height that it had."""
    model = random_quantized_model(seed).model
    graph = model.graph
    scales = {n.input[1] for n in graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")}
    targets = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    biases = {
        node.input[2] for node in graph.node if node.op_type == "Conv" and len(node.input) > 2
    }
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.name in scales:
            array = np.exp2(np.rint(np.log2(array))).astype(np.float32)
        elif tensor.name in biases:
            array = np.rint(array * 256).astype(np.float32) / np.float32(256)
        elif tensor.name in targets:
            array = np.array([0, 0, -1, 1], np.int64)
        else:
            continue
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    (image,) = graph.input
    height = image.type.tensor_type.shape.dim[2].dim_value
    for axis, name in ((0, "n"), (2, "h")):
        image.type.tensor_type.shape.dim[axis].dim_param = name
    del graph.value_info[:]
    for info in graph.output:
        info.type.tensor_type.ClearField("shape")
    return model, height
