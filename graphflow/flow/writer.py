"""Write a solution of the solver down as a `LayoutPlan`, with the reason for each decision.

In: the graph, its candidates, the best and the next best solution, and what the other candidates
would cost.  Out: a frozen `LayoutPlan`.  What always holds: everything is in the order of the
graph, and nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from graphflow.flow.candidates.candidates import Candidate, Candidates
from graphflow.flow.candidates.copies import Copy, directly
from graphflow.flow.candidates.requirements import (
    OperandRequirement,
    Production,
    output_requirement,
)
from graphflow.flow.executed_moves import executed_moves
from graphflow.flow.solve import Solution
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import Padding, Recipe, Staged, conversion_recipe, memory_key
from graphflow.layout import Demand, Fact, Undefined, Unused, row_major, serves
from graphflow.plan import (
    Cancelled,
    Choice,
    Conversion,
    CopyKind,
    Difference,
    EdgePlan,
    EdgeType,
    LayoutPlan,
    Other,
    Refused,
    edge_type_key,
    padding_regions,
    serving,
)


def write_plan(
    graph: OperatorGraph,
    candidates: Candidates,
    best: Solution,
    other: Solution | None,
    extras: Mapping[str, Sequence[float]],
) -> LayoutPlan:
    """The plan of the solution `best`.

    `other` is the next best solution (None: not known), `extras` what `Problem.extras` returns.
    """
    return _Writer(graph, candidates, best, other, extras).plan()


class _Writer:
    """One plan while it is written; the parts of the plan are methods."""

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
        self.edge_types: dict[str, EdgeType] = {
            name: candidates.edge_types[name][0] for name in graph.inputs
        }
        for candidate in best.candidates.values():
            self.edge_types |= dict(candidate.gives)

    def plan(self) -> LayoutPlan:
        """The plan, everything in the order of the graph."""
        conversions, cancelled = self.edges()
        chosen = self.best.candidates
        return LayoutPlan(
            choices=self.choices,
            edges={
                name: self._edge(name, edge_type) for name, edge_type in self.edge_types.items()
            },
            conversions=conversions,
            moves=self.moves(),
            demands={
                (c.node, n.position): (n.layout, n.demand)
                for c in chosen.values()
                for n in c.requirements
            },
            cancelled=cancelled,
            refused=tuple(r for c in chosen.values() for r in self._refusals(c)),
            seconds=self.best.seconds,
            next_best=None if self.other is None else max(self.other.seconds, self.best.seconds),
            differences=tuple(self._differences()),
            gap=self.best.gap,
        )

    def moves(self) -> tuple[Conversion, ...]:
        """The executed nodes that only move elements."""
        return tuple(
            executed_moves(self.graph, self.candidates, self.best, self.edge_types, self.extras)
        )

    @cached_property
    def choices(self) -> dict[str, Choice]:
        """The choice of each node, by name."""
        return {name: self._choice(c) for name, c in self.best.candidates.items()}

    def _differences(self) -> Iterator[Difference]:
        if self.other is None:
            return
        for node, taken in self.best.candidates.items():
            instead = self.other.candidates[node]
            if instead is not taken:
                names = _variant_name(taken), _variant_name(instead)
                if names[0] == names[1]:
                    names = _in_full(taken), _in_full(instead)
                yield Difference(node, *names)

    def _choice(self, candidate: Candidate) -> Choice:
        options = self.candidates.of_node[candidate.node]
        variant = _variant_name(candidate)
        others: dict[str, Other] = {}
        for other in self.others[candidate.node]:
            if other.variant != variant:
                others.setdefault(other.variant, other)
        cheapest = min(option.seconds for option in options)
        if candidate.seconds <= cheapest:
            because = "no other variant of this node is cheaper by itself"
        else:
            extra = (candidate.seconds - cheapest) * 1e6
            because = f"{extra:.1f} µs more than its cheapest variant, saved on the edges around it"
        because += ", as measured" if candidate.measured else ", as estimated"
        if candidate.expansion is not None:
            because += f"; {candidate.expansion.because}"
        return Choice(
            candidate.node,
            candidate.variant,
            variant,
            candidate.pad_value,
            candidate.seconds,
            because,
            tuple(sorted(others.values(), key=lambda other: (other.seconds, other.variant))),
            candidate.measured,
            self.candidates.refused.get(candidate.node, ()),
        )

    @cached_property
    def others(self) -> dict[str, list[Other]]:
        """The candidates of each node that were not taken, by the price of the best plan
        with each.
        """
        return {name: self._others(c) for name, c in self.best.candidates.items()}

    def _others(self, candidate: Candidate) -> list[Other]:
        options = self.candidates.of_node[candidate.node]
        extras = self.extras.get(candidate.node, [None] * len(options))
        found = [
            Other(
                _variant_name(option),
                option.gives[0][1],
                option.seconds,
                extra,
                option.measured,
            )
            for option, extra in zip(options, extras, strict=True)
            if option is not candidate and not option.unmoved
        ]
        return sorted(
            found, key=lambda o: (0.0 if o.extra is None else o.extra, o.seconds, o.variant)
        )

    def _edge(self, value: str, edge_type: EdgeType) -> EdgePlan:
        node = self.graph.producer(value)
        if node is None:
            return EdgePlan(value, edge_type, "graph input", "graph inputs are row-major")
        others: dict[object, Other] = {}
        for other in self.others[node.name]:
            if edge_type_key(other.edge_type) != edge_type_key(edge_type):
                others.setdefault(edge_type_key(other.edge_type), other)
        because = self.choices[node.name].because
        return EdgePlan(value, edge_type, self._decider(value), because, tuple(others.values()))

    def _decider(self, value: str) -> str:
        """Who decides the edge type of a value, in words: node, buffer and variant."""
        node = self.graph.producer(value)
        if node is None:
            return "the graph input"
        buffer = node.func.outputs[node.outputs.index(value)].name
        variant = _variant_name(self.best.candidates[node.name])
        return f"{node.name} ({node.op}), output {buffer}, variant {variant}"

    def _reader(self, node: str, position: int) -> str:
        """Who requires a value in a layout, in words: node, input and variant."""
        if not node:
            return "the graph output"
        reader = self.graph.node(node)
        variant = _variant_name(self.best.candidates[node])
        return f"{node} ({reader.op}), input {reader.func.inputs[position].name}, variant {variant}"

    def _requirements(self) -> list[tuple[str, OperandRequirement]]:
        found = [
            (c.node, requirement)
            for c in self.best.candidates.values()
            for requirement in c.requirements
        ]
        for value in self.graph.outputs:
            if not self.graph.is_constant(value):
                found.append(("", output_requirement(self.graph.values[value])))
        return found

    def edges(self) -> tuple[tuple[Conversion, ...], tuple[Cancelled, ...]]:
        """The copies that the plan makes, and the crop/pad pairs that cancel."""
        users: dict[int, list[tuple[str, OperandRequirement]]] = {}
        cancelled: list[Cancelled] = []
        for node, requirement in self._requirements():
            edge_type = self.edge_types[requirement.value]
            if self._direct(requirement):
                if edge_type.layout != row_major(edge_type.layout.logical_shape):
                    cancelled.append(_cancelled(node or "graph output", requirement, edge_type))
                continue
            index = self._copy_for(requirement)
            users.setdefault(index, []).append((node, requirement))
        conversions = tuple(
            self._conversion(self.best.copies[k], tuple(users[k])) for k in sorted(users)
        )
        return conversions, tuple(cancelled)

    @cached_property
    def _copies_of(self) -> dict[str, list[int]]:
        """The numbers of the copies of each value."""
        found: dict[str, list[int]] = {}
        for k, copy in enumerate(self.best.copies):
            found.setdefault(copy.value, []).append(k)
        return found

    def _direct(self, requirement: OperandRequirement) -> bool:
        maker = self.graph.producer(requirement.value)
        output_aliasing = (
            None if maker is None else self.best.candidates[maker.name].output_aliasing
        )
        production = Production(self.edge_types[requirement.value], output_aliasing)
        return directly(production, requirement, requirement.value in self.graph.outputs)

    def _copy_for(self, requirement: OperandRequirement) -> int:
        for k in self._copies_of.get(requirement.value, ()):
            if self.best.copies[k].serves(requirement):
                return k
        raise AssertionError(f"the solution does not serve {requirement}")

    def _conversion(
        self, copy: Copy, users: tuple[tuple[str, OperandRequirement], ...]
    ) -> Conversion:
        source = self.edge_types[copy.value]
        same = memory_key(source.layout) == memory_key(copy.target.layout)
        kind = copy.kind if not same or copy.kind == CopyKind.FILL else CopyKind.COPY
        consumers = tuple((node, requirement.position) for node, requirement in users)
        wants = [self._reader(node, position) for node, position in consumers]
        because = (
            f"{self._decider(copy.value)} gives {source.describe()}; {', '.join(wants)} wants "
            f"{copy.target.describe()}"
        )
        if kind == CopyKind.COPY:  # the layouts agree
            memory = {requirement.input_aliasing.memory for _, requirement in users} - {""}
            because = " ".join([because, *sorted(memory)])
        dtype = self.graph.values[copy.value].dtype
        recipe: Recipe = Staged()
        if kind != CopyKind.FILL:
            recipe = conversion_recipe(source.layout, copy.target.layout, dtype)
        return Conversion(
            copy.value, source, copy.target, consumers, kind, copy.seconds, copy.bytes, because,
            recipe, copy.measured,
        )  # fmt: skip

    def _refusals(self, candidate: Candidate) -> list[Refused]:
        """Pairs of crop and pad that another variant of this node would cancel if the facts
        permitted it.
        """
        found: list[Refused] = []
        for requirement in candidate.requirements:
            natural = self._natural(requirement.value)
            if natural is None or not natural.facts:
                continue
            if memory_key(natural.layout) != memory_key(requirement.layout):
                continue
            for demand in self._other_demands(candidate, requirement):
                failing = [(r, f) for r, f in natural.facts if not serves(f, demand)]
                if failing:
                    region, fact = failing[0]
                    maker = self.graph.producer(requirement.value)
                    assert maker is not None
                    reason = (
                        f"{maker.name} ({maker.op}) leaves {fact} in {region} of "
                        f"{natural.layout.describe()}, and {candidate.node} "
                        f"({self.graph.node(candidate.node).op}) without a mask needs it {demand}"
                    )
                    found.append(
                        Refused(
                            requirement.value,
                            candidate.node,
                            reason,
                            self._repair(candidate, requirement),
                        )
                    )
                    break
        return found

    def _other_demands(self, candidate: Candidate, requirement: OperandRequirement) -> list[Demand]:
        demands: dict[Demand, None] = {}
        place = memory_key(requirement.layout)
        for option in self._alike(candidate):
            for other in option.requirements:
                asks = other.position == requirement.position and not isinstance(
                    other.demand, Unused
                )
                if asks and memory_key(other.layout) == place:
                    demands[other.demand] = None
        return list(demands)

    def _alike(self, candidate: Candidate) -> list[Candidate]:
        """The candidates of the same node and definition, whose inputs are the same tensors."""
        return [
            option
            for option in self.candidates.of_node[candidate.node]
            if option.definition is candidate.definition and not option.unmoved
        ]

    def _natural(self, value: str) -> EdgeType | None:
        """The edge type that the producer's variant would leave without writing padding in its
        epilogue.
        """
        node = self.graph.producer(value)
        if node is None:
            return None
        chosen = self.best.candidates[node.name]
        if chosen.pad_value is None:
            return self.edge_types[value]
        facts: list[tuple[str, Fact]] = []
        layout = self.edge_types[value].layout
        for option in self._alike(chosen):
            same = memory_key(option.gives[0][1].layout) == memory_key(layout)
            evaluated = option.variant.padding is Padding.EVALUATED
            own = option.variant.recipe == chosen.variant.recipe and same and evaluated
            if own and option.pad_value is None and self._facts_hold(option):
                stronger = any(fact != Undefined() for _, fact in option.gives[0][1].facts)
                facts = list(option.gives[0][1].facts) if stronger or not facts else facts
        known: list[tuple[str, Fact]] = [(r, Undefined()) for r in padding_regions(layout)]
        return EdgeType(layout, tuple(facts or known))

    def _facts_hold(self, option: Candidate) -> bool:
        """Whether the facts that a candidate's productions rely on hold for what its node reads
        now.
        """
        current = {
            requirement.position: requirement
            for requirement in self.best.candidates[option.node].requirements
        }
        for requirement in option.requirements:
            chosen = current[requirement.position]
            source = self.edge_types[requirement.value]
            if not self._direct(chosen):
                source = self.best.copies[self._copy_for(chosen)].target
            known = dict(source.facts)
            if any(f != Undefined() and known.get(region) != f for region, f in requirement.facts):
                return False
        return True

    def _repair(self, candidate: Candidate, requirement: OperandRequirement) -> str:
        node = self.graph.producer(requirement.value)
        assert node is not None
        maker = self.best.candidates[node.name]
        if maker.pad_value is not None:
            return f"a select in the epilogue of {node.name} writes {maker.pad_value} there"
        if not self._direct(requirement):
            copy = self.best.copies[self._copy_for(requirement)]
            return f"a {copy.kind} of {requirement.value} to {copy.target.describe()}"
        return f"{candidate.node} masks what it reads (variant {_variant_name(candidate)})"


def _variant_name(candidate: Candidate) -> str:
    pad = "" if candidate.pad_value is None else f", padding written as {candidate.pad_value}"
    return candidate.variant.name + pad


def _in_full(candidate: Candidate) -> str:
    """A candidate in words, with all that distinguishes candidates of one variant."""
    produced = ", ".join(edge_type.describe() for _, edge_type in candidate.gives)
    read = ", ".join(
        dict.fromkeys(requirement.input_aliasing.value for requirement in candidate.requirements)
    )
    aliasing = candidate.output_aliasing.value
    return f"{_variant_name(candidate)}, giving {produced}, {aliasing}; inputs {read}"


def _cancelled(consumer: str, requirement: OperandRequirement, edge_type: EdgeType) -> Cancelled:
    """The record that `pad(crop(p)) → p`: the layouts are equal, and every region meets the
    demand.
    """
    proofs = serving(edge_type, requirement.layout, requirement.demand)
    return Cancelled(requirement.value, consumer, edge_type.layout, tuple(proofs))
