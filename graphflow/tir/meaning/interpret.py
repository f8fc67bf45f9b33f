"""The reference meaning of a kernel: it runs, slowly and exactly, and checks what it does.

In: a `PrimFunc` that `verify` accepts, and an array for each input.  Out: an array for each output.
All loops run serially.  Always: an access outside its buffer and a false `Assume` raise
`VerifyError` with the loop values at which they happen.

Reductions are added up in program order.  Float to integer casts of values that do not fit are
numpy's; no kernel may rely on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphflow.arith import Var
from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import InvalidModel, VerifyError
from graphflow.tir.meaning.operators import undefined_value
from graphflow.tir.meaning.to_python import compile_to_python
from graphflow.tir.nodes import declared, exprs, stmts

Array: TypeAlias = npt.NDArray[Any]


def interpret(
    func: stmts.PrimFunc,
    arrays: Mapping[str, Array],
    *,
    undefined: float = float("nan"),
    reverse: bool = False,
    scalars: Mapping[str, int] | None = None,
    state: MutableMapping[str, Any] | None = None,
) -> dict[str, Array]:
    """The outputs of `func` by name, for inputs given by name with their exact shape and dtype.

    Parameters that are both are given and returned.

    `undefined` is what memory that was never written holds and what `Undef` evaluates to; an
    integer type that cannot hold it takes an extreme value instead.  `reverse` runs parallel and
    vectorized loops from the last iteration to the first, which shows most dependences that such
    loops must not have.  `scalars` are the values of the kernel's scalars by name.  `state` holds
    the fields of configuration state by name, such as `mode.act`; the kernel reads and changes it,
    and a field that is not in it is undefined.

    Raises `InvalidModel` for arrays and scalars that do not fit, `VerifyError` for a kernel with a
    `callee`.
    """
    if func.callee is not None:
        raise VerifyError(f"{func.name} has no statements to interpret: {func.callee} computes it")
    given = [p.buffer for p in func.params if p.role is not stmts.Role.OUTPUT]
    memory = {b: _input(func, b, arrays) for b in given}
    unknown = [name for name in arrays if all(name != b.name for b in given)]
    if unknown:
        raise InvalidModel(f"{func.name} has no input called {', '.join(unknown)}")
    for buffer in func.outputs:
        memory.setdefault(buffer, [undefined_value(buffer.dtype, undefined)] * buffer.size)
    state = {} if state is None else state
    values = _scalars(func, scalars or {})
    run, fields = _compiled(func, float(undefined).hex(), reverse, tuple(values.items()))
    for field in fields:
        value = undefined_value(field.dtype, undefined)
        memory[field] = [DTYPES[field.dtype].type(state.get(field.name, value))]
    with np.errstate(all="ignore"):
        run(*values.values(), *(memory[b] for b in (*(p.buffer for p in func.params), *fields)))
    state.update({field.name: memory[field][0] for field in fields})
    return {
        b.name: np.array(memory[b], dtype=DTYPES[b.dtype]).reshape(b.shape) for b in func.outputs
    }


def _scalars(func: stmts.PrimFunc, given: Mapping[str, int]) -> dict[Var, int]:
    names = [var.name for var in func.scalars]
    if sorted(names) != sorted(given):
        wanted, got = ", ".join(names) or "none", ", ".join(given) or "none"
        raise InvalidModel(f"{func.name} has the scalars {wanted}, but got {got}")
    return {var: int(given[var.name]) for var in func.scalars}


@lru_cache(maxsize=64)
def _compiled(
    func: stmts.PrimFunc, undefined: str, reverse: bool, scalars: tuple[tuple[Var, int], ...]
) -> tuple[Callable[..., None], tuple[exprs.Buffer, ...]]:
    """A kernel as a function, and the fields of configuration state that it uses.

    Both are kept: networks repeat the same few kernels to compute constants, and comparisons run
    one kernel on several inputs.  Translating takes longer than most runs.

    `undefined` is in hexadecimal, which tells zeros apart by their signs, and where NaN equals NaN.
    """
    free = {var: (value, value) for var, value in scalars}
    number = float.fromhex(undefined)
    run = compile_to_python(func, undefined=number, reverse=reverse, free=free)
    return run, declared.fields_of(func)


def _input(func: stmts.PrimFunc, buffer: exprs.Buffer, arrays: Mapping[str, Array]) -> list[Any]:
    if buffer.name not in arrays:
        raise InvalidModel(f"{func.name} needs an array for its input {buffer.name}")
    array = arrays[buffer.name]
    if array.shape != buffer.shape or array.dtype != DTYPES[buffer.dtype]:
        raise InvalidModel(
            f"{func.name}: input {buffer.name} is {buffer.dtype} of shape {buffer.shape}, "
            f"but got {array.dtype} of shape {array.shape}"
        )
    return list(array.reshape(-1))
