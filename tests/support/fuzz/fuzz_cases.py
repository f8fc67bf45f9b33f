"""One case of the graph fuzzer: it is drawn from a seed, run, compared, and shrunk if wrong.

In: a seed.  Out: an `Outcome`: what was wrong, and what the plan contained.  Layouts are pinned on
random inner tensors, if their producers and readers have variants for them.  In half of the cases
variants and copies have random prices, so that plans occur that the cost model would not choose; a
plan has to be correct at any price.  In half of the cases no reduction over padding has a mask, so
that it relies on the facts about the padding, and in half of these writing a constant to padding is
expensive, so that it relies on padding that its producer computes.  The kernels run in poison mode
with each poison; the outputs are compared with onnxruntime and, bit by bit, with each other.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import onnx

import graphflow as gf
from graphflow.base.errors import InvalidModel, LayoutConflict
from graphflow.base.fields import replace
from graphflow.codegen import host_target
from graphflow.cost import Price, Timings
from graphflow.flow import variants_of
from graphflow.flow.candidates import candidates
from graphflow.flow.candidates.pricing import VariantPrices
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse_groups
from graphflow.kernels.recipes import KernelVariant, memory_key
from graphflow.layout import Layout, families
from graphflow.pipeline import compiler_stages
from graphflow.pipeline.compiler_stages import Stage
from support.fuzz.fuzz_reference import Peer, Reference, differs
from support.fuzz.fuzz_test import shrunk
from support.models.fuzzing import random_model
from support.padded import HUGE, POISONS, Array, Arrays, compile_pinned, no_masks, normal_inputs

SPECIAL_SHARE = 0.1
SPECIALS = (
    (np.inf, -np.inf, np.nan, -0.0, 1e-40, -3e-42, 1e38, -1e38),
    (np.inf, -np.inf, np.nan, -0.0, 1e-40),
    (1e38, -1e38, -0.0, 1e-40, np.inf),
    (np.inf, -0.0, 1e-40, -3e-42),
    (1e38, -0.0, 1e-40, -3e-42),
    (-0.0, 1e-40, -3e-42),
)
"""What is sprinkled into the inputs; the later ones for models in which the former show nothing."""

ATTEMPTS = 4
"""Inputs that are drawn for one model, and models for one seed, until a case is comparable."""


@dataclass(frozen=True)
class Case:
    """A model with its inputs, what they must give, and how it is planned.

    `prices` is the seed of random ones; `bare` leaves out the masks of reductions; `reluctant`
    makes it dear to write constants to padding.
    """

    model: onnx.ModelProto
    inputs: Arrays
    expected: Arrays
    pins: Mapping[str, Layout]
    prices: int | None = None
    bare: bool = False
    reluctant: bool = False
    special: bool = False
    refused: tuple[str, ...] = ()
    """Why what was drawn before is not compared."""

    def __str__(self) -> str:
        pins = ", ".join(f"{name} in {pin.describe()}" for name, pin in self.pins.items())
        text = onnx.printer.to_text(_without_data(self.model))
        kind = "special" if self.special else "normal"
        prices = "the cost model's" if self.prices is None else f"random by {self.prices}"
        masks = "left out" if self.bare else "allowed"
        writes = "dear" if self.reluctant else "as they are"
        return (
            f"{text}\npins: {pins or 'none'}\ninputs: {kind}\nprices: {prices}\nmasks: {masks}\n"
            f"constants in padding: {writes}"
        )


@dataclass(frozen=True)
class Outcome:
    """What a case showed; `wrong` is empty where everything is right.

    `crashed`: there are no numbers, and `wrong` is an exception.
    `padded`: some region of an edge is undefined or has a constant written to it; `cancelled`: a
    pair was; `poisoned` counts elements.
    """

    wrong: str
    padded: bool = False
    cancelled: bool = False
    poisoned: int = 0
    crashed: bool = False


def _without_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the numbers of large initializers, for people to read."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    small = [tensor for tensor in shown.graph.initializer if np.prod(tensor.dims) <= 8]
    del shown.graph.initializer[:]
    shown.graph.initializer.extend(small)
    return shown


def is_special(seed: int, share: float = SPECIAL_SHARE) -> bool:
    """Whether the inputs of a seed are sprinkled with special numbers."""
    return bool(np.random.default_rng((seed, 1)).random() < share)


def make_case(
    seed: int,
    model_of: Callable[[int], onnx.ModelProto] = random_model,
    share: float = SPECIAL_SHARE,
) -> Case:
    """The case of a seed: the first model and inputs drawn that can be compared.

    `share` of the seeds have special numbers in their inputs.
    """
    special = is_special(seed, share)
    refused: list[str] = []
    for attempt in range(ATTEMPTS):
        model = model_of(seed + (attempt << 32))
        peer = Peer(model)
        for draw in range(len(SPECIALS) if special else ATTEMPTS):
            inputs = normal_inputs(model, seed + draw)
            if special:
                inputs = _sprinkled(inputs, SPECIALS[draw], (seed, 2))
            found = peer.reference(inputs, seed)
            if not found.refused and _shows(found):
                prices, bare = seed if seed % 2 else None, seed % 4 > 1
                with no_masks() if bare else nullcontext():
                    pins = random_pins(model, seed, bare)
                return Case(
                    model=model,
                    inputs=inputs,
                    expected=found.outputs,
                    pins=pins,
                    prices=prices,
                    bare=bare,
                    reluctant=bare and seed % 8 > 3,
                    special=special,
                    refused=tuple(refused),
                )
            refused.append(found.refused or "shows nothing")
    raise AssertionError(f"seed {seed} gives no case that can be compared: {refused}")


def _shows(found: Reference) -> bool:
    """Whether some output has numbers that differ from each other."""
    return any(
        np.unique(array[np.isfinite(array)]).size > 1 or array.size == 1
        for array in found.outputs.values()
    )


def _sprinkled(inputs: Arrays, values: tuple[float, ...], seed: tuple[int, int]) -> Arrays:
    """Special numbers in each input; one at most is huge, so that sums stay finite."""
    rng = np.random.default_rng(seed)
    small = [value for value in values if not HUGE < abs(value) < np.inf]
    found = {}
    for name, array in inputs.items():
        changed = array.copy()
        places = rng.integers(array.size, size=rng.integers(1, 2 + array.size // 60))
        changed.reshape(-1)[places] = rng.choice(small, size=places.size)
        changed.reshape(-1)[places[0]] = rng.choice(values)
        found[name] = changed
    return found


# Pins --------------------------------------------------------------------------------------------


def fused(model: onnx.ModelProto) -> OperatorGraph:
    """The groups that layouts are chosen for."""
    return fuse_groups(canonicalize(import_model(model)))


def random_pins(model: onnx.ModelProto, seed: int, bare: bool) -> dict[str, Layout]:
    """Layouts for some inner tensors, mostly padded ones, that leave every node a variant.

    `bare` graphs get more blocked ones: reductions run over the padding of these.
    """
    rng = np.random.default_rng((seed, 3))
    graph, target = fused(model), host_target()
    variants = variants_of(graph, target).of_node
    pins: dict[str, Layout] = {}
    values = [v for node in graph.nodes for v in node.outputs if not graph.is_constant(v)]
    share = rng.choice((0.0, 0.5, 1.0), p=(0.2, 0.2, 0.6))
    favourite = int(rng.choice(3, p=(0.1, 0.1, 0.8) if bare else (0.2, 0.4, 0.4)))
    for value in values:
        offered = families(len(graph.values[value].shape), target.lanes("float32"))[1:]
        if not offered or rng.random() > share:
            continue
        order = [favourite if rng.random() < 0.8 else int(rng.integers(3)), 2, 1]
        for number in order:
            layout = offered[number % len(offered)].instantiate(graph.values[value].shape)
            tried = {**pins, value: layout}
            if layout is not None and _offered(graph, variants, value, tried):
                pins = tried
                break
    return pins


def _offered(graph: OperatorGraph, variants: Any, value: str, pins: Mapping[str, Any]) -> bool:
    """Whether each node around `value` has a variant with all of the pins around it."""
    for node in graph.nodes:
        if node.name not in variants or value not in (*node.inputs, *node.outputs):
            continue
        bound = [
            (buffer.name, name)
            for buffer, name in (
                *zip(node.func.inputs, node.inputs, strict=True),
                *zip(node.func.outputs, node.outputs, strict=True),
            )
            if name in pins
        ]
        if not any(
            all(memory_key(f.layouts[b]) == memory_key(pins[n]) for b, n in bound)
            for f in variants[node.name]
        ):
            return False
    return True


# Running -----------------------------------------------------------------------------------------


class RandomPrices(Mapping[str, float]):
    """A price for everything, by its key and a seed; within two orders of magnitude."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __getitem__(self, key: str) -> float:
        return float(1e-6 * 100 ** (zlib.crc32(f"{self._seed} {key}".encode()) / 2**32))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


