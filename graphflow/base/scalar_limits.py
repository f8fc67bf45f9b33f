"""What a program requires of the integers that a run gives it, and their check in a run.

In: conditions on integers, as the text that the compiler prints for a predicate.  Out:
`ScalarLimits`, which knows nothing of the compiler, so that a saved model keeps and checks them
too.  What always holds: values are compared exactly, as Python's integers.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.base.errors import InvalidModel
from graphflow.base.plain import listed, mapping, text


@dataclass(frozen=True, slots=True)
class ScalarLimits:
    """What the kernel `kernel` assumes of its scalars: all of `conditions`.

    `inputs` has the input of the program that gives each scalar, by name: `(scalar, input)`.
    Conditions are texts over the names of the scalars, such as `n + 2*m <= 16 and n % 4 == 0`.
    Raises ValueError for a condition that is no such text.
    """

    kernel: str
    inputs: tuple[tuple[str, str], ...]
    conditions: tuple[str, ...]

    def __post_init__(self) -> None:
        for condition in self.conditions:
            _holds(condition, {scalar: 0 for scalar, _ in self.inputs})

    def given(self, inputs: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """The scalars of a run as int64, by the names of the program's inputs.

        Inputs that a run lacks are left out, for the program to refuse.  Raises InvalidModel for
        a value that is no single integer, and for one that a condition does not hold for.
        """
        known = {s: _integer(name, inputs[name]) for s, name in self.inputs if name in inputs}
        if len(known) == len(self.inputs):
            self._require(known)
        return {name: np.array(known[s], "int64") for s, name in self.inputs if s in known}

    def _require(self, values: Mapping[str, int]) -> None:
        for condition in self.conditions:
            if not _holds(condition, values):
                used = _names(condition)
                which = ", ".join(
                    f"{scalar} is {values[scalar]}"
                    + ("" if scalar == name else f" (input {name!r})")
                    for scalar, name in self.inputs
                    if scalar in used
                )
                raise InvalidModel(
                    f"{self.kernel} assumes {condition}, and {which}; give other values, or build "
                    "the kernel without this assumption"
                )

    def plain(self) -> list[Any]:
        """The limits as plain values, which `from_plain` reads."""
        return [self.kernel, dict(self.inputs), list(self.conditions)]

    @staticmethod
    def from_plain(plain: Any) -> ScalarLimits:
        """The limits that `plain` returned these values for; ValueError for other values."""
        kernel, inputs, conditions = listed(plain, 3)
        pairs = tuple((text(scalar), text(name)) for scalar, name in mapping(inputs).items())
        return ScalarLimits(text(kernel), pairs, tuple(text(c) for c in listed(conditions)))


def _integer(name: str, value: ArrayLike) -> int:
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "iu":
        raise InvalidModel(
            f"input {name!r} is {array.dtype}{list(array.shape)}, the program expects an integer"
        )
    number = index(array.item())
    if not -(2**63) <= number < 2**63:
        raise InvalidModel(f"input {name!r} is {number}, the program expects an int64")
    return number


def _names(condition: str) -> set[str]:
    return {node.id for node in ast.walk(_parsed(condition)) if isinstance(node, ast.Name)}


def _parsed(condition: str) -> ast.expr:
    try:
        return ast.parse(condition, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{condition!r:.100} is no condition") from error


def _holds(condition: str, values: Mapping[str, int]) -> bool:
    return bool(_value(_parsed(condition), values))


def _value(node: ast.expr, values: Mapping[str, int]) -> int:
    """The value of an expression; conditions have 0 and 1.  ValueError outside the grammar."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case ast.BoolOp(op=ast.And(), values=members):
            found = [_value(member, values) for member in members]
            return all(found)
        case ast.BoolOp(op=ast.Or(), values=members):
            found = [_value(member, values) for member in members]
            return any(found)
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(op, _value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id="min"), args=[_, *_] as args, keywords=[]):
            return min([_value(arg, values) for arg in args])
        case ast.Call(func=ast.Name(id="max"), args=[_, *_] as args, keywords=[]):
            return max([_value(arg, values) for arg in args])
        case ast.Compare():
            sides = [_value(side, values) for side in (node.left, *node.comparators)]
            compared = zip(node.ops, pairwise(sides), strict=True)
            found = [_compared(op, a, b) for op, (a, b) in compared]
            return all(found)
    raise ValueError(f"{ast.unparse(node)!r:.100} is no condition on {', '.join(values)}")


def _combined(op: ast.operator, left: int, right: int) -> int:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv() if right > 0:
            return left // right
        case ast.Mod() if right > 0:
            return left % right
    raise ValueError(f"no integer is made by {type(op).__name__} of {left} and {right}")


def _compared(op: ast.cmpop, left: int, right: int) -> bool:
    match op:
        case ast.Lt():
            return left < right
        case ast.LtE():
            return left <= right
        case ast.Gt():
            return left > right
        case ast.GtE():
            return left >= right
        case ast.Eq():
            return left == right
        case ast.NotEq():
            return left != right
    raise ValueError(f"integers are not compared by {type(op).__name__}")
