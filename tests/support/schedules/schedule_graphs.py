"""One case of the graph-of-schedules fuzzer: drawn from a seed, planned, run, compared, shrunk.

In: a seed.  Out: a `GraphOutcome`.  A graph has one to five nodes; nodes are offered schedules that
cache their inputs and outputs, put the caches into padded layouts, and run over the padding if that
is accepted.  Layouts and pad values are drawn from a few favourites of the graph, so that crops and
pads meet.  The planned program is run by the interpreter and as native code, without poison and
with two poisons in all undefined padding, and compared with the interpretation of the graph.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphflow.base.errors import LayoutConflict, ScheduleError
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.codegen import host_target, make_object
from graphflow.convert import apply_plan, poison_padding
from graphflow.flow import plan_layouts
from graphflow.graph import Node, OperatorGraph, Value, fuse_groups, interpret_graph
from graphflow.kernels.recipes import Scheduled
from graphflow.layout import Layout
from graphflow.lower import assemble, lower
from graphflow.physical import PhysicalGraph
from graphflow.plan import LayoutPlan
from graphflow.runtime import Program
from graphflow.schedule import Schedule, ScheduleStep
from graphflow.tir import FLOATS, PrimFunc, to_text
from support.fuzz.fuzz_test import shrunk
from support.kernels.schedule_kernels import Dice
from support.placing import interpret_physical
from support.schedules.schedule_inputs import SPECIALS, WILD, Array, same_bits
from support.schedules.schedule_offers import KINDS, OVERCOMPUTE, TARGET, Draft, Taste, random_offer

POISONS = {"f": (np.nan, -42.0), "i": (-42, 77), "u": (42, 77), "b": (False, True)}


@dataclass(frozen=True)
class GraphCase:
    """Nodes with what is offered to them, as steps, so that parts can be left out."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array]
    outputs: tuple[str, ...]
    offers: Mapping[str, tuple[tuple[ScheduleStep, ...], ...]]
    only: frozenset[str]
    pins: Mapping[str, Layout | str]
    fused: bool
    exact: bool
    flush: bool

    def __str__(self) -> str:
        lines = [
            f"inputs {', '.join(self.inputs)}; constants {', '.join(self.constants)}; outputs "
            f"{', '.join(self.outputs)}; fused: {self.fused}; flushing: {self.flush}"
        ]
        lines += [
            f"pin {name}: {pin if isinstance(pin, str) else pin.describe()}"
            for name, pin in self.pins.items()
        ]
        for node in self.nodes:
            lines.append(f"{node.name}({', '.join(node.inputs)}) -> {', '.join(node.outputs)}")
            lines.append(to_text(node.func))
            for steps in self.offers.get(node.name, ()):
                only = ", only" if node.name in self.only else ""
                lines.append(f"  offered{only}:")
                lines += [f"    {step}" for step in steps]
        return "\n".join(lines)


@dataclass(frozen=True)
class GraphOutcome:
    """What a case showed; `refused` where no plan was possible, `ran_over` where a chosen kernel
    runs over padding."""

    wrong: str = ""
    kind: str = ""
    cancelled: int = 0
    ran_over: bool = False
    refused: str = ""
    poisoned: int = 0


# Cases --------------------------------------------------------------------------------------------


def make_graph(seed: int) -> GraphCase:
    """The case of a seed."""
    dice = Dice(seed, 11)
    d = Draft(dice)
    dtype = dice.weighted(
        {"float32": 5, "int32": 4, "int8": 0.7, "float64": 0.7, "int64": 0.5, "uint8": 0.5}
    )
    shape = dice.among(((14,), (14,), (9,), (5,), (16,), (3, 6), (4, 5), (2, 9), (5, 3)))
    d.input(dtype, shape)
    for _ in range(dice.weighted({1: 1, 2: 3, 3: 3, 4: 2, 5: 1})):
        dice.weighted(KINDS)(d)
    read = {name for node in d.nodes for name in node.inputs}
    made = [node.outputs[0] for node in d.nodes]
    outputs = tuple(n for n in made if n not in read or dice.chance(0.08))
    taste = Taste(Dice(seed, 12))
    offers: dict[str, tuple[tuple[ScheduleStep, ...], ...]] = {}
    only = set()
    for node in d.nodes:
        count = taste.dice.weighted({0: 1.2, 1: 5, 2: 2, 3: 1})
        found = [random_offer(node, taste, d.constants) for _ in range(count)]
        found = [steps for steps in found if steps]
        if found:
            offers[node.name] = tuple(found)
            if taste.dice.chance(0.8):
                only.add(node.name)
    pins: dict[str, Layout | str] = {}
    if dice.chance(0.12):
        name = dice.among(made)
        pins[name] = taste.layout(d.values[name][1]) if dice.chance(0.7) else "row-major"
    wild = not d.products and dice.chance(0.6)
    inputs = {name: data(dice, *d.values[name], wild) for name in d.inputs}
    flush = dtype in FLOATS and dice.chance(0.2)
    return GraphCase(
        tuple(d.nodes),
        inputs,
        d.constants,
        outputs,
        offers,
        frozenset(only),
        pins,
        dice.chance(0.5),
        d.exact and not wild,
        flush,
    )


