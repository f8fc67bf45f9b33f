"""Random damage to bytes, to fields of models, and to JSON values.

In: a generator and what it damages.  Out: the damaged bytes; JSON values are damaged in place.
What always holds: the same generator does the same damage.
"""

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from graphflow.frontends import OPERATORS

INTEGERS = (
    0, 1, -1, 2, 3, 5, 7, 8, 64, 127, 128, 255, 1000, 65536, 2**31 - 1, 2**31, -(2**31), 2**32,
    2**40, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "nowhere", "\0", "é" * 40, "a" * 300, "../x", "NOTSET", "SAME_UPPER", "linear")


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
        if "TensorProto" in found and rng.random() < 0.15:
            _replace_tensor(rng, rng.choice(found["TensorProto"]))
            continue
        message = rng.choice(found[rng.choice(sorted(found))])
        fields = [f for f in message.DESCRIPTOR.fields if f.name != "doc_string"]
        present = [f for f, _ in message.ListFields()]
        field = rng.choice(present) if present and rng.random() < 0.8 else rng.choice(fields)
        _damage(rng, message, field, names)
    return bytes(model.SerializeToString())


def frozen_inputs(rng: random.Random, content: bytes, feeds: Mapping[str, Any]) -> bytes:
    """Some inputs become constants, with one element changed: what is a number, an extent or a
    position of an operator is then read when the model is compiled."""
    model = onnx.load_from_string(content)
    arrays = {
        n: a for n, a in feeds.items() if isinstance(a, np.ndarray) and a.dtype.kind in "fiub"
    }
    names = [info.name for info in model.graph.input if info.name in arrays]
    chosen = [name for name in names if rng.random() < 0.7] or names[-1:]
    damaged = rng.choice(chosen) if chosen else ""
    for name in chosen:
        array = arrays[name].copy()
        if name == damaged and array.size and array.dtype.kind != "b":
            with np.errstate(all="ignore"):
                array.flat[rng.randrange(array.size)] = _number(rng, array.dtype)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for place in reversed(range(len(model.graph.input))):
        if model.graph.input[place].name in chosen:
            del model.graph.input[place]
    return bytes(model.SerializeToString())


def _number(rng: random.Random, dtype: np.dtype[Any]) -> float:
    if dtype.kind == "f":
        return rng.choice(FLOATS)
    ends = np.iinfo(dtype)
    return rng.choice([n for n in INTEGERS if ends.min <= n <= ends.max])


def _replace_tensor(rng: random.Random, tensor: onnx.TensorProto) -> None:
    """A tensor of another shape or type, whose data fits: a vector for a number, say."""
    try:
        array = numpy_helper.to_array(tensor)
    except Exception:
        return  # damaged before, or in a file of its own
    shape = list(array.shape)
    if shape and rng.random() < 0.5:
        shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 3, 5))
    elif rng.random() < 0.5:
        shape = shape[1:]
    else:
        shape.insert(0, rng.choice((0, 1, 2, 3)))
    if array.dtype.kind in "fiub" and rng.random() < 0.2:
        array = array.astype(rng.choice(("float32", "int64", "int32", "bool")))
    tensor.CopyFrom(numpy_helper.from_array(np.resize(array, shape), tensor.name))


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
        case 0 if field.name == "dims" and rng.random() < 0.3:
            values.extend([1] * rng.choice((8, 30, 70)))  # the same elements, of a high rank
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
    if field.name in ("data_type", "elem_type"):
        return rng.randrange(26)
    if field.name == "version" and rng.random() < 0.8:
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
