"""A process that compiles and runs damaged models, and reports each outcome to its parent.

`python -m support.mutants.mutants KIND` says that it is ready, reads one seed per line from stdin,
and answers each with a line: `SEED ok TEXT` or `SEED wrong TEXT`.  Before it gives a model to
onnxruntime for comparison it
prints `SEED peer`, so that a crash of onnxruntime does not count as one of graphflow.  The memory
of the process is limited.  Models of odd seeds are compiled without a fallback.  `KIND.peer` gives
the models to onnxruntime alone, and so tells whether onnxruntime crashes on a model.
"""

import os
import random
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import graphflow as gf
from graphflow.api.executable import Executable
from graphflow.base.dtypes import FLOATING
from graphflow.base.errors import GraphflowError
from graphflow.frontends import read_model
from graphflow.program import OpenTensor, random_inputs
from support.fuzz.fuzz_process import READY
from support.mutants.mutant_files import try_saved
from support.mutants.mutant_models import Base, built, of_one_operator, with_sections
from support.mutants.mutations import (
    INTEGERS,
    damaged_bytes,
    damaged_fields,
    frozen_inputs,
    messages,
)

MEMORY = 4 << 30
"""Bytes of private memory; address space is no measure, as LLVM and numpy reserve much of it."""

LARGEST_COMPARED = 1e4
"""Sums of weights beyond it differ by their order."""

LARGEST_INPUT = 1 << 24
"""Elements of an input beyond which a mutant is not run."""

TOLERANCES = {"float16": 2e-2, "bfloat16": 1e-1}
"""Relative and absolute; 1e-3 for other types."""

RANDOM = {
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip


def mutant(seed: int, bases: Sequence[Base], folder: Path) -> tuple[Base, bytes | Path]:
    """A base and what `seed` makes of it; a model with external data is a file in `folder`."""
    rng = random.Random(seed)
    base = rng.choice(bases)
    if rng.random() < 0.15:
        return base, _external(rng, base.content, folder)
    if base.feeds and rng.random() < 0.2:
        return base, frozen_inputs(rng, base.content, base.feeds)
    damage = damaged_bytes if rng.random() < 0.3 else damaged_fields
    return base, damage(rng, base.content)


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


# What a model may end in --------------------------------------------------------------------------


def try_model(
    seed: int, say: Callable[[str], None], bases: Callable[[], Sequence[Base]] = built
) -> str:
    """How a mutant ended; an exception other than a GraphflowError passes."""
    fallback = None if seed % 2 else "onnxruntime"
    options = gf.Options(threads=1, workers=0, fallback=fallback)
    with tempfile.TemporaryDirectory() as folder:
        base, model = mutant(seed, bases(), Path(folder))
        try:
            exe = gf.compile(model, options=options)
            feeds = _feeds(base, _described(exe))
            if feeds is None:
                return "compiled; the inputs are too large to run"
            _damage_integer(random.Random(f"inputs of {seed}"), feeds)
            found = exe.run(feeds)
        except GraphflowError as error:
            if not str(error).strip():
                raise AssertionError("an error without a message") from error
            return f"refused: {str(error)[:90]!r}"
        say("peer")
        try:
            return _compared(model, feeds, found)
        except AssertionError:
            if not _departs(base):
                raise
            return "other than the peer, which is not as ONNX says even where nothing is damaged"


def try_peer(
    seed: int, say: Callable[[str], None], bases: Callable[[], Sequence[Base]] = built
) -> str:
    """How onnxruntime alone ended."""
    with tempfile.TemporaryDirectory() as folder:
        base, model = mutant(seed, bases(), Path(folder))
        try:
            session = _session(model)
            kinds = {tensor.name: tensor.type for tensor in session.get_inputs()}
            feeds = _feeds(base, [
                (t.name, _dtype_of(kinds[t.name]), t.shape) for t in session.get_inputs()
            ])  # fmt: skip
            if feeds is not None:
                session.run(None, feeds)
        except Exception as error:
            return f"refused: {str(error)[:90]!r}"
    return "ran"


_DTYPES = {"float": "float32", "double": "float64", "string": "object"}


def _dtype_of(kind: str) -> str:
    """Numpy's name for onnxruntime's `tensor(float)`; other types as they are."""
    inner = kind.removeprefix("tensor(").removesuffix(")")
    return _DTYPES.get(inner, inner) if kind.startswith("tensor(") else kind


def _described(exe: Executable) -> list[tuple[str, str, Sequence[Any] | None]]:
    """Name, dtype and shape of all that a run takes."""
    found: list[tuple[str, str, Sequence[Any] | None]] = [
        (tensor.name, tensor.dtype, tensor.shape) for tensor in exe.inputs
    ]
    if not exe.deciding:
        found += [(o.name, _dtype_of(o.type), None) for o in exe.program.spec.objects_in]
    return found


def _feeds(
    base: Base, wanted: Sequence[tuple[str, str, Sequence[Any] | None]]
) -> dict[str, Any] | None:
    """The inputs of the base where they fit, and random ones; None where they are too large."""
    feeds: dict[str, Any] = {}
    for name, dtype, shape in wanted:
        given = base.feeds.get(name)
        if given is not None and _fits(given, dtype, shape):
            feeds[name] = given
            continue
        known = (2, 3) if shape is None else [n if isinstance(n, int) else 3 for n in shape]
        if int(np.prod([float(n) for n in known])) > LARGEST_INPUT:
            return None
        if dtype in ("object", "tensor of strings"):
            feeds[name] = np.full(known, "a", dtype=object)
        elif dtype in _NUMBERS or dtype in FLOATING:
            feeds |= random_inputs([OpenTensor(name, dtype, tuple(known))], seed=len(feeds))
        else:
            feeds[name] = [np.ones((2, 3), np.float32)]
    return feeds


def _damage_integer(rng: random.Random, feeds: dict[str, Any]) -> None:
    """Sometimes another element in an integer input: an index, an extent, a length."""
    arrays = {name: array for name, array in feeds.items() if isinstance(array, np.ndarray)}
    names = [name for name, array in arrays.items() if array.dtype.kind in "iu" and array.size]
    if not names or rng.random() < 0.8:
        return
    name = rng.choice(names)
    array = arrays[name].copy()
    ends = np.iinfo(array.dtype)
    values = [n for n in INTEGERS if ends.min <= n <= ends.max]
    array.flat[rng.randrange(array.size)] = rng.choice(values)
    feeds[name] = array


_NUMBERS = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def _fits(given: Any, dtype: str, shape: Sequence[Any] | None) -> bool:
    if not isinstance(given, np.ndarray):
        return True
    return shape is None or (
        given.dtype.name == dtype
        and len(shape) == given.ndim
        and all(not isinstance(n, int) or n == m for n, m in zip(shape, given.shape, strict=True))
    )


# Comparing with onnxruntime -----------------------------------------------------------------------


def _session(model: bytes | Path) -> onnxruntime.InferenceSession:
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])


