"""Damaged models and damaged saved models, tried in a process that may die of them.

`python tests/mutants.py KIND` reads seeds from stdin, a line each, and answers each with a line:
`SEED ok TEXT` or `SEED wrong TEXT`.  Before onnxruntime gets a model it prints `SEED peer`, so
that its deaths are not taken for ours.  The memory of the process is limited.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import graphflow as gf
from graphflow.errors import GraphflowError
from graphflow.frontends import OPERATORS, read_model
from graphflow.models import Builder
from graphflow.runtime.container import Container, write_container
from graphflow.samples import random_inputs

MEMORY = 4 << 30
"""Bytes of private memory; address space is no measure, as LLVM and numpy reserve much of it."""

LARGEST_COMPARED = 1e4
"""Sums of weights beyond it differ by their order."""

INTEGERS = (
    0, 1, -1, 2, 3, 5, 7, 8, 64, 127, 128, 255, 1000, 65536, 2**31 - 1, 2**31, -(2**31), 2**32,
    2**40, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "nowhere", "\0", "é" * 40, "a" * 300, "../x", "NOTSET", "SAME_UPPER", "linear")


# The models ---------------------------------------------------------------------------------------


def convolutions() -> onnx.ModelProto:
    b = Builder(seed=1)
    x = b.input("x", (1, 3, 6, 6))
    y = b.relu(b.batch_norm(b.conv(x, 4, 3, pads=[1] * 4)))
    y = b.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    b.output(b.linear(b.node("Flatten", [b.node("GlobalAveragePool", [y])]), 5))
    return b.model()


def broadcasts() -> onnx.ModelProto:
    b = Builder(seed=2)
    x, y = b.input("x", (2, 1, 4)), b.input("y", (3, 1))
    z = b.add(b.node("Mul", [x, y]), b.constant(np.float32([1, 2, 3, 4])))
    b.output(b.node("Clip", [z, b.constant(np.float32(-1)), b.constant(np.float32(1))]))
    return b.model()


def movement() -> onnx.ModelProto:
    b = Builder(seed=3)
    x = b.input("x", (2, 6, 4))
    y = b.node("Reshape", [x, b.constant(np.array([2, 2, -1, 4], np.int64))])
    y = b.node("Transpose", [y], perm=[0, 2, 1, 3])
    y = b.node("Reshape", [y, b.node("Shape", [x])])
    b.output(b.node("Concat", [y, x], axis=-1))
    return b.model()


def reductions() -> onnx.ModelProto:
    b = Builder(seed=4)
    x = b.input("x", (2, 3, 4))
    y = b.node("ReduceMean", [x], axes=[1], keepdims=1)
    z = b.node("ReduceSum", [x, b.constant(np.array([-1], np.int64))], keepdims=0)
    b.output(b.node("Softmax", [b.node("Sub", [x, y])], axis=-1), z)
    return b.model()


def selections() -> onnx.ModelProto:
    b = Builder(seed=5)
    x = b.input("x", (4, 6))
    y = b.node("Gather", [x, b.constant(np.array([2, 0, -1], np.int64))], axis=1)
    bounds = [b.constant(np.array([n], np.int64)) for n in (1, 4, 0, 2)]
    z = b.node("Slice", [x, *bounds])
    b.output(y, b.node("Pad", [z, b.constant(np.array([0, 1, 1, 0], np.int64))]))
    return b.model()


def old() -> onnx.ModelProto:
    b = Builder(seed=6, opset=6)
    x = b.input("x", (1, 2, 4, 4))
    y = b.node("Add", [b.conv(x, 3, 3), b.weight(3)], broadcast=1, axis=1)
    b.output(b.node("Reshape", [b.relu(y), b.constant(np.array([1, -1], np.int64))]))
    return b.model()


MODELS: tuple[Callable[[], onnx.ModelProto], ...] = (
    convolutions, broadcasts, movement, reductions, selections, old,
)  # fmt: skip


@cache
def built() -> tuple[bytes, ...]:
    return tuple(build().SerializeToString() for build in MODELS)


@cache
def of_one_operator() -> tuple[bytes, ...]:
    """The models that onnx tests backends with: nearly all operators, many that are not built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return tuple(case.model.SerializeToString() for case in cases if case.model is not None)


# Mutations of models ------------------------------------------------------------------------------


def damaged_bytes(rng: random.Random, content: bytes) -> bytes:
    """Some bytes changed, left out, repeated or put in; or the end cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(data))
        length = rng.choice((1, 1, 2, 4, 16))
        match rng.randrange(5):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                del data[place : place + length]
            case 2:
                data[place:place] = data[place : place + length]
            case 3:
                data[place : place + length] = rng.randbytes(length)
            case 4 if rng.random() < 0.2:
                del data[place:]
        data = data or bytearray(content)
    return bytes(data)


def messages(message: Any) -> Iterator[Any]:
    """A message and all within it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from messages(inner)


