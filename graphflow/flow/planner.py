"""From a graph to its layout plan: enumerate, solve, and say why.

In: the grouped graph, the target, the number of threads, pins.  Out: a frozen `LayoutPlan`.
Nothing is edited here.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphflow.arith import Proof, Verdict
from graphflow.cost import NO_TIMINGS, Timings
from graphflow.errors import LayoutConflict
from graphflow.flow.candidates import Candidate, Candidates, Need, enumerate_candidates, output_need
from graphflow.flow.copies import Copy, directly
from graphflow.flow.labels import padding_regions
from graphflow.flow.moves import executed_moves
from graphflow.flow.plan import (
    Cancelled,
    Choice,
    Conversion,
    EdgePlan,
    Label,
    LayoutPlan,
    Refused,
)
from graphflow.flow.solve import Problem, Solution
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import Padding, memory_key
from graphflow.layout import (
    Demand,
    Fact,
    Layout,
    Undefined,
    Unused,
    families,
    row_major,
    serves,
)
from graphflow.target import Target


def plan_layouts(
    graph: OperatorGraph,
    target: Target,
    threads: int,
    pins: Mapping[str, Layout | str] | None = None,
    timings: Timings = NO_TIMINGS,
) -> LayoutPlan:
    """The cheapest plan for `graph`; `pins` names a layout, or its description, for some values.

    Prices are estimated where `timings` has none.

    LayoutConflict says which constraints clash where there is none.
    """
    pinned = {name: _pin(graph, name, pin, target) for name, pin in (pins or {}).items()}
    candidates = enumerate_candidates(graph, target, threads, pinned, timings)
    problem = Problem(graph, candidates, target, threads, timings=timings)
    other = problem.differing(problem.best.candidates.values())
    return _Writer(graph, candidates, problem.best, other).plan()


def _pin(graph: OperatorGraph, name: str, pin: Layout | str, target: Target) -> Layout:
    value = graph.values.get(name)
    if value is None:
        known = ", ".join(list(graph.values)[:8])
        raise LayoutConflict(f"cannot pin {name}: no such edge after fusion; there are {known} …")
    if isinstance(pin, Layout):
        if pin.logical_shape != value.shape:
            raise LayoutConflict(
                f"the layout pinned to {name} is for shape {list(pin.logical_shape)}, and the "
                f"tensor has {list(value.shape)}"
            )
        return pin
    offered: dict[str, Layout] = {}
    for family in families(len(value.shape), target.lanes()):
        layout = family.instantiate(value.shape)
        if layout is not None:
            offered |= {family.name: layout, family.construction.value: layout}
            offered.setdefault(layout.describe(), layout)
    if pin not in offered:
        raise LayoutConflict(f"cannot pin {name} to {pin!r}; it can be one of {sorted(offered)}")
    return offered[pin]


class _Writer:
    """Writes a solution down as a plan, with reasons."""

    def __init__(
        self,
        graph: OperatorGraph,
        candidates: Candidates,
        best: Solution,
        other: Solution | None,
    ) -> None:
        self.graph, self.candidates = graph, candidates
        self.best, self.other = best, other
        self.labels: dict[str, Label] = {name: candidates.labels[name][0] for name in graph.inputs}
        for candidate in best.candidates.values():
            self.labels |= dict(candidate.gives)

    def plan(self) -> LayoutPlan:
        """The plan, with everything in the order of the graph."""
        conversions, cancelled = self._edges()
        chosen = self.best.candidates
        return LayoutPlan(
            choices={name: self._choice(c) for name, c in chosen.items()},
            edges={name: self._edge(name, label) for name, label in self.labels.items()},
            conversions=conversions,
            moves=tuple(executed_moves(self.graph, self.candidates, self.best, self.labels)),
            demands={
                (c.node, n.position): (n.layout, n.demand) for c in chosen.values() for n in c.needs
            },
            cancelled=cancelled,
            refused=tuple(r for c in chosen.values() for r in self._refusals(c)),
            seconds=self.best.seconds,
            next_best=None if self.other is None else max(self.other.seconds, self.best.seconds),
            gap=self.best.gap,
        )

    def _choice(self, candidate: Candidate) -> Choice:
        options = self.candidates.of_node[candidate.node]
        others: dict[str, float] = {}
        for option in options:
            name = _form_name(option)
            if option is not candidate:
                others[name] = min(others.get(name, option.seconds), option.seconds)
        cheapest = min(option.seconds for option in options)
        if candidate.seconds <= cheapest:
            because = "no other form of this node is cheaper by itself"
        else:
            extra = (candidate.seconds - cheapest) * 1e6
            because = f"{extra:.1f} µs more than its cheapest form, saved on the edges around it"
        because += ", as measured" if candidate.measured else ", as estimated"
        return Choice(
            candidate.node,
            candidate.alternative,
            candidate.pad_value,
            candidate.seconds,
            because,
            tuple(sorted(others.items(), key=lambda item: (item[1], item[0]))),
            candidate.measured,
        )

    def _edge(self, value: str, label: Label) -> EdgePlan:
        node = self.graph.producer(value)
        if node is None:
            return EdgePlan(value, label, "graph input", "graph inputs are row-major")
        choice = self.best.candidates[node.name]
        buffer = node.func.outputs[node.outputs.index(value)].name
        decided = f"{node.name} ({node.op}), output {buffer}, form {_form_name(choice)}"
        return EdgePlan(value, label, decided, self._choice(choice).because)

    def _needs(self) -> list[tuple[str, Need]]:
        found = [(c.node, need) for c in self.best.candidates.values() for need in c.needs]
        for value in self.graph.outputs:
            if not self.graph.is_constant(value):
                found.append(("", output_need(self.graph.values[value])))
        return found

    def _edges(self) -> tuple[tuple[Conversion, ...], tuple[Cancelled, ...]]:
        users: dict[int, list[tuple[str, int]]] = {}
        cancelled: list[Cancelled] = []
        for node, need in self._needs():
            label = self.labels[need.value]
            if self._direct(need):
                if label.layout != row_major(label.layout.logical_shape):
                    cancelled.append(_cancelled(node or "graph output", need, label))
                continue
            index = self._copy_for(need)
            users.setdefault(index, []).append((node, need.position))
        conversions = tuple(
            self._conversion(self.best.copies[k], tuple(users[k])) for k in sorted(users)
        )
        return conversions, tuple(cancelled)

    def _direct(self, need: Need) -> bool:
        maker = self.graph.producer(need.value)
        lies = None if maker is None else self.best.candidates[maker.name].lies
        output = need.value in self.graph.outputs
        return directly(self.labels[need.value], lies, need, output)

    def _copy_for(self, need: Need) -> int:
        for k, copy in enumerate(self.best.copies):
            if copy.value == need.value and copy.serves(need):
                return k
        raise AssertionError(f"the solution does not serve {need}")

    def _conversion(self, copy: Copy, consumers: tuple[tuple[str, int], ...]) -> Conversion:
        source = self.labels[copy.value]
        same = memory_key(source.layout) == memory_key(copy.target.layout)
        kind = copy.kind if not same or copy.kind == "fill" else "copy"
        maker = self.graph.producer(copy.value)
        origin = "the graph input" if maker is None else f"{maker.name} ({maker.op})"
        wants = [
            f"{node} ({self.graph.node(node).op}) input {position}" if node else "the graph output"
            for node, position in consumers
        ]
        because = (
            f"{origin} gives {source.describe()}; {', '.join(wants)} wants {copy.target.describe()}"
        )
        return Conversion(
            copy.value, source, copy.target, consumers, kind, copy.seconds, copy.bytes, because,
            copy.measured,
        )  # fmt: skip

    def _refusals(self, candidate: Candidate) -> list[Refused]:
        """Pairs that a form of this node could have met without repair, had the facts allowed."""
        found: list[Refused] = []
        for need in candidate.needs:
            natural = self._natural(need.value)
            if natural is None or memory_key(natural.layout) != memory_key(need.layout):
                continue
            for demand in self._other_demands(candidate, need):
                failing = [(r, f) for r, f in natural.facts if not serves(f, demand)]
                if failing:
                    region, fact = failing[0]
                    maker = self.graph.producer(need.value)
                    assert maker is not None
                    reason = (
                        f"{maker.name} ({maker.op}) leaves {fact} in {region} of "
                        f"{natural.layout.describe()}, and {candidate.node} "
                        f"({self.graph.node(candidate.node).op}) without a mask needs it {demand}"
                    )
                    found.append(
                        Refused(need.value, candidate.node, reason, self._repair(candidate, need))
                    )
                    break
        return found

    def _other_demands(self, candidate: Candidate, need: Need) -> list[Demand]:
        demands: dict[Demand, None] = {}
        for option in self.candidates.of_node[candidate.node]:
            for other in option.needs:
                same = memory_key(other.layout) == memory_key(need.layout)
                if other.position == need.position and same and other.demand != Unused():
                    demands[other.demand] = None
        return list(demands)

    def _natural(self, value: str) -> Label | None:
        """The label that the chosen form would give if its epilogue wrote no padding."""
        node = self.graph.producer(value)
        if node is None:
            return None
        chosen = self.best.candidates[node.name]
        if chosen.pad_value is None:
            return self.labels[value]
        facts: list[tuple[str, Fact]] = []
        layout = self.labels[value].layout
        for option in self.candidates.of_node[node.name]:
            same = memory_key(option.gives[0][1].layout) == memory_key(layout)
            evaluated = option.alternative.padding is Padding.EVALUATED
            if option.pad_value is None and same and evaluated and option.gives[0][1].facts:
                facts = list(option.gives[0][1].facts)
        known: list[tuple[str, Fact]] = [(r, Undefined()) for r in padding_regions(layout)]
        return Label(layout, tuple(facts or known))

    def _repair(self, candidate: Candidate, need: Need) -> str:
        node = self.graph.producer(need.value)
        assert node is not None
        maker = self.best.candidates[node.name]
        if maker.pad_value is not None:
            return f"a select in the epilogue of {node.name} writes {maker.pad_value} there"
        if not self._direct(need):
            copy = self.best.copies[self._copy_for(need)]
            return f"a {copy.kind} of {need.value} to {copy.target.describe()}"
        return f"{candidate.node} masks what it reads (form {_form_name(candidate)})"


def _form_name(candidate: Candidate) -> str:
    pad = "" if candidate.pad_value is None else f", padding written as {candidate.pad_value}"
    return candidate.alternative.name + pad


def _cancelled(consumer: str, need: Need, label: Label) -> Cancelled:
    """`pad(crop(p)) → p`: the layouts are one, and every region serves its reader."""
    same = Proof(
        Verdict.PROVEN,
        f"{label.layout.describe()} and {need.layout.describe()} place every element alike",
        "equal index maps and boxes",
    )
    facts = tuple(
        Proof(Verdict.PROVEN, f"{region} holds {fact}, needed {need.demand}", "fact and demand")
        for region, fact in label.facts
    ) or (Proof(Verdict.PROVEN, "there is no padding", "structure"),)
    return Cancelled(need.value, consumer, label.layout, (same, *facts))