def _compared(model: bytes | Path, feeds: dict[str, Any], found: Mapping[str, Any]) -> str:
    try:
        session = _session(model)
        names = [output.name for output in session.get_outputs()]
        expected = dict(zip(names, session.run(None, feeds), strict=True))
    except Exception as error:
        return f"ran, and onnxruntime refuses: {str(error)[:90]!r}"
    assert list(found) == list(dict.fromkeys(names)), f"outputs {list(found)}, peer {names}"
    proto = read_model(model)
    with_numbers = _tame(proto) and not _is_random(proto)
    if not with_numbers and any(node.op_type == "Unique" for node in proto.graph.node):
        return "ran, and onnxruntime's Unique takes NaN for equal to its neighbours"
    for name, value in expected.items():
        _require_same(name, found[name], value, with_numbers)
    return "as the peer"


def _require_same(name: str, mine: Any, peer: Any, with_numbers: bool) -> None:
    """AssertionError where a tensor, a sequence or an optional differs."""
    if peer is None or isinstance(peer, list | dict):
        assert type(mine) is type(peer), f"{name} is a {type(mine)}, peer {type(peer)}"
        if isinstance(peer, list):
            assert len(mine) == len(peer), f"{name} has {len(mine)} elements, peer {len(peer)}"
            for element, other in zip(mine, peer, strict=True):
                _require_same(name, element, other, with_numbers)
        return
    mine, peer = np.asarray(mine), np.asarray(peer)
    assert mine.shape == peer.shape and mine.dtype == peer.dtype, (
        f"{name} is {mine.dtype}{mine.shape}, peer {peer.dtype}{peer.shape}"
    )
    if not with_numbers:
        return
    if peer.dtype.kind not in "fc":
        np.testing.assert_array_equal(mine, peer, err_msg=name)
    elif np.isfinite(peer).all():
        near = TOLERANCES.get(peer.dtype.name, 1e-3)
        np.testing.assert_allclose(mine, peer, rtol=near, atol=near, err_msg=name)


def _tame(proto: onnx.ModelProto) -> bool:
    """Whether all weights are finite and small, so that the order of sums hardly matters."""
    arrays = [numpy_helper.to_array(tensor) for tensor in proto.graph.initializer]
    floats = [array for array in arrays if array.dtype.kind == "f"]
    return all(bool((np.abs(array) < LARGEST_COMPARED).all()) for array in floats)


def _is_random(proto: onnx.ModelProto) -> bool:
    return any(getattr(message, "op_type", "") in RANDOM for message in messages(proto))


def _departs(base: Base) -> bool:
    """Whether onnxruntime does not give what ONNX states for the undamaged model."""
    if not base.expected:
        return False
    try:
        results = _session(base.content).run(None, dict(base.feeds))
    except Exception:
        return True
    try:
        for value, stated in zip(results, base.expected, strict=True):
            _require_same("", stated, value, with_numbers=True)
    except AssertionError:
        return True
    return False


# The child ----------------------------------------------------------------------------------------

KINDS: Mapping[str, Callable[[int, Callable[[str], None]], str]] = {
    "model": try_model,
    "model.peer": try_peer,
    "operator": partial(try_model, bases=of_one_operator),
    "operator.peer": partial(try_peer, bases=of_one_operator),
    "section": partial(try_model, bases=with_sections),
    "section.peer": partial(try_peer, bases=with_sections),
    "saved": try_saved,
}


def main() -> None:
    attempt = KINDS[sys.argv[1]]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What native code prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(seed: int, text: str) -> None:
        print(seed, text, file=answers, flush=True)

    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        seed = int(line)
        try:
            answer = f"ok {attempt(seed, partial(say, seed))}"
        except Exception:
            answer = f"wrong {traceback.format_exc()!r}"
        say(seed, answer)


if __name__ == "__main__":
    main()