def damaged_fields(rng: random.Random, content: bytes) -> bytes:
    """One or two fields anywhere changed, removed, repeated or swapped."""
    model = onnx.load_from_string(content)
    names = [n for node in model.graph.node for n in (*node.input, *node.output)]
    for _ in range(rng.choice((1, 1, 2))):
        # What has few messages is chosen as often as what has many.
        found: dict[str, list[Any]] = {}
        for message in messages(model):
            found.setdefault(message.DESCRIPTOR.name, []).append(message)
        message = rng.choice(found[rng.choice(sorted(found))])
        fields = [f for f in message.DESCRIPTOR.fields if f.name != "doc_string"]
        present = [f for f, _ in message.ListFields()]
        field = rng.choice(present) if present and rng.random() < 0.8 else rng.choice(fields)
        _damage(rng, message, field, names)
    return bytes(model.SerializeToString())


def _damage(rng: random.Random, message: Any, field: Any, names: list[str]) -> None:
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif field.is_repeated:
        _damage_repeated(rng, getattr(message, field.name), field, names)
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _value(rng, field, names, getattr(message, field.name)))


def _damage_repeated(rng: random.Random, values: Any, field: Any, names: list[str]) -> None:
    match rng.randrange(4):
        case 0 if values:
            del values[rng.randrange(len(values))]
        case 1 if values and field.message_type is not None:
            values.append(copy.deepcopy(rng.choice(values)))
        case 2 if len(values) > 1:
            order = list(values)
            rng.shuffle(order)
            kept = [copy.deepcopy(value) for value in order]
            del values[:]
            values.extend(kept)
        case _ if field.message_type is None and values and rng.random() < 0.8:
            place = rng.randrange(len(values))
            values[place] = _value(rng, field, names, values[place])
        case _ if field.message_type is None:
            values.append(_value(rng, field, names, None))


def _value(rng: random.Random, field: Any, names: list[str], before: Any) -> Any:
    if field.name == "op_type":
        return rng.choice(sorted(OPERATORS))
    if field.name in ("data_type", "elem_type", "type"):
        return rng.randrange(12)
    if field.name == "version":
        return rng.randrange(1, 24)
    match field.cpp_type:
        case field.CPPTYPE_STRING if field.type == field.TYPE_BYTES:
            return damaged_bytes(rng, before or b"1234")
        case field.CPPTYPE_STRING:
            return rng.choice(names or TEXTS) if rng.random() < 0.5 else rng.choice(TEXTS)
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return rng.choice(FLOATS)
        case field.CPPTYPE_ENUM:
            return rng.choice([v.number for v in field.enum_type.values])
        case _:
            low, high = (-(2**31), 2**31 - 1) if field.cpp_type == field.CPPTYPE_INT32 else (
                -(2**63), 2**63 - 1
            )  # fmt: skip
            low = 0 if field.cpp_type == field.CPPTYPE_UINT64 else low
            near = [before + 1, before - 1, -before, 2 * before] if before else []
            return rng.choice([n for n in (*INTEGERS, *near * 3) if low <= n <= high])


# What a model may end in --------------------------------------------------------------------------


def try_model(
    seed: int, say: Callable[[str], None], bases: Callable[[], tuple[bytes, ...]] = built
) -> str:
    """How a mutant ended; an exception other than a GraphflowError passes."""
    rng = random.Random(seed)
    content = rng.choice(bases())
    with tempfile.TemporaryDirectory() as folder:
        model: bytes | Path
        if rng.random() < 0.15:
            model = _external(rng, content, Path(folder))
        else:
            damage = damaged_bytes if rng.random() < 0.3 else damaged_fields
            model = damage(rng, content)
        try:
            exe = gf.compile(model, options=gf.Options(threads=1, workers=0))
            feeds = random_inputs(exe.inputs)
            found = exe.run(feeds)
        except GraphflowError as error:
            if not str(error).strip():
                raise AssertionError("an error without a message") from error
            return f"refused: {str(error)[:90]!r}"
        say("peer")
        return _compared(model, feeds, found)


def _external(rng: random.Random, content: bytes, folder: Path) -> Path:
    """A model with its weights in a file beside it, and one of the two damaged."""
    path = folder / "model.onnx"
    model = onnx.load_from_string(content)
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    weights = folder / "weights"
    if rng.random() < 0.3 and weights.exists() and weights.stat().st_size:
        weights.write_bytes(damaged_bytes(rng, weights.read_bytes()))
    else:
        damage = damaged_bytes if rng.random() < 0.3 else damaged_fields
        path.write_bytes(damage(rng, path.read_bytes()))
    return path


