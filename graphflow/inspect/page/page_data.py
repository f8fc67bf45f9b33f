"""What the page shows, as plain values: the JSON that Python writes and the browser reads.

What always holds: everything here is text, numbers, booleans, None, and tuples and records of
these.  Nodes, layouts and edge types are named by their position, tensors and kernels by name.
Seconds are prices of the plan, None where there is none.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from graphflow.base.run_profile import OperatorTime, RunProfile
from graphflow.inspect.diff import Change

IndexCode: TypeAlias = "int | str | list[Any]"
"""An index expression: an integer, a variable (`i0` …, `p0` …), or a list of an operation and its
operands: ["+", …], ["*", factor, e], ["//", e, divisor], ["%", e, divisor], ["min" or "max", a, b].
"""


class ShownLayout(Struct, frozen=True):
    """A layout: `physical` are the physical indices of i0 …, `logical` the logical ones of p0 ….

    `family` is the name without extents: what the page colours it by.  `regions` are the names of
    those that occur, the logical region first.
    """

    name: str
    family: str
    logical_shape: tuple[int, ...]
    physical_shape: tuple[int, ...]
    physical: tuple[IndexCode, ...]
    logical: tuple[IndexCode, ...]
    regions: tuple[str, ...]
    padding_elements: int


class ShownEdgeType(Struct, frozen=True):
    """A layout by its position, and the fact about each region of its padding."""

    name: str
    layout: int
    facts: tuple[tuple[str, str], ...]


class ShownReading(Struct, frozen=True):
    """One use of a tensor: who reads which parameter, the requirement, and the proofs."""

    consumer: str
    position: int
    buffer: str
    layout: str
    demand: str
    conversion: str | None
    proofs: tuple[str, ...]


class ShownPair(Struct, frozen=True):
    """A crop and a pad before a reader: cancelled with `proofs`, or refused with a `reason` and the
    `repair` that the plan makes instead."""

    consumer: str
    proofs: tuple[str, ...] = ()
    reason: str | None = None
    repair: str | None = None


class ShownOther(Struct, frozen=True):
    """A variant or an edge type that was not taken: by itself, and the best plan with it.

    `extra` is by how many seconds that plan is slower; None where `price` says why it is unknown.
    """

    name: str
    variant: str
    seconds: float | None
    measured: bool
    extra: float | None
    price: str


class ShownPin(Struct, frozen=True):
    """A pin of a tensor to another layout: by how many `seconds` the best plan with it is slower,
    and its `changes`; `seconds` is None for the reason in `because`."""

    layout: str
    seconds: float | None
    because: str
    changes: tuple[Change, ...]


class ShownTensor(Struct, frozen=True):
    """The decision about one tensor, as `explain` tells it; `edge_type` is None without storage.

    `notes` are lines about pins, sizes and assumptions; `place` says where its memory is;
    `element_bytes` is None for an unknown type, and `lanes` the elements of a vector, or 0.
    """

    name: str
    dtype: str
    logical_shape: tuple[int, ...]
    where: str
    edge_type: int | None
    decided_by: str
    reason: str
    producer: str | None
    consumers: tuple[str, ...]
    readings: tuple[ShownReading, ...]
    pairs: tuple[ShownPair, ...]
    others: tuple[ShownOther, ...]
    notes: tuple[str, ...]
    place: str | None
    element_bytes: int | None
    lanes: int
    pins: tuple[ShownPin, ...] = ()


class ShownNode(Struct, frozen=True):
    """A box of the graph.

    `kind` is `input`, `output`, `check` (a tensor that runs check, or cut outputs by), `kernel`,
    `view` (nothing runs), `section` (onnxruntime), `region` (a branch or loop of which a run
    decides), `move` (a node that only moves elements), `convert`, `copy` or `fill` (added by the
    plan).  `inputs` are the tensors by parameter, constants too.  `because` says why the variant
    was taken, or why a copy is made.  `refused` are pairs of a variant, or a step of the chosen
    one, and the reason.  In the imported model the kind is `operator`, and `became` are the places
    of the program's nodes that do its work.  Where the plan has no price of a node, `seconds` and
    `bytes` are None.
    """

    kind: str
    name: str
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    variant: str | None = None
    because: str = ""
    seconds: float | None = None
    share: float = 0.0
    measured: bool = False
    bytes: int | None = None
    kernel: str | None = None
    others: tuple[ShownOther, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    became: tuple[int, ...] = ()


class ShownArrow(Struct, frozen=True):
    """A tensor on its way from one node to another, in an edge type."""

    start: int
    end: int
    tensor: str
    edge_type: int | None


class ShownBlock(Struct, frozen=True):
    """Nodes that repeat: a repetition begins at each of `starts` and ends before the next one, the
    last before the node `after`.  In the imported model all have the same operators; in the program
    they are what these became, which need not be the same."""

    starts: tuple[int, ...]
    after: int


class ShownGraph(Struct, frozen=True):
    """Nodes, each behind those it depends on, the arrows between them, and blocks that do not
    overlap."""

    nodes: tuple[ShownNode, ...]
    arrows: tuple[ShownArrow, ...]
    blocks: tuple[ShownBlock, ...]


class ShownEdit(Struct, frozen=True):
    """From line `first` of a text on, counted from 0, `removed` lines are replaced with `added`."""

    first: int
    removed: int
    added: tuple[str, ...]


class ShownStep(Struct, frozen=True):
    """A step of a schedule, the proofs that permitted it, and what it changed in the text of the
    kernel: `edits` of the text before the step, in order."""

    step: str
    proofs: tuple[str, ...]
    edits: tuple[ShownEdit, ...]


class ShownKernel(Struct, frozen=True):
    """The texts of a kernel: definition, schedule with the proof of each step, lowered kernel.

    `steps` lead from the definition to the lowered kernel.  They, the LLVM `ir` and the `assembly`
    are None for kernels of a small share of a run if the page has enough of them.
    """

    definition: str
    schedule: str
    lowered: str
    steps: tuple[ShownStep, ...] | None
    ir: str | None
    assembly: str | None


class ShownRun(Struct, frozen=True):
    """The measured steps of a run; `nodes` are the places of the program's nodes that the steps do
    the work of, None where there is none.  `operators` are the times by operator."""

    profile: RunProfile
    nodes: tuple[int | None, ...]
    step_seconds: float
    operators: tuple[OperatorTime, ...]


class ShownPart(Struct, frozen=True):
    """The memory of a storage in the arena, from step `first` to step `last` of a run.

    `tensors` lie in it; none in the work space of a kernel.  `reuses` are the positions of the
    parts that had this memory last.
    """

    storage: str
    tensors: tuple[str, ...]
    offset: int
    bytes: int
    first: int
    last: int
    reuses: tuple[int, ...]


class ShownMemory(Struct, frozen=True):
    """The arena over the steps of a run: its size, the names of the steps, the bytes in use in
    each, and what lies where, in the order of the first step."""

    bytes: int
    steps: tuple[str, ...]
    live: tuple[int, ...]
    parts: tuple[ShownPart, ...]


class ShownPriceChange(Struct, frozen=True):
    """The price of a node in two plans, None where a plan does not have the node."""

    node: str
    before: float | None
    after: float | None


class ShownModel(Struct, frozen=True):
    """Everything that the page shows of one compiled model.

    These are the `program` that runs, the model as it was `imported`, and what both refer to.
    `seconds` is the price of a run.  `changes` are the differences from another plan, which
    `compared` names and a run of which is priced at `compared_seconds`; None if there is none.
    `price_changes` are those of nodes, the greatest first.
    `run` is what was measured, if it was; `memory`
    is None for reports.
    """

    model: str
    target: str
    summary: str
    seconds: float
    layouts: tuple[ShownLayout, ...]
    edge_types: tuple[ShownEdgeType, ...]
    tensors: tuple[ShownTensor, ...]
    program: ShownGraph
    imported: ShownGraph
    kernels: dict[str, ShownKernel]
    changes: tuple[Change, ...] = ()
    compared: str | None = None
    compared_seconds: float | None = None
    price_changes: tuple[ShownPriceChange, ...] = ()
    run: ShownRun | None = None
    memory: ShownMemory | None = None
