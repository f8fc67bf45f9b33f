"""Einstein sums: products of elements that share labels, summed over labels that the result lacks.

In: for each operand its shape and one label for each axis, and the labels of the result.  Out: a
PrimFunc of one stage, which is a reduction if some label is summed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

from graphflow.arith import IndexExpr, Var, const
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import multiply
from graphflow.kernels.definitions.stages import Shape
from graphflow.tir import Buffer, Expr, Load, PrimFunc, ReduceOp


def einsum(
    shapes: Sequence[Shape],
    terms: Sequence[Sequence[str]],
    result: Sequence[str],
    dtype: str = "float32",
) -> PrimFunc:
    """`y[result] = Σ over all other labels of a0[terms[0]] · a1[terms[1]] · …`.

    A label that occurs twice in an operand selects its diagonal; an axis of extent 1 is broadcast
    along its label.  Raises `InvalidModel` if extents differ, or if the result has a label twice or
    one that no operand has.
    """
    extents = label_extents(shapes, terms)
    if len(set(result)) != len(result) or not set(result) <= set(extents):
        raise InvalidModel(f"result labels {list(result)} must be distinct ones of {list(extents)}")
    operands = [Buffer(f"a{k}", shape, dtype) for k, shape in enumerate(shapes)]
    variables = {label: Var(f"i{number}") for number, label in enumerate(extents)}
    y = Buffer("y", tuple(extents[label] for label in result), dtype)
    loops = tuple((variables[label], extents[label]) for label in result)
    summed = tuple((variables[label], n) for label, n in extents.items() if label not in result)

    def element(operand: Buffer, term: Sequence[str]) -> Expr:
        where: list[IndexExpr] = [
            variables[label] if n == extents[label] else const(0)
            for label, n in zip(term, operand.shape, strict=True)
        ]
        return Load(operand, tuple(where))

    value = fold(multiply, map(element, operands, terms))
    if not summed:
        stage = stages.elementwise_stage("einsum", y, loops, value)
    else:
        stage = stages.reduction_stage("einsum", ReduceOp.ADD, y, loops, summed, value)
    return stages.kernel_of_stages("einsum", operands, (y,), (stage,))


def label_extents(shapes: Sequence[Shape], terms: Sequence[Sequence[str]]) -> dict[str, int]:
    """The extent of each label, in order of first occurrence in the terms."""
    extents: dict[str, int] = {}
    for shape, term in zip(shapes, terms, strict=True):
        if len(shape) != len(term):
            raise InvalidModel(f"labels {list(term)} do not fit an operand of shape {shape}")
        for label, extent in zip(term, shape, strict=True):
            known = extents.setdefault(label, extent)
            if known == 1:
                extents[label] = extent
            elif extent not in (1, known):
                raise InvalidModel(f"label {label} has extent {known} and extent {extent}")
    return extents
