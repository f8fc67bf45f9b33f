"""Runs of one program for many extents beside onnxruntime, and beside programs for one extent each.

In: a model whose dimensions have names, and their sizes.  Out: what is wrong with the runs, or
nothing, and why no program serves all extents.  Before each run the room behind its elements is
filled by a run of the largest extents: with NaN, and for integers with their greatest values.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import onnxruntime

import graphflow as gf
from graphflow.base.dtypes import DTYPES
from graphflow.base.fields import replace

Feeds = dict[str, np.ndarray[Any, Any]]

OPTIONS = gf.Options(cache="off", threads=2, workers=0)


def parsed_model(text: str, opset: int = 17) -> onnx.ModelProto:
    """The model of a graph in the text form of ONNX, without the shapes of its outputs."""
    opsets = f'"" : {opset}, "com.microsoft" : 1, "own" : 1'
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{opsets}]> {text}")
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    return model


def peer_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime's session for a model as it stands, without optimizations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def sized_feeds(
    exe: Any, extents: Mapping[str, int], seed: int, most: int = 3, poison: bool = False
) -> Feeds:
    """Arrays for the inputs where the dimensions, and inputs of one integer, have these extents.

    Other integers are below `most`.  Poison is NaN, true, or the integer below `most`.
    """
    rng, feeds = np.random.default_rng(seed), Feeds()
    for tensor in exe.inputs:
        shape, dtype = tuple(extents.get(n, n) for n in tensor.shape), DTYPES[tensor.dtype]
        if tensor.name in extents and dtype.kind == "i" and set(shape) <= {1}:
            drawn = np.full(shape, extents[tensor.name])
        elif dtype.kind in "iub":
            drawn = np.full(shape, most - 1) if poison else rng.integers(0, most, shape)
        else:
            drawn = np.full(shape, np.nan) if poison else rng.standard_normal(shape)
        feeds[tensor.name] = np.asarray(drawn).astype(dtype)
    return feeds


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any], tolerance: float) -> str:
    """What is wrong with the results of a run, "" if nothing is."""
    for name, array in wanted.items():
        mine = found[name]
        if (mine.shape, mine.dtype) != (array.shape, array.dtype):
            return f"{name} is {mine.dtype}{mine.shape}, not {array.dtype}{array.shape}"
        if array.dtype.kind in "iub" and not np.array_equal(mine, array):
            return f"{name} has other integers"
        if not np.allclose(mine, array, tolerance, tolerance, equal_nan=True):
            off = np.abs(np.asarray(mine, "f8") - np.asarray(array, "f8"))
            return f"{name} differs by {np.max(off)}"
    return ""


def beside_peer(
    model: onnx.ModelProto,
    sizes: Mapping[str, tuple[int, int]],
    runs: Iterable[Mapping[str, int]],
    options: gf.Options = OPTIONS,
    tolerance: float = 1e-4,
    most: int = 3,
    exact: int = 0,
    compiled: gf.Executable | None = None,
    is_comparable: Callable[[Feeds], bool] = lambda _: True,
) -> tuple[list[str], str]:
    """What is wrong with runs of these extents, and why no program serves all sizes, or "".

    An extent for which onnxruntime refuses the model says nothing; that it refuses all is wrong.
    The last `exact` runs are compared with programs of these extents alone too.  `compiled` is the
    model with these sizes and options, if a test has it already.  `is_comparable` says of inputs
    for which results differ whether those of all correct programs would be close.
    """
    peer, wrong, compared = peer_of(model), list[str](), 0
    runs = list(runs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exe = compiled or gf.compile(model, sizes=sizes, options=options)
        largest = {name: hi for name, (_, hi) in sizes.items()}
        for seed, extents in enumerate(runs):
            feeds = sized_feeds(exe, extents, seed, most)
            wanted = {}
            with suppress(Exception):
                results = peer.run(None, feeds)
                names = (output.name for output in peer.get_outputs())
                wanted["onnxruntime"] = dict(zip(names, results, strict=True))
            said = []
            if len(runs) - seed <= exact:
                try:
                    wanted["the program for these extents"] = exact_results(model, feeds, options)
                except gf.GraphflowError as error:
                    said = [f"alone: {type(error).__name__}: {error}"] if wanted else []
            if not wanted:
                continue
            poison = sized_feeds(exe, {**extents, **largest}, seed, most, poison=True)
            with suppress(gf.GraphflowError):  # a model that has no results for the largest extents
                exe.run(poison)
            try:
                found = exe.run(feeds)
                for name, arrays in wanted.items():
                    text = difference(found, arrays, tolerance)
                    if text and is_comparable(feeds):
                        said.append(f"{text}, beside {name}")
            except gf.GraphflowError as error:
                said.append(f"{type(error).__name__}: {error}")
            compared += "onnxruntime" in wanted
            wrong += [f"{dict(extents)}: {text}" for text in said]
        about = exe.report()["sizes"]
    if not compared:
        wrong.append("onnxruntime runs the model for none of these extents")
    return wrong, next(iter(about.values()))["why_not"]


def exact_results(model: onnx.ModelProto, feeds: Feeds, options: gf.Options) -> Feeds:
    """The results of the program that is compiled for the shapes of these arrays alone.

    One thread runs it: a second one takes longer to make than the little work of a test.
    """
    return dict(gf.compile(model, options=replace(options, threads=1)).run(feeds))