def compile_case(case: Case) -> gf.Executable:
    """The case compiled in poison mode.

    Pins that leave every node a variant can still clash, where a value would have to lie in two
    others; then later ones are dropped.
    """
    pins = dict(case.pins)
    while True:
        try:
            with _planned_as(case):
                return compile_pinned(case.model, pins, poison=True)
        except LayoutConflict:
            if not pins:
                raise
            pins = dict(list(pins.items())[: len(pins) // 2])


class _Reluctant(VariantPrices):
    """A kernel that writes a constant to padding costs a hundred times as much."""

    def price(self, variant: KernelVariant, pad: float | None) -> Price:
        found = super().price(variant, pad)
        return found if pad is None else replace(found, seconds=100 * found.seconds)


@contextmanager
def _planned_as(case: Case) -> Iterator[None]:
    """While it lasts, plans are made as the case says, and all in this process."""
    with ExitStack() as stack:
        if case.prices is not None:
            prices = Timings(RandomPrices(case.prices))
            for name in ("FUSE", "FLOW"):
                stage = _priced(getattr(compiler_stages, name), prices)
                stack.enter_context(mock.patch.object(compiler_stages, name, stage))
        if case.bare:
            stack.enter_context(no_masks())
        if case.reluctant:
            stack.enter_context(mock.patch.object(candidates, "VariantPrices", _Reluctant))
        yield


def _priced(stage: Stage[..., Any], prices: Timings) -> Stage[..., Any]:
    """A stage of the compiler with these prices."""

    def run(*given: Any) -> Any:
        return stage.run(*(prices if isinstance(x, Timings) else x for x in given))

    return replace(stage, run=run)


def run_case(case: Case) -> Outcome:
    """Compile and run a case with each poison."""
    try:
        executable = compile_case(case)
        found = [executable.run(case.inputs, poison=value) for value in POISONS]
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        return Outcome(f"{type(error).__name__}: {error} {notes}", crashed=True)
    wrong = next((text for text in (differs(one, case.expected) for one in found) if text), "")
    for name in case.expected:
        if not wrong and not all(_same_bits(found[0][name], one[name]) for one in found[1:]):
            wrong = f"{name} depends on the poison"
    return outcome(executable, wrong)


def _same_bits(a: Array, b: Array) -> bool:
    """Of whatever is not NaN: which NaN it is depends on the order of operands."""
    both = np.isnan(a) & np.isnan(b)
    return bool(np.array_equal(a[~both].view(np.uint32), b[~both].view(np.uint32)))


def outcome(executable: gf.Executable, wrong: str) -> Outcome:
    """What the plan of an executable has in it."""
    plan = executable.compiled.plan
    written = any(choice.pad_value is not None for choice in plan.choices.values())
    return Outcome(
        wrong, executable.poisoned > 0 or written, bool(plan.cancelled), executable.poisoned
    )


# Shrinking ---------------------------------------------------------------------------------------


def complaint(seed: int, case: Case) -> str:
    """What is wrong with the case of a seed, and a smaller one that is wrong too."""
    small = shrunk(case, smaller, lambda c: bool(run_case(c).wrong), 60)
    return f"seed {seed}: {run_case(case).wrong}\n\nshrunk: {run_case(small).wrong}\n{small}"


def smaller(case: Case) -> Iterator[Case]:
    """Fewer pins and outputs, and inner tensors as inputs."""
    values = Peer(case.model).values(case.inputs)
    outputs = [output.name for output in case.model.graph.output]
    if len(outputs) > 1:
        for name in outputs:
            yield from _cut(case, values, [name], ())
    for node in case.model.graph.node:
        for name in node.output:
            if name in values and name not in outputs and values[name].dtype == np.float32:
                yield from _cut(case, values, outputs, (name,))
                yield from _cut(case, values, [name], ())
    for name in case.pins:
        yield replace(case, pins={k: v for k, v in case.pins.items() if k != name})


def _cut(case: Case, values: Arrays, outputs: list[str], inputs: tuple[str, ...]) -> Any:
    """The nodes between `inputs`, the model's own, and `outputs`; at most one case."""
    graph = case.model.graph
    known = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}
    wanted, nodes = set(outputs), []
    for node in reversed(graph.node):
        if wanted & set(node.output) - set(inputs):
            nodes.append(node)
            wanted |= set(node.input)
    nodes.reverse()
    feeds = [n for n in (*(v.name for v in graph.input), *inputs) if n in wanted]
    made = onnx.helper.make_graph(
        nodes, "shrunk", [known[n] for n in feeds], [known[n] for n in outputs],
        [t for t in graph.initializer if t.name in wanted])  # fmt: skip
    model = onnx.helper.make_model(
        made, opset_imports=case.model.opset_import, ir_version=case.model.ir_version
    )
    try:
        graph_values = fused(model).values
        model = onnx.shape_inference.infer_shapes(model)
        expected = {n: values[n] for n in outputs}
    except (InvalidModel, KeyError):
        return
    pins = {name: pin for name, pin in case.pins.items() if name in graph_values}
    yield replace(
        case, model=model, inputs={n: values[n] for n in feeds}, expected=expected, pins=pins
    )
