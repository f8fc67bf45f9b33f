"""Find which tensors are inside others, and where.

In: the graph of fusion groups and its plan.  Out: for each value without a storage of its own the
tensor that contains it, and from the placement of that tensor the value's own.  What always holds:
each value is inside at most one other, and these relations form a forest, since views follow the
graph.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from graphflow.arith import evaluate
from graphflow.base.errors import VerifyError
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.recipes import KernelVariant, Link, View
from graphflow.layout import IndexMap, Layout
from graphflow.physical import Placement
from graphflow.plan import LayoutPlan


class Inside(Struct, frozen=True):
    """The relation that a view `node` makes: a tensor with `inner_layout` is inside the tensor
    `outer`.

    `outer_layout` is the layout of `outer` as the view's variant has it.
    """

    outer: str
    link: Link
    inner_layout: Layout
    outer_layout: Layout
    node: str

    def placed(self, outer: Placement) -> Placement:
        """The placement of the inner tensor that follows from the placement of the outer one.

        Raises VerifyError where the outer tensor is itself a box in a larger one and the inner
        tensor needs it contiguous.
        """
        if prod(outer.layout.physical_shape) == prod(self.outer_layout.physical_shape):
            if self.link.offset is not None:
                begin = outer.offset + self.link.offset
                return Placement(
                    outer.storage, self.inner_layout, begin, not self.inner_layout.is_padded
                )
            assert self.link.window is not None, "a link has a window or an offset"
            return Placement(outer.storage, self.link.window, outer.offset, False)
        if self.link.window is None:
            raise VerifyError(
                f"{self.node} reads the memory of {self.outer} under another shape, and "
                f"{self.outer} is not contiguous in {outer.storage}"
            )
        window = _moved(self.link.window, self.outer_layout, outer.layout)
        return Placement(outer.storage, window, outer.offset, False)


def placed_inside(graph: OperatorGraph, plan: LayoutPlan) -> dict[str, Inside]:
    """For each value that is inside another tensor, the relation.

    Raises VerifyError where a value would be inside two tensors, or a view's input is copied for
    it.
    """
    found: dict[str, Inside] = {}
    for name, choice in plan.choices.items():
        view, node = choice.variant.recipe, graph.node(name)
        if not isinstance(view, View):
            continue
        for position, value in enumerate(node.inputs):
            copied = plan.conversion_for(name, position, value) is not None
            inner = node.outputs[0] if view.outward else value
            if not view.outward and (copied or graph.is_constant(value)):
                continue
            if view.outward and copied:
                raise VerifyError(f"{inner} is a view of {value}, which the plan copies for it")
            if inner in found or inner in graph.inputs:
                other = found[inner].outer if inner in found else "the caller's memory"
                raise VerifyError(
                    f"{inner} cannot be inside {node.outputs[0]} and inside {other} too"
                )
            found[inner] = inner_place(node, choice.variant, position)
    return found


def inner_place(node: Node, variant: KernelVariant, position: int) -> Inside:
    """The relation of a view for its input `position`: the input inside the output, or the output
    inside that input.
    """
    view = variant.recipe
    assert isinstance(view, View)
    read, made = node.func.inputs[position].name, node.func.outputs[0].name
    link = next(link for link in view.links if link.input == read)
    if view.outward:
        layouts = variant.layouts[made], variant.layouts[read]
        return Inside(node.inputs[position], link, *layouts, node.name)
    return Inside(node.outputs[0], link, variant.layouts[read], variant.layouts[made], node.name)


def _moved(window: Layout, outer: Layout, placed: Layout) -> Layout:
    """`window`, a layout in the box of `outer`, rewritten for the box in which `outer` is as
    `placed`.

    If both place elements alike up to a shift, the window is shifted.  Else the axes need not
    correspond, since the same memory may be read under another shape: then each place of one box is
    mapped to the other through the index of its element.
    """
    zero = (0,) * len(outer.logical_shape)
    here, there = (
        [evaluate(e, {}) for e in layout.physical_index(zero)] for layout in (placed, outer)
    )
    if len(here) == len(there):
        steps = [a - b for a, b in zip(here, there, strict=True)]
        shifted = tuple(e + step for e, step in zip(outer.simplified, steps, strict=True))
        if shifted == placed.simplified:
            return window.windowed(steps, placed.physical_shape)
    p, q = outer.physical_axes, placed.physical_axes
    forth = placed.physical_index(outer.logical_index(p))
    back = outer.physical_index(placed.logical_index(q))
    box_map = IndexMap(p, forth, (q, back))
    return Layout(window.index_map.then(box_map), window.logical_shape, placed.physical_shape)
