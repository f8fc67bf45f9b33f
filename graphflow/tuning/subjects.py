"""What the harness times: kernels as a compiled program would call them, each by itself.

In: a graph, and the variants and copies of its plans that are to be timed.  Out: `Subject`s: calls
as `convert` makes them, but with each tensor in a storage of its own; and the timing-table key.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import CostModel
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.conversion import conversion, fill_region
from graphflow.kernels.recipes import (
    Staged,
    conversion_key,
    conversion_recipe,
    definition_key,
    fill_key,
    lifted,
    variant_key,
)
from graphflow.layout import LOGICAL, Layout
from graphflow.physical import PhysicalCall, Placement
from graphflow.plan import CopyKind
from graphflow.schedule import StatedPad
from graphflow.tir import PrimFunc
from graphflow.tuning.measurement_candidates import CopyToTime, ToTime, VariantToTime


class Subject(Struct, frozen=True):
    """Calls that are timed together, one behind the other.

    Of their storages, `constants` hold what is known at compile time and `written` what another
    kernel writes just before.  `what` describes the subject in the table; `estimated` is the price
    in seconds so far.
    """

    key: str
    what: str
    calls: tuple[PhysicalCall, ...]
    constants: frozenset[str]
    written: frozenset[str]
    estimated: float


def schedule_subject(
    graph: OperatorGraph, node: Node, kernel: PrimFunc, target: Target, key: str, what: str
) -> Subject:
    """The subject of a schedule of a node's kernel, under the key of the point that it is made of.

    ScheduleError where the kernel's stages cannot be lifted out.
    """
    variant = lifted(kernel, target)
    seconds = CostModel(target).kernel_seconds(variant.work)
    subject = _of_variant(graph, VariantToTime(node, variant, None, seconds))
    return replace(subject, key=key, what=f"{node.op} {what}")


def subjects(graph: OperatorGraph, wanted: Iterable[ToTime]) -> dict[str, Subject]:
    """The subjects by timing-table key, in the order in which they are first wanted."""
    found: dict[str, Subject] = {}
    for item in wanted:
        match item:
            case VariantToTime():
                subject = _of_variant(graph, item)
            case CopyToTime(kind=CopyKind.FILL):
                subject = _of_fill(graph, item)
            case CopyToTime():
                subject = _of_conversion(graph, item)
        found.setdefault(subject.key, subject)
    return found


def _of_variant(graph: OperatorGraph, item: VariantToTime) -> Subject:
    node, variant = item.node, item.variant
    output = variant.layouts[node.func.outputs[0].name]
    pad: StatedPad = item.pad
    if pad is None and output.is_padded:
        pad = "undef"
    placements = {name: Placement(name, layout) for name, layout in variant.layouts.items()}
    bound = zip(node.func.inputs, node.inputs, strict=True)
    constants = {buffer.name for buffer, value in bound if graph.is_constant(value)}
    written = {buffer.name for buffer in node.func.inputs} - constants
    return Subject(
        key=variant_key(definition_key(node.func), variant, item.pad),
        what=f"{node.op} {variant.name}" + ("" if item.pad is None else f", padding {item.pad}"),
        calls=(PhysicalCall(node.name, node.func, placements, variant.recipe, variant, pad),),
        constants=frozenset(constants),
        written=frozenset(written),
        estimated=item.seconds,
    )


def _of_conversion(graph: OperatorGraph, item: CopyToTime) -> Subject:
    source, target, fill = item.source.layout, item.target.layout, item.target.constant
    dtype = graph.values[item.value].dtype
    definition = conversion(source, target, dtype, fill)
    placements = {"src": Placement("src", source), "dst": Placement("dst", target)}
    recipe = conversion_recipe(source, target, dtype)
    return Subject(
        key=conversion_key(source, target, dtype, fill),
        what=f"convert {_shape(target)} {source.describe()} to {item.target.describe()}",
        calls=(PhysicalCall("convert", definition, placements, recipe, moves=True),),
        constants=frozenset(),
        written=frozenset({"src"}),
        estimated=item.seconds,
    )


def _of_fill(graph: OperatorGraph, item: CopyToTime) -> Subject:
    layout, value = item.target.layout, item.target.constant
    assert value is not None, "a fill writes a constant"
    dtype = graph.values[item.value].dtype
    definitions = (
        fill_region(layout, region, dtype, value)
        for region in layout.regions()
        if region.name != LOGICAL
    )
    placements = {"dst": Placement("dst", layout)}
    return Subject(
        key=fill_key(layout, dtype, value),
        what=f"fill {_shape(layout)} {item.target.describe()}",
        calls=tuple(PhysicalCall("fill", d, placements, Staged(), moves=True) for d in definitions),
        constants=frozenset(),
        written=frozenset({"dst"}),
        estimated=item.seconds,
    )


def _shape(layout: Layout) -> str:
    return "×".join(map(str, layout.logical_shape))
