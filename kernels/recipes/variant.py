"""What one possible variant of a kernel claims, before it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from graphflow.cost import Tiling, Work
from graphflow.layout import Demand, Layout
from graphflow.schedule import Refusal
from graphflow.tir import PrimFunc


class Padding(Enum):
    """What a variant leaves in the padding of its output.

    KEPT: what was there; it cannot write there.  NONE: likewise, unless it is told to write a
    constant, as all others can be.  UNDEF: anything.  EVALUATED: what its own expression gives for
    the padding of its inputs, because it runs over the padding as over everything else.
    """

    KEPT = "kept"
    NONE = "none"
    UNDEF = "undef"
    EVALUATED = "evaluated"


@dataclass(frozen=True, slots=True)
class Tiled:
    """Made by the register tile.

    `finite` and `reciprocal` are inputs of which the recipe states what `Known` says.  `group` is
    the number of channels that read the same part of the input, where that is less than all: tiles
    stay within a group, and one group computes `group_rows` rows of an image before the next one
    does, or all (0).  `registers` is the physical axis of the output of which a tile holds some
    neighbours in registers, where that is not the one before the lanes.
    """

    tiling: Tiling
    finite: tuple[str, ...] = ()
    reciprocal: tuple[str, ...] = ()
    group: int = 0
    group_rows: int = 0
    registers: int | None = None

    @property
    def rests_on(self) -> frozenset[str]:
        """The inputs of whose contents something is stated."""
        return frozenset((*self.finite, *self.reciprocal))


@dataclass(frozen=True, slots=True)
class Staged:
    """Made stage by stage, each nest in its own order, the innermost loop in lanes where it may."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A copy across the order of its source: as `Staged`, but in blocks that registers hold."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Made by a user: a kernel with marked stages, which are lifted out.

    `finite` are inputs that it assumes to hold finite numbers.
    """

    kernel: PrimFunc
    finite: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Foreign:
    """Made by no recipe: what the definition names as its callee computes the outputs."""


@dataclass(frozen=True, slots=True)
class Link:
    """Where one tensor lies inside another one; as a label it keeps the layout it has by itself.

    `window` is its layout in the other's box, where it is a box there; `offset` the element of the
    other's box at which its own begins, where it lies there in one piece.  One of them is known.
    """

    input: str
    window: Layout | None
    offset: int | None


@dataclass(frozen=True, slots=True)
class View:
    """Not executed: the inputs lie inside the output, or if it is `outward`, it inside its input.

    There is a link for each input.
    """

    links: tuple[Link, ...]
    outward: bool = False


Recipe: TypeAlias = Tiled | Staged | Crossing | Scheduled | Foreign | View


@dataclass(frozen=True, slots=True)
class RefusedVariant:
    """A variant that a kernel does not have: what it would have been, and why it cannot be made."""

    variant: str
    reason: Refusal


@dataclass(frozen=True)
class KernelVariant:
    """One possible variant of a kernel: claims that flow decides by, and the recipe that keeps
    them.

    `layouts` names a layout for every parameter; `private` are constant inputs whose layout is the
    recipe's own business.  `demands` says what is needed of the padding of an input, for inputs of
    which anything is; the others' padding is never relied upon.
    """

    name: str
    layouts: Mapping[str, Layout]
    private: frozenset[str]
    demands: Mapping[str, Demand]
    padding: Padding
    recipe: Recipe
    work: Work
    vectorized: bool