def data(dice: Dice, dtype: str, shape: tuple[int, ...], wild: bool) -> Array:
    """Small whole numbers with special ones among them; `wild`: any numbers."""
    kind = np.dtype(dtype)
    array = dice.rng.integers(0 if kind.kind == "u" else -3, 4, shape).astype(kind)
    if wild and kind.kind == "f" and dice.chance(0.5):
        array = dice.rng.standard_normal(shape).astype(kind)
    if dice.chance(0.5):
        odd: Sequence[Any] = WILD if wild else SPECIALS
        if kind.kind != "f":
            odd = (np.iinfo(kind).min, np.iinfo(kind).max)
        chosen = np.array(odd).astype(kind)[dice.rng.integers(0, len(odd), shape)]
        array = np.where(dice.rng.random(shape) < 0.2, chosen, array).astype(kind)
    return np.asarray(array)


def built(case: GraphCase, offers: bool = True) -> OperatorGraph:
    """The graph of a case; `ScheduleError` where a step is refused."""
    graph = OperatorGraph()
    for name, array in case.inputs.items():
        graph.add_value(Value(name, array.dtype.name, array.shape))
    graph.set_inputs(case.inputs)
    for name, array in case.constants.items():
        graph.add_initializer(name, array)
    for node in case.nodes:
        graph.add(node)
    graph.set_outputs(case.outputs)
    for name, schedules in case.offers.items() if offers else ():
        taken = [rebuilt(graph.node(name).func, steps) for steps in schedules]
        graph.offer(name, *taken, only=name in case.only)
    return fuse_groups(graph) if case.fused else graph


def rebuilt(func: PrimFunc, steps: Sequence[ScheduleStep]) -> Schedule:
    schedule = Schedule.of(func)
    for step in steps:
        schedule = schedule.apply(step.primitive, *step.arguments, **dict(step.options))
    return schedule


def run_graph(case: GraphCase) -> GraphOutcome:
    """Planned, run in every way, and compared; pins that cannot be met are left out."""
    try:
        return _run(case)
    except LayoutConflict as error:
        if case.pins:
            return run_graph(replace(case, pins={}))
        return GraphOutcome(refused=f"LayoutConflict: {str(error).splitlines()[0]}")
    except ScheduleError as error:
        return GraphOutcome(refused=f"ScheduleError: {str(error).splitlines()[0]}")
    except Exception as error:
        return GraphOutcome(wrong=f"{type(error).__name__}: {error}", kind=type(error).__name__)


def _run(case: GraphCase) -> GraphOutcome:
    graph = built(case)
    plan = plan_layouts(graph, TARGET, 1, case.pins)
    physical = apply_plan(graph, plan)
    poisoned = poison_padding(graph, plan, physical)
    known = GraphOutcome(
        cancelled=len(plan.cancelled), ran_over=runs_over(case, plan), poisoned=poisoned.poisoned
    )
    expected = interpret_graph(graph, case.inputs)
    found = interpret_physical(graph, physical, TARGET, dict(case.inputs))
    wrong = differs(found, expected, case.exact)
    if wrong:
        return replace(known, wrong=f"interpreted: {wrong}", kind="interpreted")
    for what, outputs in natively(graph, physical, poisoned, case):
        wrong = differs(outputs, expected, case.exact)
        if wrong:
            return replace(known, wrong=f"native, {what}: {wrong}", kind=f"native {what}")
    if case.flush:
        wrong = flushed(case, graph, physical)
        if wrong:
            return replace(known, wrong=f"flushing denormals: {wrong}", kind="flush")
    return known


def runs_over(case: GraphCase, plan: LayoutPlan) -> bool:
    """Whether the plan takes a schedule that runs over padding."""
    taken = {
        c.variant.recipe.kernel
        for c in plan.choices.values()
        if isinstance(c.variant.recipe, Scheduled)
    }
    return any(
        any(step.primitive is OVERCOMPUTE for step in steps)
        and rebuilt(node.func, steps).func in taken
        for node in case.nodes
        for steps in case.offers.get(node.name, ())
    )


def natively(
    graph: OperatorGraph, physical: PhysicalGraph, poisoned: PhysicalGraph, case: GraphCase
) -> Iterator[tuple[str, dict[str, Array]]]:
    """The outputs of the native program, as it is and with each poison."""
    if not poisoned.poisons:
        yield "plain", program(graph, physical, False).run(dict(case.inputs))
        return
    ready = program(graph, poisoned, False)
    for k in (0, 1):
        poison = {
            v.name: np.array(POISONS[np.dtype(v.dtype).kind][k], v.dtype) for v in poisoned.poisons
        }
        yield f"poison {k}", ready.run({**case.inputs, **poison})
    yield "plain", program(graph, physical, False).run(dict(case.inputs))


