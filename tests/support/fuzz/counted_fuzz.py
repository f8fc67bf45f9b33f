"""Random models whose extents data decides, beside onnxruntime.

In: a random model over sizes.  Out: what is wrong with runs of the model in which each size is the
number of elements that a mask keeps of a longer axis.  Before each run, one of all elements fills
the room behind with NaN.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.base.dtypes import DTYPES
from support.fuzz.fuzz_test import Failure, Result, result
from support.fuzz.sized_fuzz import TOLERANCE, SizedModel, is_well_conditioned
from support.models.sized_runs import Feeds, difference, peer_of

OPTIONS = gf.Options(cache="off", threads=2, workers=0, fallback=None)

MASK = "kept."
"""The name of a mask begins so, that of the tensor of which it keeps a part with `WHOLE`."""

WHOLE = "whole."


def picking(case: SizedModel) -> onnx.ModelProto:
    """The model on longer inputs, of which masks keep as many elements as sizes say."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    picked, masked = [], dict[str, int]()
    for info in model.graph.input:
        dims, name = info.type.tensor_type.shape.dim, info.name
        sized = [(axis, dim.dim_param) for axis, dim in enumerate(dims) if dim.dim_param]
        names = [WHOLE + name, *(f"{name}.{axis}" for axis, _ in sized[1:]), name]
        for (axis, size), source, target in zip(sized, names[:-1], names[1:], strict=sized != []):
            picked.append(helper.make_node("Compress", [source, MASK + size], [target], axis=axis))
            masked[size] = dims[axis].dim_value = case.sizes[size][1]
        info.name = names[0] if sized else name
    model.graph.input.extend(
        helper.make_tensor_value_info(MASK + size, TensorProto.BOOL, [most])
        for size, most in masked.items()
    )
    nodes = [*picked, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def run_counted(case: SizedModel) -> Result:
    """What is wrong with a model, counted as a case in which steps end at counts or none does."""
    try:
        exe = gf.compile(picking(case), options=OPTIONS)
    except gf.GraphflowError:
        return result("", cases=1, refused=1)
    steps = exe.program.spec.run
    late = any(step.portion is not None and step.portion.places for step in steps)
    peer, wrong = peer_of(case.model), list[str]()
    names = [output.name for output in peer.get_outputs()]
    axes = {
        info.name: [dim.dim_param for dim in info.type.tensor_type.shape.dim]
        for info in case.model.graph.input
    }
    for seed, extents in enumerate(case.runs):
        if 0 in extents.values():  # onnxruntime ends the process for some of these
            continue
        feeds = _feeds(exe, extents, seed)
        plain = {name: _kept(feeds, name, sizes) for name, sizes in axes.items()}
        try:
            wanted = dict(zip(names, peer.run(None, plain), strict=True))
        except Exception:
            continue
        try:
            exe.run(_behind(feeds))
            text = difference(exe.run(feeds), wanted, TOLERANCE)
        except gf.GraphflowError as error:
            text = f"{type(error).__name__}: {error}"
        if text and is_well_conditioned(case.model, plain):
            wrong.append(f"{dict(extents)}: {text}")
    return result("; ".join(wrong), "numbers", cases=1, late=late)


def check_counted(case: SizedModel) -> Failure | None:
    """What is wrong with a model."""
    return run_counted(case).failure


def _feeds(exe: Any, extents: Mapping[str, int], seed: int) -> Feeds:
    rng, feeds = np.random.default_rng(seed), Feeds()
    for tensor in exe.inputs:
        dtype = DTYPES[tensor.dtype]
        if tensor.name.startswith(MASK):
            feeds[tensor.name] = np.zeros(tensor.shape, bool)
            count = extents[tensor.name.removeprefix(MASK)]
            feeds[tensor.name][rng.permutation(tensor.shape[0])[:count]] = True
        elif dtype.kind in "iub":
            feeds[tensor.name] = rng.integers(0, 3, tensor.shape).astype(dtype)
        else:
            feeds[tensor.name] = rng.standard_normal(tensor.shape).astype(dtype)
    return feeds


def _behind(feeds: Feeds) -> Feeds:
    """Inputs of NaN of which all elements are kept."""
    return {
        name: np.ones_like(array)
        if name.startswith(MASK)
        else np.full_like(array, np.nan)
        if array.dtype.kind == "f"
        else array
        for name, array in feeds.items()
    }


def _kept(feeds: Feeds, name: str, sizes: list[str]) -> np.ndarray[Any, Any]:
    """The part of an input that the masks keep, as the model over sizes has it."""
    array = feeds[WHOLE + name if any(sizes) else name]
    for axis, size in enumerate(sizes):
        if size:
            array = np.compress(feeds[MASK + size], array, axis)
    return array
