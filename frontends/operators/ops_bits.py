"""BitCast: the same bits under another element type.

No kernel reads a tensor as another type than its own, so the node stands for a region whose only
kernel copies memory: whatever the tensors are, it moves integers of their width.
"""

from __future__ import annotations

from graphflow.base.dtypes import STORED_INTEGERS
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.protos.protos import check_dtype, dtype_name
from graphflow.frontends.tensors.called import called_kernel
from graphflow.graph import ControlRegion, Node, OperatorGraph, RegionPart, Value
from graphflow.kernels.definitions.movements import movement
from graphflow.tir import DTYPES

_INTEGERS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def _bit_cast(call: NodeCall) -> None:
    target = dtype_name(call.required("to"))
    check_dtype(f"{call.title}: target", target)
    source, shape = call.stored_dtype(), call.shape(0)
    if call.counts(0):
        raise call.extents_lost(call.inputs[:1], "its memory is copied as a whole")
    width = DTYPES[source].itemsize
    if DTYPES[target].itemsize != width:
        raise call.invalid(f"{source} and {target} have other numbers of bits")
    narrow = {source, target} & {*STORED_INTEGERS, "float4_e2m1fn"}
    if narrow or (target == "bool" and source != "bool"):  # its bits may be those of no bool
        call.refuse(f"bits of {source} as {target}", "cast integers of eight bits")
    graph, name = call.context.graph, call.outputs[0]
    callee = f"region{len(graph.regions)}"
    copy = movement.copy(shape, _INTEGERS[width])
    part: RegionPart[OperatorGraph] = RegionPart(copy, ("x0",), ("y0",))
    about = f"{call.title}: nothing is decided, its memory is copied"
    graph.regions[callee] = ControlRegion(callee, about, ("x0",), ("y0",), (), (part,))
    call.expect(name, target, shape)
    func = called_kernel(callee, [graph.values[call.inputs[0]]], [Value(name, target, shape)])
    graph.add(Node(call.name, call.op, func, call.inputs[:1], (name,), (call.name,)))


OPERATORS: Emitters = {"BitCast": _bit_cast}
"""The function of each operator."""
