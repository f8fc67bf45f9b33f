"""A solution written down as a plan, with reasons.

In: the graph, its candidates, the best solution and the next best, and what other candidates would
cost.  Out: a frozen `LayoutPlan`.
What always holds: everything is in the order of the graph; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from graphflow.flow.candidates import Candidate, Candidates, Need, output_need
from graphflow.flow.copies import Copy, directly
from graphflow.flow.labels import label_key, padding_regions, serving
from graphflow.flow.moves import executed_moves
from graphflow.flow.plan import (
    Cancelled,
    Choice,
    Conversion,
    Difference,
    EdgePlan,
    Label,
    LayoutPlan,
    Other,
    Refused,
)
from graphflow.flow.solve import Solution
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import Padding, memory_key
from graphflow.layout import Demand, Fact, Undefined, Unused, row_major, serves


def write_plan(
    graph: OperatorGraph,
    candidates: Candidates,
    best: Solution,
    other: Solution | None,
    extras: Mapping[str, Sequence[float]],
) -> LayoutPlan:
    """The plan of a solution; `other` is the next best, `extras` are as `Problem.extras` gives."""
    return _Writer(graph, candidates, best, other, extras).plan()


def moved_values(graph: OperatorGraph, candidates: Candidates, best: Solution) -> set[str]:
    """The values that a solution copies or moves for some node, their padding aside."""
    writer = _Writer(graph, candidates, best, None, {})
    return {
        made.value
        for made in (*writer.edges()[0], *writer.moves())
        if made.kind != "fill" and any(node for node, _ in made.consumers)
    }


class _Writer:
    def __init__(
        self,
        graph: OperatorGraph,
        candidates: Candidates,
        best: Solution,
        other: Solution | None,
        extras: Mapping[str, Sequence[float]],
    ) -> None:
        self.graph, self.candidates = graph, candidates
        self.best, self.other, self.extras = best, other, extras
        self.labels: dict[str, Label] = {name: candidates.labels[name][0] for name in graph.inputs}
        for candidate in best.candidates.values():
            self.labels |= dict(candidate.gives)

    def plan(self) -> LayoutPlan:
        """The plan, with everything in the order of the graph."""
        conversions, cancelled = self.edges()
        chosen = self.best.candidates
        return LayoutPlan(
            choices=self.choices,
            edges={name: self._edge(name, label) for name, label in self.labels.items()},
            conversions=conversions,
            moves=self.moves(),
            demands={
                (c.node, n.position): (n.layout, n.demand) for c in chosen.values() for n in c.needs
            },
            cancelled=cancelled,
            refused=tuple(r for c in chosen.values() for r in self._refusals(c)),
            seconds=self.best.seconds,
            next_best=None if self.other is None else max(self.other.seconds, self.best.seconds),
            differences=tuple(self._differences()),
            gap=self.best.gap,
        )

    def moves(self) -> tuple[Conversion, ...]:
        """The nodes that only move elements."""
        return tuple(executed_moves(self.graph, self.candidates, self.best, self.labels))

    @cached_property
    def choices(self) -> dict[str, Choice]:
        """The choice of each node."""
        return {name: self._choice(c) for name, c in self.best.candidates.items()}

    def _differences(self) -> Iterator[Difference]:
        if self.other is None:
            return
        for node, taken in self.best.candidates.items():
            instead = self.other.candidates[node]
            if instead is not taken:
                names = _form_name(taken), _form_name(instead)
                if names[0] == names[1]:
                    names = _in_full(taken), _in_full(instead)
                yield Difference(node, *names)

    def _choice(self, candidate: Candidate) -> Choice:
        options = self.candidates.of_node[candidate.node]
        form = _form_name(candidate)
        others: dict[str, Other] = {}
        for other in self.others[candidate.node]:
            if other.form != form:
                others.setdefault(other.form, other)
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
            form,
            candidate.pad_value,
            candidate.seconds,
            because,
            tuple(sorted(others.values(), key=lambda other: (other.seconds, other.form))),
            candidate.measured,
            self.candidates.refused.get(candidate.node, ()),
        )

    @cached_property
    def others(self) -> dict[str, list[Other]]:
        """The other candidates of each node, those of the cheapest plans first."""
        return {name: self._others(c) for name, c in self.best.candidates.items()}

    def _others(self, candidate: Candidate) -> list[Other]:
        options = self.candidates.of_node[candidate.node]
        extras = self.extras.get(candidate.node, [None] * len(options))
        found = [
            Other(_form_name(option), option.gives[0][1], option.seconds, extra, option.measured)
            for option, extra in zip(options, extras, strict=True)
            if option is not candidate
        ]
        return sorted(found, key=lambda o: (0.0 if o.extra is None else o.extra, o.seconds, o.form))

    def _edge(self, value: str, label: Label) -> EdgePlan:
        node = self.graph.producer(value)
        if node is None:
            return EdgePlan(value, label, "graph input", "graph inputs are row-major")
        others: dict[object, Other] = {}
        for other in self.others[node.name]:
            if label_key(other.label) != label_key(label):
                others.setdefault(label_key(other.label), other)
        because = self.choices[node.name].because
        return EdgePlan(value, label, self._giver(value), because, tuple(others.values()))

    def _giver(self, value: str) -> str:
        """Whose form decides the label of a value: node, buffer and form."""
        node = self.graph.producer(value)
        if node is None:
            return "the graph input"
        buffer = node.func.outputs[node.outputs.index(value)].name
        form = _form_name(self.best.candidates[node.name])
        return f"{node.name} ({node.op}), output {buffer}, form {form}"

    def _reader(self, node: str, position: int) -> str:
        """Whose form wants a value in a layout, likewise."""
        if not node:
            return "the graph output"
        reader = self.graph.node(node)
        form = _form_name(self.best.candidates[node])
        return f"{node} ({reader.op}), input {reader.func.inputs[position].name}, form {form}"

    def _needs(self) -> list[tuple[str, Need]]:
        found = [(c.node, need) for c in self.best.candidates.values() for need in c.needs]
        for value in self.graph.outputs:
            if not self.graph.is_constant(value):
                found.append(("", output_need(self.graph.values[value])))
        return found

    def edges(self) -> tuple[tuple[Conversion, ...], tuple[Cancelled, ...]]:
        """The copies that are made, and the pairs that need none."""
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
        wants = [self._reader(node, position) for node, position in consumers]
        because = (
            f"{self._giver(copy.value)} gives {source.describe()}; {', '.join(wants)} wants "
            f"{copy.target.describe()}"
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
            if natural is None or not natural.facts:
                continue
            if memory_key(natural.layout) != memory_key(need.layout):
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
        place = memory_key(need.layout)
        for option in self.candidates.of_node[candidate.node]:
            for other in option.needs:
                asks = other.position == need.position and not isinstance(other.demand, Unused)
                if asks and memory_key(other.layout) == place:
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
            own = option.alternative.recipe == chosen.alternative.recipe and same and evaluated
            if own and option.pad_value is None and self._rests_on_what_is(option):
                stronger = any(fact != Undefined() for _, fact in option.gives[0][1].facts)
                facts = list(option.gives[0][1].facts) if stronger or not facts else facts
        known: list[tuple[str, Fact]] = [(r, Undefined()) for r in padding_regions(layout)]
        return Label(layout, tuple(facts or known))

    def _rests_on_what_is(self, option: Candidate) -> bool:
        """Whether the facts that a candidate's claims rest on hold where its node reads now."""
        reading = {need.position: need for need in self.best.candidates[option.node].needs}
        for need in option.needs:
            chosen = reading[need.position]
            source = self.labels[need.value]
            if not self._direct(chosen):
                source = self.best.copies[self._copy_for(chosen)].target
            known = dict(source.facts)
            if any(f != Undefined() and known.get(region) != f for region, f in need.facts):
                return False
        return True

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


def _in_full(candidate: Candidate) -> str:
    """A form with what tells apart candidates of the same: where its output lies, what it holds."""
    given = ", ".join(label.describe() for _, label in candidate.gives)
    read = ", ".join(dict.fromkeys(need.place.value for need in candidate.needs))
    return f"{_form_name(candidate)}, giving {given}, {candidate.lies.value}; inputs {read}"


def _cancelled(consumer: str, need: Need, label: Label) -> Cancelled:
    """`pad(crop(p)) → p`: the layouts are one, and every region serves its reader."""
    proofs = serving(label, need.layout, need.demand)
    return Cancelled(need.value, consumer, label.layout, tuple(proofs))
