"""What a candidate requires of its operands: layout, padding, and the memory that they are in.

In: a variant and the values bound to it.  Out: `OperandRequirement`s, and the weakest edge type
that satisfies one.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from graphflow.graph import Value
from graphflow.layout import (
    Demand,
    Equal,
    Fact,
    Family,
    Layout,
    Undefined,
    Unused,
    fact_of,
    row_major,
)
from graphflow.plan import EdgeType, edge_type_of

UNUSED = Unused()
"""The demand of a reader that accepts any padding."""


class InputAliasing(Enum):
    """Which memory a reader requires an operand to be in.

    - ANYWHERE: any storage.
    - CONTIGUOUS: any storage, in which the operand is one contiguous piece; what knows no strides
      requires this.
    - COPIED: a copy, in one contiguous piece, whatever memory the operand is in.
    - OWN_STORAGE: a storage that no other tensor shares; the caller requires this of graph outputs.
    - INSIDE_OUTPUT: a box inside the reader's output (an input of a concat).
    - INSIDE_OUTPUT_CONTIGUOUS: likewise, as one contiguous piece of it.
    - HOLDS_OUTPUT: any storage; the reader's output is a box inside the operand (slice, split).
    - HOLDS_OUTPUT_CONTIGUOUS: likewise, and the operand itself must be one contiguous piece.
    - UNMOVED: none; the reader reads the tensors that the operand's elements are moved from.

    The texts are what messages and reports show.
    """

    ANYWHERE = "anywhere"
    CONTIGUOUS = "one piece"
    COPIED = "copied"
    OWN_STORAGE = "own"
    INSIDE_OUTPUT = "window"
    INSIDE_OUTPUT_CONTIGUOUS = "window, one piece"
    HOLDS_OUTPUT = "held"
    HOLDS_OUTPUT_CONTIGUOUS = "held, one piece"
    UNMOVED = "unmoved"

    @property
    def memory(self) -> str:
        """The memory of a copy that satisfies this, in words; empty where any memory does."""
        return {
            InputAliasing.CONTIGUOUS: "in one contiguous piece",
            InputAliasing.COPIED: "in one contiguous piece",
            InputAliasing.OWN_STORAGE: "in a storage of its own",
            InputAliasing.INSIDE_OUTPUT: "inside its output",
            InputAliasing.INSIDE_OUTPUT_CONTIGUOUS: "inside its output",
        }.get(self, "")

    @property
    def inside_output(self) -> bool:
        """Whether the operand has to be inside its reader's output."""
        return self in (InputAliasing.INSIDE_OUTPUT, InputAliasing.INSIDE_OUTPUT_CONTIGUOUS)

    @property
    def contiguous(self) -> bool:
        """Whether the value that the operand is has to be one contiguous piece where it is."""
        return self in (InputAliasing.CONTIGUOUS, InputAliasing.HOLDS_OUTPUT_CONTIGUOUS)

    @property
    def by_copy(self) -> bool:
        """Whether a copy of the operand will do: neither the reader's output is inside the operand,
        nor is the operand read where its elements were moved from.
        """
        return self not in (
            InputAliasing.HOLDS_OUTPUT,
            InputAliasing.HOLDS_OUTPUT_CONTIGUOUS,
            InputAliasing.UNMOVED,
        )


class OutputAliasing(Enum):
    """Which memory a candidate's output is in.

    - FREE: a storage of its own, or inside the output of a view that reads it.
    - CONTIGUOUS: likewise, in one contiguous piece: tensors are pieces of it, or it is what another
      runtime writes, or a user's kernel, padding included.
    - INSIDE_INPUT: a box inside an input.
    - INSIDE_INPUT_CONTIGUOUS: inside an input; contiguous, as that input is.
    - UNMOVED: none; the output is not computed, and its elements stay in the tensors that they
      would be moved from.
    """

    FREE = "free"
    CONTIGUOUS = "piece"
    INSIDE_INPUT = "inside"
    INSIDE_INPUT_CONTIGUOUS = "inside, one piece"
    UNMOVED = "unmoved"


class Production(Struct, frozen=True):
    """The edge type in which a candidate leaves a value, and which memory the value is in.

    `output_aliasing` is None for a graph input, which the caller owns.  Of a value that stays
    unmoved, `family` is that of the layouts in which its elements can be read where they are, None
    if nothing can read them, and `edge_type` says nothing.
    """

    edge_type: EdgeType
    output_aliasing: OutputAliasing | None = None
    family: Family | None = None

    @property
    def unmoved(self) -> bool:
        """Whether the value is not computed."""
        return self.output_aliasing is OutputAliasing.UNMOVED


class OperandRequirement(Struct, frozen=True):
    """What a candidate requires of input `position`: that `value` has this layout and meets this
    demand.

    `facts` are the facts about the operand's padding that the facts in the candidate's own
    productions were derived from; they have to hold too.  `family` is set if the operand has to
    stay unmoved, with its elements in layouts of that family; then `layout` says nothing.
    """

    position: int
    value: str
    layout: Layout
    demand: Demand
    facts: tuple[tuple[str, Fact], ...] = ()
    input_aliasing: InputAliasing = InputAliasing.ANYWHERE
    family: Family | None = None


def unmoved_requirement(position: int, value: Value, family: Family | None) -> OperandRequirement:
    """The requirement that a value is not computed, its elements in layouts of `family` where they
    are; with None they are read nowhere.
    """
    return OperandRequirement(
        position,
        value.name,
        row_major(value.shape),
        UNUSED,
        input_aliasing=InputAliasing.UNMOVED,
        family=family,
    )


def output_requirement(value: Value) -> OperandRequirement:
    """The requirement of the caller on a graph output: row-major, in a storage of its own."""
    return OperandRequirement(
        -1, value.name, row_major(value.shape), UNUSED, input_aliasing=InputAliasing.OWN_STORAGE
    )


def weakest_edge_type(requirement: OperandRequirement) -> EdgeType:
    """The weakest edge type that satisfies a requirement: its padding holds what is demanded, and
    the facts that the reader relies on."""
    if any(fact != Undefined() for _, fact in requirement.facts):
        return EdgeType(requirement.layout, requirement.facts)
    if isinstance(requirement.demand, Equal):
        literal = requirement.demand.literal
        return edge_type_of(requirement.layout, fact_of(literal.value, literal.dtype))
    return edge_type_of(requirement.layout)
