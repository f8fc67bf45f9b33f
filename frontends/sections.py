"""Nodes without a kernel, put together into sections that onnxruntime runs.

In: the nodes of a checked graph, and which of them are foreign.  Out: `Section`s, and for each a
node of the operator graph whose kernel has the section as its callee.  What always holds: no path
from a section back to itself leads through other nodes, so the sections and the kernels have an
order; there are as few sections as that allows where each foreign node runs as early as it can.

Tensors of a dtype that kernels have and of a shape that is known pass between sections and kernels.
Everything else is an *object* here: it passes between sections only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import onnx
from msgspec import Struct
from onnx import helper, numpy_helper

from graphflow.base.errors import UnsupportedOp
from graphflow.base.fields import replace
from graphflow.foreign import ForeignNode, Section
from graphflow.frontends.protos.steps import names_read
from graphflow.frontends.tensors.called import called_kernel
from graphflow.frontends.tensors.context import ImportContext
from graphflow.graph import Node, Value
from graphflow.tir import DTYPES

SECTION_IR_VERSION = 10
"""The newest IR version of a section; onnxruntime refuses models of newer versions than it knows,
and nodes mean the same in older ones."""

ORDER = Value("", "uint8", (0,))
"""An empty tensor, by which one section waits for the objects of another."""


class Member(Struct, frozen=True):
    """A foreign node and everything that it reads, also in its subgraphs."""

    proto: onnx.NodeProto
    node: ForeignNode
    reads: tuple[str, ...]


def stages_of(
    nodes: Sequence[onnx.NodeProto], foreign: Callable[[int], bool], is_known: Callable[[str], bool]
) -> list[int]:
    """The stage of each node of a sorted graph: the largest number of changes from kernels to
    sections on any path to it.

    Foreign nodes of one stage can form one section, because a path between them that leads through
    a kernel would end in a later stage.  Values that are known at compile time order nothing.
    """
    stages: list[int] = []
    made: dict[str, tuple[int, bool]] = {}
    for index, node in enumerate(nodes):
        mine = foreign(index)
        stage = int(mine)
        for name in names_read(node):
            before, was_foreign = made.get(name, (0, True))
            stage = max(stage, before + int(mine and not was_foreign))
        stages.append(stage)
        for name in node.output:
            made[name] = (0, True) if is_known(name) else (stage, mine)
    return stages


class Around(Struct, frozen=True):
    """The context of sections: the graph under construction, and what is known of the model."""

    context: ImportContext
    types: Mapping[str, onnx.ValueInfoProto]
    """The type of each tensor as ONNX infers it."""
    header: onnx.ModelProto
    """The model without its graph: its IR version and its opsets."""
    read_elsewhere: frozenset[str]
    """The tensors that kernels read, and the outputs of the graph."""


def add_sections(members: Mapping[int, Sequence[Member]], around: Around) -> None:
    """Add a node for each section; `members` lists their nodes by stage, in the graph's order.

    Raises UnsupportedOp if a section needs an object of unknown type, or does not fit into one
    protocol buffer.
    """
    makers = {name: stage for stage, group in members.items() for name in _made(group)}
    for stage, group in sorted(members.items()):
        others = (m for s, g in members.items() if s != stage for m in g)
        read = around.read_elsewhere.union(name for member in others for name in member.reads)
        left = [name for name in _made(group) if name in read]
        _add_section(stage, group, left, makers, around)


def _made(group: Iterable[Member]) -> Iterator[str]:
    return (name for member in group for name in member.proto.output if name)


def _add_section(
    stage: int,
    group: Sequence[Member],
    left: Sequence[str],
    makers: Mapping[str, int],
    around: Around,
) -> None:
    context = around.context
    values, own = context.graph.values, set(_made(group))
    read = [n for n in dict.fromkeys(n for m in group for n in m.reads) if n not in own]
    constants = [n for n in read if n in context.known]
    given = [n for n in read if n not in constants]
    graph = helper.make_graph(
        [member.proto for member in group],
        f"section{stage}",
        [_info(name, around) for name in given],
        [around.types.get(name, onnx.ValueInfoProto(name=name)) for name in left],
        [numpy_helper.from_array(context.known[name], name) for name in constants],
    )
    section = Section(
        name=graph.name,
        model=_serialized(graph, around.header),
        nodes=tuple(member.node for member in group),
        inputs=tuple(name for name in given if name in values),
        outputs=tuple(name for name in left if name in values),
        objects_in=tuple(name for name in given if name not in values),
        objects_out=tuple(name for name in left if name not in values),
    )
    _add_node(stage, section, {makers[n] for n in section.objects_in if n in makers}, context)


def _add_node(stage: int, section: Section, awaited: Iterable[int], context: ImportContext) -> None:
    """Add the node of a section, which runs after the sections of the stages `awaited`."""
    graph = context.graph
    read = [*section.inputs, *(_order_name(earlier) for earlier in sorted(awaited))]
    made = list(section.outputs)
    if section.objects_out or not made:
        made.append(_order_name(stage))
        graph.add_value(replace(ORDER, name=made[-1]))
    kernel = called_kernel(
        section.name, [graph.values[n] for n in read], [graph.values[n] for n in made]
    )
    name = context.unique_node_name(section.name)
    origins = tuple(node.name for node in section.nodes)
    graph.sections[section.name] = section
    graph.add(Node(name, section.title, kernel, tuple(read), tuple(made), origins))


def _order_name(stage: int) -> str:
    return f"section{stage}.done"


def _info(name: str, around: Around) -> onnx.ValueInfoProto:
    value = around.context.graph.values.get(name)
    if value is not None:
        element = helper.np_dtype_to_tensor_dtype(DTYPES[value.dtype])
        return helper.make_tensor_value_info(name, element, value.shape)
    if name not in around.types:
        raise UnsupportedOp(
            f"no kernel is built for the nodes around {name}, and ONNX does not know its type, so "
            "onnxruntime cannot run a part of them either; add its type to the model's value_info"
        )
    return around.types[name]


def _serialized(graph: onnx.GraphProto, header: onnx.ModelProto) -> bytes:
    proto = onnx.ModelProto(graph=graph)
    proto.MergeFrom(header)
    # Later versions say nothing more about such a graph, and onnxruntime refuses the newest.
    proto.ir_version = min(header.ir_version, SECTION_IR_VERSION)
    try:
        content: bytes = proto.SerializeToString()
    except ValueError as error:
        raise UnsupportedOp(
            f"the weights of {graph.node[0].op_type} and its neighbours, which have no kernel, do "
            f"not fit into one protocol buffer for onnxruntime: {error}"
        ) from error
    return content
