"""What a program takes and returns: tensors, lists of them, and what each run checks of results.

In: names, element types, shapes.  Out: frozen data.  What always holds: a `TensorSpec` is numeric,
and its extents are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct

from graphflow.base.dtypes import STORED
from graphflow.base.errors import VerifyError
from graphflow.base.fields import Signed
from graphflow.foreign import Section

_KINDS = "biufc"


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether tensors may have this dtype; numpy's kinds do not cover the dtypes of `ml_dtypes`."""
    return dtype.kind in _KINDS or dtype.name in STORED


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A graph input or output: name, numpy's name of the element type, logical shape (row-major).

    Raises VerifyError for a dtype that is not numeric and for a negative extent.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            known = is_numeric(np.dtype(self.dtype))
        except TypeError:
            known = False
        if not known:
            raise VerifyError(f"tensor {self.name!r}: {self.dtype!r} is not a numeric dtype")
        if any(extent < 0 for extent in self.shape):
            raise VerifyError(f"tensor {self.name!r}: negative extent in shape {self.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of the row-major tensor."""
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class OpenTensor(Struct, frozen=True):
    """An input or output of a model whose shape is not fully known.

    An extent is a number, the model's name for it, or `?`.  `shape` is None if not even the rank is
    known.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        extents = "…" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{extents}]"

    @property
    def is_number(self) -> bool:
        """Whether it is a tensor of numbers; objects that are no tensors have the dtype `?`."""
        try:
            dtype = np.dtype(self.dtype)
            # "?" says that the type is not known, and is numpy's letter for bool.
            return dtype.kind in _KINDS and dtype.name == self.dtype
        except TypeError:
            return False


class GuardedOutput(Struct, frozen=True):
    """A check after each run: every element of output number `output` is from `lo` to `hi`.

    `subject` is the beginning of the error; it names the tensor and the node that needs the check.
    """

    output: int
    lo: Signed
    hi: Signed
    subject: str


class TrimmedOutput(Struct, frozen=True):
    """Output number `output` is trimmed after each run, to the first n elements along `axis`.

    n is element `element`, in row-major order, of output number `extents`; if `is_size`, it is the
    size that input number `extents` holds, which is known before the run.
    """

    output: int
    axis: int
    extents: int
    element: int = 0
    is_size: bool = False


class PackedOutput(Struct, frozen=True):
    """An output of the model, in its place, that is a list of tensors, or an optional one.

    `outputs` are the numbers of its tensors among the outputs.  If it `is_list`, a run returns a
    list of them; else the only one, or None if there is none.
    """

    name: str
    place: int
    outputs: tuple[int, ...]
    is_list: bool


class SectionSpec(Struct, frozen=True):
    """A foreign section of the program, which the steps with its name as their symbol run.

    `tensors` are the buffers of these steps: the inputs of the section, then its outputs.
    """

    section: Section
    tensors: tuple[TensorSpec, ...]

    @property
    def name(self) -> str:
        """The symbol of the steps that call it."""
        return self.section.name
