"""Control regions: parts of a graph of which a run decides whether and how often they execute.

In: graphs and kernels, and the tensors by which they are connected.  Out: a `ControlRegion`, for
which a node of the graph around it stands.  What always holds: a run begins with the first part and
ends behind the last one; whatever way it takes through the parts, each tensor is written before a
part reads it, and so are all outputs before the region ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct, field

from graphflow.graph.value import Value
from graphflow.tir import PrimFunc

Body = TypeVar("Body")
OtherBody = TypeVar("OtherBody")


class RegionJump(Struct, frozen=True):
    """Behind a part, a run goes on with part number `target` if the bool tensor `flag` is `when`.

    Otherwise it goes on with the next part; behind the last part the region ends.
    """

    flag: str
    when: bool
    target: int


class RegionPart(Generic[Body], Struct, frozen=True, eq=False):
    """A graph or a single kernel, and the region's tensors that are its inputs and its outputs.

    `counted` are axes of a kernel's output with the region's tensor that holds how many elements
    the kernel has to give there; those behind may be anything.  A kernel that `hands_on` copies a
    tensor of the region's own, which nothing else reads, to one of its shape that the part which
    made it is given in the next iteration: both may be one memory.  Only kernels, of one step that
    is never empty, are followed by a jump.
    """

    body: Body | PrimFunc
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    jump: RegionJump | None = None
    counted: Mapping[int, str] = field(default_factory=dict)
    hands_on: bool = False


class ControlRegion(Generic[Body], Struct, frozen=True, eq=False):
    """A branch or a loop; see the module's text.

    - name: the callee of the node that stands for it.
    - decided: what a run decides, as text.
    - inputs, outputs: the region's names of the node's operands.
    - held: tensors of its own, which are there while it runs.
    """

    name: str
    decided: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    held: tuple[Value, ...]
    parts: tuple[RegionPart[Body], ...]

    def with_bodies(self, make: Callable[[Body], OtherBody]) -> ControlRegion[OtherBody]:
        """The same region with what `make` gives for each graph in it."""
        return ControlRegion(
            self.name,
            self.decided,
            self.inputs,
            self.outputs,
            self.held,
            tuple(
                RegionPart(
                    part.body if isinstance(part.body, PrimFunc) else make(part.body),
                    part.inputs,
                    part.outputs,
                    part.jump,
                    part.counted,
                    part.hands_on,
                )
                for part in self.parts
            ),
        )