def _compared(model: bytes | Path, feeds: dict[str, Any], found: dict[str, Any]) -> str:
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        source = model if isinstance(model, bytes) else str(model)
        session = onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        expected = dict(zip(names, session.run(None, feeds), strict=True))
    except Exception as error:
        return f"ran, and onnxruntime refuses: {str(error)[:90]!r}"
    assert list(found) == list(dict.fromkeys(names)), f"outputs {list(found)}, peer {names}"
    tame = _tame(model)
    for name, array in expected.items():
        mine = found[name]
        assert mine.shape == array.shape and mine.dtype == array.dtype, (
            f"{name} is {mine.dtype}{mine.shape}, peer {array.dtype}{array.shape}"
        )
        if tame and (array.dtype.kind != "f" or np.isfinite(array).all()):
            np.testing.assert_allclose(mine, array, rtol=1e-3, atol=1e-3, err_msg=name)
    return "as the peer"


def _tame(model: bytes | Path) -> bool:
    """Whether all weights are finite and small, so that the order of sums hardly matters."""
    arrays = [numpy_helper.to_array(tensor) for tensor in read_model(model).graph.initializer]
    floats = [array for array in arrays if array.dtype.kind == "f"]
    return all(bool((np.abs(array) < LARGEST_COMPARED).all()) for array in floats)


# Saved models -------------------------------------------------------------------------------------


@cache
def saved_model() -> tuple[bytes, dict[str, Any], dict[str, bytes], dict[str, Any]]:
    """A file, its header and sections, and what it computes."""
    exe = gf.compile(convolutions(), options=gf.Options(threads=1, workers=0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gfx"
        exe.save(path)
        with Container(path) as file:
            header = {name: value for name, value in file.header.items() if name != "sections"}
            sections = {name: file.read(name) for name in file.names}
        return path.read_bytes(), header, sections, exe.run(random_inputs(exe.inputs))


def try_saved(seed: int, say: Callable[[str], None]) -> str:
    """How a damaged saved model ended.

    Bytes that are damaged under the old checksums are refused.  Tables under new checksums are, or
    give the results as before; only where the steps of the run themselves were exchanged for others
    that fit may it compute something else.
    """
    rng = random.Random(seed)
    whole, header, sections, expected = saved_model()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gfx"
        place: tuple[Any, ...] = ()
        if rng.random() < 0.2:
            path.write_bytes(damaged_bytes(rng, whole))
            if path.read_bytes() == whole:
                return "unchanged"
        else:
            tables = {name: json.loads(content) for name, content in sections.items()
                      if name == "program" or name.startswith("document:")}  # fmt: skip
            tables["header"] = copy.deepcopy(header)
            names = ["program"] * 6 + ["header", "document:model", "document:model"]
            names += [name for name in tables if name.startswith("document:")]
            name = rng.choice(names)
            place = (name, *damaged_json(rng, tables[name]))
            changed = {n: json.dumps(tables[n]).encode() if n in tables else content
                       for n, content in sections.items()}  # fmt: skip
            write_container(path, tables["header"], changed)
        try:
            exe = gf.load(path)
            exe.report(), exe.decisions(), exe.layouts, exe.explain(exe.inputs[0].name)
            found = exe.run(random_inputs(exe.inputs))
        except GraphflowError as error:
            return f"refused: {str(error)[:90]!r}"
    assert place, "damaged bytes were not noticed"
    same = len(found) == len(expected) and all(
        mine.tobytes() == array.tobytes()
        for mine, array in zip(found.values(), expected.values(), strict=True)
    )
    if not same:
        assert place[:2] == ("program", "run"), f"other results after a change at {place}"
    return f"{'as before' if same else 'other results'} after a change at {place}"


def damaged_json(rng: random.Random, value: Any) -> tuple[Any, ...]:
    """Change one value inside; gives the way to it."""
    way: tuple[Any, ...] = ()
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys:
            return way
        key = rng.choice(list(keys))
        way += (key,)
        inner = value[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.85:
            value = inner
            continue
        match rng.randrange(6):
            case 0:
                del value[key]
            case 1 if isinstance(value, list):
                value.insert(key, copy.deepcopy(inner))
            case 2 if isinstance(value, list):
                other = rng.randrange(len(value))
                value[key], value[other] = value[other], value[key]
            case 3:
                value[key] = rng.choice((None, True, [], {}, "x", 1.5, "constant", [[]]))
            case _ if isinstance(inner, int):
                value[key] = rng.choice((*INTEGERS, inner + 64, inner + 1, -inner, 10**30))
            case _:
                value[key] = rng.choice((*INTEGERS, *TEXTS))
        return way


# The child ----------------------------------------------------------------------------------------

KINDS = {
    "model": try_model,
    "operator": partial(try_model, bases=of_one_operator),
    "saved": try_saved,
}


def main() -> None:
    attempt = KINDS[sys.argv[1]]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        seed = int(line)
        try:
            answer = f"ok {attempt(seed, lambda text, seed=seed: print(seed, text, flush=True))}"
        except Exception:
            answer = f"wrong {traceback.format_exc()!r}"
        print(seed, answer, flush=True)


if __name__ == "__main__":
    main()
