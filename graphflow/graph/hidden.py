"""Guards and trims: what each run checks in integer tensors, and how it cuts outputs.

In: a graph under construction.  Out: `ValueGuard`s and `OutputTrim`s of an `OperatorGraph`.  What
always holds: the tensors that they read are inputs that hold sizes, or graph outputs, hidden behind
the model's own, so that every stage computes them and none renames or removes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.errors import VerifyError, outside_interval
from graphflow.base.sizes import Size, SizeFormula
from graphflow.graph.value import Value


class ValueGuard(Struct, frozen=True):
    """A check after each run: every element of the integer tensor `value` is from `lo` to `hi`.

    `subject` is the beginning of the error, for example `Gather node g: the largest index in tensor
    ids`; the error continues with ` is 9, and has to be from -4 to 3`.
    """

    value: str
    lo: int
    hi: int
    subject: str

    def violation(self, array: NDArray[Any]) -> str | None:
        """What is wrong with these contents of `value`, as text; None if nothing is."""
        outside = array[(array < self.lo) | (array > self.hi)]
        if not outside.size:
            return None
        return outside_interval(self.subject, outside[0], self.lo, self.hi)

    def check(self, values: Mapping[str, Value]) -> None:
        """Raise VerifyError where the guard does not fit the values of a graph."""
        _require_integers(f"the guard {self.subject!r}", self.value, values)
        if self.lo > self.hi:
            raise VerifyError(
                f"the guard {self.subject!r} on {self.value} allows nothing: "
                f"{self.lo} exceeds {self.hi}"
            )


class SizeInput(Struct, frozen=True):
    """A size of the graph: the tensor that holds its value in a run, and where a run has it from.

    `tensor` is a graph input behind the model's own: a run gives it the common extent of `axes`,
    pairs of an input and an axis, and the only element of the integer input `element`, if there is
    one.  The graph has room for `size.hi` elements along each of the axes.
    """

    size: Size
    tensor: str
    axes: tuple[tuple[str, int], ...]
    element: str | None = None


class DerivedSize(Struct, frozen=True):
    """A size that is computed from sizes: the tensor that holds its value in a run, and how.

    `tensor` is a graph input behind those of its `operands`, the tensors of other sizes: a run
    computes its value before the first node.  It is within the bounds of `size` in every run that
    satisfies the relations of the graph.
    """

    size: Size
    tensor: str
    formula: SizeFormula
    operands: tuple[str, ...]


class OutputTrim(Struct, frozen=True):
    """A cut after each run: the first n elements of `output` along `axis` are returned.

    n is element `element`, in row-major order, of the integer tensor `extents`; it has to be from 0
    to the extent of `output` in the graph, which is its bound.
    """

    output: str
    axis: int
    extents: str
    element: int = 0

    def check(self, values: Mapping[str, Value], results: tuple[str, ...]) -> None:
        """Raise VerifyError where the trim does not fit a graph with these results."""
        what = f"the trimmed output {self.output}"
        if self.output not in results:
            raise VerifyError(f"{what} is not an output of the model; only outputs can be trimmed")
        rank = len(values[self.output].shape)
        if not 0 <= self.axis < rank:
            raise VerifyError(f"{what} has no axis {self.axis}, its rank is {rank}")
        _require_integers(what, self.extents, values)
        if not 0 <= self.element < values[self.extents].size:
            raise VerifyError(f"{what}: {self.extents} has no element {self.element}")


def _require_integers(what: str, name: str, values: Mapping[str, Value]) -> None:
    if name not in values:
        raise VerifyError(f"{what} reads {name}, which is not a value of the graph")
    if np.dtype(values[name].dtype).kind not in "iu":
        raise VerifyError(f"{what} reads {name}, which is {values[name].dtype} and not integers")


class PackedResult(Struct, frozen=True):
    """An output of the model that is a sequence or an optional: the outputs of the graph that are
    its tensors, in order.

    If it `is_list`, a run returns a list of them; else the only one, or None if there is none.
    """

    name: str
    tensors: tuple[str, ...]
    is_list: bool
    place: int
    """Its position among the outputs of the model."""