def program(graph: OperatorGraph, physical: PhysicalGraph, flush: bool) -> Program:
    lowered = lower(physical, host_target())
    trace = Trace(Options())
    objects = {
        symbol: make_object((kernel.func, symbol, host_target()), trace)
        for symbol, kernel in lowered.kernels.items()
    }
    return Program(assemble(graph, lowered, objects), 2, flush)


def flushed(case: GraphCase, graph: OperatorGraph, physical: PhysicalGraph) -> str:
    """How outputs differ, with denormals flushed, from those of the graph without schedules."""
    bare = built(case, offers=False)
    plain = apply_plan(bare, plan_layouts(bare, TARGET, 1))
    with_offers = program(graph, physical, True).run(dict(case.inputs))
    without = program(bare, plain, True).run(dict(case.inputs))
    return differs(with_offers, without, case.exact)


def differs(found: Mapping[str, Array], expected: Mapping[str, Array], exact: bool) -> str:
    """In words how outputs differ; empty where they agree."""
    for name, want in expected.items():
        have = found[name]
        agree = same_bits(have, want)
        if not exact and want.dtype.kind == "f":
            with np.errstate(all="ignore"):
                agree |= np.isclose(have, want, rtol=3e-5, atol=_rounding(want), equal_nan=True)
        elif want.dtype.kind == "f":
            with np.errstate(all="ignore"):
                large = np.isfinite(want) & (np.abs(want) > 2.0**22)
                if large.any():
                    agree |= np.isclose(have, want, rtol=3e-5, equal_nan=True)
        if not agree.all():
            k = tuple(np.argwhere(~agree)[0])
            return (
                f"{name}{[int(n) for n in k]} is {have[k]!r} and should be {want[k]!r}; "
                f"{int((~agree).sum())} of {agree.size} differ"
            )
    return ""


def _rounding(want: Array) -> float:
    """By how much elements may differ where what was rounded before is subtracted in the end.

    Relative to the ordinary elements: extreme ones would hide everything.
    """
    sizes = np.abs(want[np.isfinite(want)])
    ordinary = sizes[sizes < 2.0**10]
    return 4e-6 * float(ordinary.max()) if ordinary.size else 0.0


# Shrinking ----------------------------------------------------------------------------------------


def fails_twice(case: GraphCase, kind: str) -> bool:
    """Whether a case fails like this, twice, since what is undefined may be right by chance."""
    return all(run_graph(case).kind == kind for _ in range(2))


def smaller_graphs(case: GraphCase) -> Iterator[GraphCase]:
    """Fewer nodes, offers, steps and pins."""
    for node in case.nodes:
        if case.outputs != node.outputs:
            yield _only(case, node.outputs)
    for flag in ("flush", "fused"):
        if getattr(case, flag):
            yield replace(case, **{flag: False})
    if case.pins:
        yield replace(case, pins={})
    for name, schedules in case.offers.items():
        fewer = {k: v for k, v in case.offers.items() if k != name}
        yield replace(case, offers=fewer)
        for k in range(len(schedules)):
            if len(schedules) > 1:
                left = (*schedules[:k], *schedules[k + 1 :])
                yield replace(case, offers={**case.offers, name: left})
            for s in reversed(range(len(schedules[k]))):
                steps = (*schedules[k][:s], *schedules[k][s + 1 :])
                left = (*schedules[:k], steps, *schedules[k + 1 :])
                yield replace(case, offers={**case.offers, name: left})


def _only(case: GraphCase, outputs: tuple[str, ...]) -> GraphCase:
    """The nodes that some outputs need."""
    wanted, nodes = set(outputs), list[Node]()
    for node in reversed(case.nodes):
        if wanted & set(node.outputs):
            nodes.insert(0, node)
            wanted |= set(node.inputs)
    names = {node.name for node in nodes}
    return replace(
        case,
        nodes=tuple(nodes),
        outputs=outputs,
        inputs={k: v for k, v in case.inputs.items() if k in wanted},
        constants={k: v for k, v in case.constants.items() if k in wanted},
        offers={k: v for k, v in case.offers.items() if k in names},
        only=case.only & names,
        pins={k: v for k, v in case.pins.items() if k in wanted},
    )


def graph_complaint(seed: int, case: GraphCase, outcome: GraphOutcome) -> str:
    small = shrunk(case, smaller_graphs, lambda c: fails_twice(c, outcome.kind))
    wrong = run_graph(small).wrong or outcome.wrong
    return f"seed {seed}, {outcome.kind}: {wrong}\n\n{small}"


def graph_report(outcomes: Sequence[GraphOutcome]) -> str:
    """How many graphs had what."""
    n = max(1, len(outcomes))
    refused = Counter(o.refused.split(":")[0] for o in outcomes if o.refused)
    cancelled, over = sum(o.cancelled > 0 for o in outcomes), sum(o.ran_over for o in outcomes)
    poisoned = sum(o.poisoned > 0 for o in outcomes)
    return (
        f"{len(outcomes)} graphs: {cancelled} ({cancelled / n:.0%}) with a cancelled pair, "
        f"{over} ({over / n:.0%}) run over padding, {poisoned} poisoned, refused {dict(refused)}"
    )
