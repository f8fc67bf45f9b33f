"""`gf.check`: which nodes of a model have kernels, which run in onnxruntime, and which cannot run.

In: an ONNX model.  Out: a `Readiness`.  Nothing is compiled: the model is imported, and onnxruntime
opens the parts without kernels to see whether it can run them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct
from numpy.typing import ArrayLike

from graphflow.base.arguments import Shapes
from graphflow.base.errors import UnsupportedOp
from graphflow.foreign import ForeignNode, open_section
from graphflow.frontends import OnnxModel, import_model


class Readiness(Struct, frozen=True):
    """The nodes of a model by what runs them.

    `native` counts the nodes with kernels, by operator.  `impossible` pairs each node that
    onnxruntime refuses too with onnxruntime's message.
    """

    native: Mapping[str, int]
    foreign: tuple[ForeignNode, ...]
    impossible: tuple[tuple[tuple[ForeignNode, ...], str], ...]

    @property
    def runs(self) -> bool:
        """Whether the model compiles with Options(fallback="onnxruntime")."""
        return not self.impossible

    def lines(self) -> list[str]:
        """The result as lines of text, with what the user can do."""
        total = sum(self.native.values())
        counted = ", ".join(f"{op} ({count})" for op, count in sorted(self.native.items()))
        found = [f"native: {total} nodes{': ' if counted else ''}{counted}"]
        found.append(f"foreign: {len(self.foreign)} nodes, which onnxruntime runs")
        found += [f"    {node}" for node in self.foreign]
        found.append(f"impossible: {sum(len(nodes) for nodes, _ in self.impossible)} nodes")
        for nodes, message in self.impossible:
            found += [f"    {node}" for node in nodes]
            found.append(f"    {message}")
        if self.impossible:
            found.append("rewrite the model without the impossible nodes, or cut it before them")
        elif self.foreign:
            found.append("the model compiles; it does not with fallback=None (--strict)")
        else:
            found.append("the model compiles")
        return found


def check(
    model: OnnxModel,
    *,
    input_shapes: Shapes | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
) -> Readiness:
    """Sort the nodes of `model` by what runs them.

    Raises InvalidModel for a model or shapes that are wrong, and ValuesNeeded if shapes depend on
    inputs whose values `input_values` does not give.
    """
    graph = import_model(model, input_shapes, input_values, fallback=True)
    foreign: list[ForeignNode] = []
    impossible: list[tuple[tuple[ForeignNode, ...], str]] = []
    for section in graph.sections.values():
        try:
            open_section(section, 1)
        except UnsupportedOp as error:
            impossible.append((section.nodes, str(error.__cause__)))
        else:
            foreign += section.nodes
    # A node that becomes several kernels counts once: they name it as their origin.
    kernels = [node for node in graph.nodes if node.func.callee not in graph.sections]
    native = {node.origins: node.op.split(".")[0] for node in kernels}
    return Readiness(Counter(native.values()), tuple(foreign), tuple(impossible))
