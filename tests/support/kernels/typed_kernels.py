"""Random kernels of one element type whose later stores often store what is there already.

In: a function that draws numbers, an element type, and another one that values are cast from.
Out: a kernel whose stores repeat earlier ones as they are, or written in another way: operands
exchanged, a zero added, negated twice, cast to the other type and back.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self

import numpy as np

from graphflow import tir
from graphflow.arith import Var, Verdict
from graphflow.base.dtypes import DTYPES, FLOATS, integer_limits
from graphflow.effects import rewrite_path, stores_known_value
from graphflow.tir import Store, interpret, to_text
from support.kernels.effect_kernels import EffectKernel, each_path
from support.kernels.random_kernels import SPECIAL_FLOATS, KernelOptions, Number
from support.native import Array

TYPES = ("float32", "float64", "int8", "uint8", "int16", "int32", "uint64", "int64")


def numbers_of(dtype: str) -> tuple[Any, ...]:
    """Numbers at which arithmetic of a type is special."""
    if dtype in FLOATS:
        return SPECIAL_FLOATS
    low, high = integer_limits(dtype)
    return (0, 1, 2, 3, low, high, high - 1, max(low, -1), max(low, -3))


def typed_arrays(func: tir.PrimFunc, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Special numbers for every parameter."""
    return {
        b.name: np.array(
            [rng.choice(np.array(numbers_of(b.dtype), object)) for _ in range(b.size)],
            DTYPES[b.dtype],
        ).reshape(b.shape)
        for b in (param.buffer for param in func.params)
    }


@dataclass
class TypedKernel(EffectKernel):
    """Parameters x, y and t of one type, and z of another one."""

    stored: list[tuple[tir.Store, tuple[Var, ...]]] = field(default_factory=list)

    @classmethod
    def between(cls, number: Number, data_conditions: bool, dtype: str, other: str) -> Self:
        binary = ("add", "sub", "mul", "max", "min")
        options = KernelOptions(
            "definition",
            (dtype, other),
            ("neg", "abs"),
            binary,
            borders=False,
            data_conditions=data_conditions,
        )
        return cls(number, options)

    def func(self) -> tir.PrimFunc:
        x, y, t = (self.buffer(name) for name in "xyt")
        z = tir.Buffer("z", self.shape(), self.options.dtypes[1])
        self.readable = [z, x, y, t]
        body = [stmt for _ in range(self.number(1, 3)) for stmt in self.statements_in_loops()]
        roles = {z: tir.Role.INPUT, x: tir.Role.INPUT, y: tir.Role.INOUT, t: tir.Role.INOUT}
        params = tuple(tir.Param(buffer, role) for buffer, role in roles.items())
        return tir.PrimFunc("kernel", params, tuple(body))

    def allocated(self, name: str) -> tir.Body:
        return ()

    def write(self) -> tir.Stmt:
        around = tuple(self.ranges)
        if self.stored and self.chance(60):
            store, names = self.one_of(self.stored)
            if len(names) <= len(around):
                return self.again(store, dict(zip(names, around, strict=False)))
        target = self.load(self.one_of(self.readable[2:]))
        value = self.expr(target.dtype)
        if self.chance(12):
            op = self.one_of((tir.ReduceOp.ADD, tir.ReduceOp.MAX))
            return tir.Reduce(op, target.buffer, target.indices, value)
        self.stored.append((tir.Store(target.buffer, target.indices, value), around))
        return self.stored[-1][0]

    def again(self, store: tir.Store, names: Mapping[Var, Var]) -> tir.Store:
        (new,) = tir.substitute_body((store,), dict(names))
        assert isinstance(new, tir.Store)
        inside = tuple(i % n for i, n in zip(new.indices, new.buffer.shape, strict=True))
        return tir.Store(new.buffer, inside, self.rewritten(new.value))

    def rewritten(self, value: tir.Expr) -> tir.Expr:
        """The value in another way, which may be another value."""
        dtype, other = self.options.dtypes
        constant = self.literal(dtype)
        match self.number(0, 8), value:
            case 0, tir.Binary(op, left, right):
                return tir.Binary(op, right, left)
            case 1, _:
                return tir.Binary("add", value, constant)
            case 2, _:
                return tir.Unary("neg", tir.Unary("neg", value))
            case 3, _ if dtype not in FLOATS or other in FLOATS:
                return tir.Cast(tir.Cast(value, other), dtype)
            case 4, _:
                return tir.Binary("sub", tir.Binary("add", value, constant), constant)
            case 5, tir.Binary(op, left, right):
                return tir.Binary(op, self.rewritten(left), right)
            case 6, tir.Literal():
                return constant
            case _:
                return value

    def literal(self, dtype: str) -> tir.Literal:
        return tir.Literal(self.one_of(numbers_of(dtype)), dtype)


def check_typed(seed: int) -> Counter[Verdict]:
    """The answers about the stores of a random kernel, of which the proven ones are brute-forced.

    Without a store that is proven to store what is there, outputs are the same bits.
    """
    random = Random(seed)
    dtype, other = TYPES[seed % len(TYPES)], random.choice(TYPES)
    func = TypedKernel.between(random.randint, seed % 2 == 0, dtype, other).func()
    found: Counter[Verdict] = Counter()
    for path, stmt in each_path(func.body):
        if not isinstance(stmt, Store):
            continue
        proof = stores_known_value(func, path)
        found[proof.verdict] += 1
        if not proof.proven:
            continue
        less = rewrite_path(func, path, lambda body, k, _d: (*body[:k], *body[k + 1 :]))
        rng = np.random.default_rng(seed)
        for _ in range(4):
            arrays = typed_arrays(func, rng)
            both = (bits(interpret(f, arrays, undefined=5.0)) for f in (func, less))
            assert next(both) == next(both), f"seed {seed}, {path}\n{to_text(func)}\n{proof}"
    return found


def bits(arrays: Mapping[str, Array]) -> dict[str, bytes]:
    """The bytes of each array, with one NaN for all."""
    return {
        name: (np.where(a == a, a, np.array(np.nan, a.dtype)) if a.dtype.kind == "f" else a)
        .tobytes()
        for name, a in arrays.items()
    }  # fmt: skip
