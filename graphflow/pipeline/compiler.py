"""The compiler: its stages turn an ONNX model into a native program.

In: a model, shapes of its symbolic inputs, a target, options.  Out: a `Compiled` that keeps the
result of each stage, so that every later question about a decision is answered from it.  What
always holds: no worker process is left when a compilation ends, except those of a shared crew.
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx

from graphflow.base.arguments import check_arguments
from graphflow.base.assumed import Assumed, Assumption, Stated
from graphflow.base.options import Options, kernel_folder
from graphflow.base.target import Target
from graphflow.base.trace import CHANGES_LEVEL, Trace
from graphflow.codegen import host_target
from graphflow.cost import NO_TIMINGS, Timings, TimingTable
from graphflow.frontends import OwnOperators, ReadModel, frozen_inputs, tensor_names
from graphflow.graph import Array, OperatorGraph, take_assumptions
from graphflow.layout import Layout
from graphflow.lower import Lowered
from graphflow.physical import PhysicalGraph
from graphflow.pipeline import compiler_stages as stages
from graphflow.pipeline.compiler_stages import Model
from graphflow.pipeline.dumps import refusals_text
from graphflow.pipeline.kernel_cache import KernelCache, Made
from graphflow.plan import LayoutPlan
from graphflow.processes.collecting import collection_deferred
from graphflow.processes.workers import Crew, Workers
from graphflow.program import ProgramSpec
from graphflow.runtime import default_threads
from graphflow.schedule import ParameterLayout, Sketch, require_sketches
from graphflow.validation import Validation

Source: TypeAlias = "Model | ReadModel | OperatorGraph"

WORKER_MODULES = ("graphflow.pipeline.making",)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the compilations of one model for several shapes share: worker processes, and the
    contents of the model's initializers, by number."""

    crew: Crew = field(default_factory=lambda: Crew(*WORKER_MODULES))
    contents: dict[int, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Compiled:
    """The results of the stages: `imported` is the graph with one kernel per ONNX node, `graph` the
    fusion groups (with the expansions that the plan takes in place of their nodes), `plan` the
    decisions about `graph`, `lowered` its kernels, `spec` the program.

    `tensors` are the names of the model's own tensors, in its order; `stated` is what user-written
    kernels assume of its inputs; `frozen` are graph inputs whose initializers are constants.

    `timings` are seconds by stage and by step, `seconds` their total.  Times of worker processes
    count towards steps, whose sum may exceed their stage.  `notices` say which work was done in
    this process because a worker could not do it, and why.  `validation` is the comparison of
    kernels with their definitions; None without Options(validate=True).  `values` are the values of
    inputs that the program was compiled for: runs have to give them.  `cached` counts the kernels
    that an earlier compilation had made, `digests` are those of the kernels' tasks, by symbol, if
    the cache was asked for them.  `transformed` are the layouts that a schedule gave to parameters;
    the tensors of these names are their boxes.
    """

    name: str
    tensors: tuple[str, ...]
    target: Target
    options: Options
    imported: OperatorGraph
    graph: OperatorGraph
    plan: LayoutPlan
    physical: PhysicalGraph
    lowered: Lowered
    spec: ProgramSpec
    timings: Mapping[str, Mapping[str, float]]
    seconds: float
    notices: tuple[str, ...] = ()
    stated: tuple[Stated, ...] = ()
    frozen: tuple[str, ...] = ()
    validation: Validation | None = None
    values: Mapping[str, Array] = field(default_factory=dict)
    cached: int = 0
    digests: Mapping[str, bytes] = field(default_factory=dict)
    transformed: Mapping[str, ParameterLayout] = field(default_factory=dict)

    @property
    def made(self) -> Mapping[bytes, Made]:
        """The kernels with their object code, by the digests of their tasks."""
        objects = dict(self.spec.objects)
        return {
            digest: (self.lowered.kernels[symbol], objects[symbol])
            for symbol, digest in self.digests.items()
        }


def compile_graph(
    model: Source,
    *,
    name: str | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, Array] | None = None,
    target: Target | None = None,
    layouts: Mapping[str, Layout | str] | None = None,
    offers: Callable[[OperatorGraph], None] | None = None,
    sketches: Sequence[Sketch] = (),
    assume: Mapping[str, Assumption] | None = None,
    overridable: Collection[str] = (),
    operators: OwnOperators | None = None,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
    counting: Callable[[int, int], None] | None = None,
    shared: Shared | None = None,
    earlier: Sequence[Compiled] = (),
) -> Compiled:
    """Run all stages; the host is the default target, `name` is the model's name in reports.

    `input_values` are values that every run will give for these inputs; shapes may depend on them.
    An `OperatorGraph` skips the import; what its kernels assume of its inputs is taken out of them
    and kept in `stated`.

    `layouts` pins values of the fused graph to layouts, given as layouts or by name; `assume`
    states what holds for inputs; `overridable` names graph inputs whose initializers are defaults.
    `operators` are the caller's own, as `gf.compile` takes them.
    `offers` is called with the graph before fusion, to offer schedules of its nodes' kernels.
    `sketches` are those whose search results in the timing table are offered as well.
    `progress` is called with the name of each stage as it begins, `counting` with the numbers of
    kernels that the stage has made and will make.  Every error of graphflow passes, with a note
    that names its stage.  However this function ends, no worker process is left, except those of
    the crew that is `shared` by the compilations of one model.  Kernels that are in one of the
    `earlier` compilations of a model with a crew are not made again.
    """
    check_arguments(
        input_shapes=input_shapes,
        layouts=layouts,
        assume=assume,
        overridable=overridable,
        target=target,
        options=options,
    )
    require_sketches(sketches)
    chosen = Options.from_environment() if options is None else options
    trace = Trace(chosen, progress=progress, counting=counting)
    on = host_target() if target is None else target
    threads = default_threads() if chosen.threads is None else chosen.threads
    timings = _timings(chosen, on, threads)
    made = None if shared is None else ChainMap(*(dict(one.made) for one in earlier))
    cache = KernelCache(kernel_folder(chosen.cache), trace, earlier=made)
    start = time.perf_counter()
    staff = Workers(*WORKER_MODULES) if shared is None else shared.crew.borrowed()
    with collection_deferred(), staff as workers:
        if isinstance(model, OperatorGraph):
            given = _of_graph(model, assume)
        else:
            contents = {} if shared is None else shared.contents
            proto = stages.READ.traced(trace)(model, contents)
            imported = stages.IMPORT.traced(trace)(
                proto, input_shapes, input_values, overridable, chosen, contents, operators
            )
            frozen = frozen_inputs(proto, overridable)
            given = Imported(imported, tensor_names(proto), assume, frozen=frozen)
        canonical = stages.CANONICALIZE.traced(trace)(given.graph)
        groups = stages.FUSE.traced(trace)(
            canonical, offers, sketches, timings, on, chosen, trace, workers, cache
        )
        graph, plan = stages.FLOW.traced(trace)(groups, on, threads, layouts, timings, given.assume)
        built = _built(graph, plan, on, chosen, trace, workers, cache)
    if plan.refused:
        trace.event("flow", "refused", lambda: refusals_text(plan), CHANGES_LEVEL)
    trace.close()
    return Compiled(
        name=model_name(model) if name is None else name,
        tensors=given.tensors,
        target=on,
        options=chosen,
        imported=given.graph,
        graph=graph,
        plan=plan,
        physical=built.physical,
        lowered=built.lowered,
        spec=built.spec,
        timings=trace.timings(),
        seconds=time.perf_counter() - start,
        notices=trace.notices,
        stated=given.stated,
        frozen=given.frozen,
        validation=built.validation,
        values=dict(input_values or {}),
        cached=cache.found,
        digests=cache.digests,
    )


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph as the compiler begins with it, and what is known of it: `tensors`, `stated` and
    `frozen` as in `Compiled`, and what is assumed of whole inputs."""

    graph: OperatorGraph
    tensors: tuple[str, ...]
    assume: Mapping[str, Assumption] | None
    stated: tuple[Stated, ...] = ()
    frozen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Built:
    """The results of the stages that follow a plan."""

    physical: PhysicalGraph
    lowered: Lowered
    validation: Validation | None
    spec: ProgramSpec


def _of_graph(model: OperatorGraph, assume: Mapping[str, Assumption] | None) -> Imported:
    """A graph that is given in place of a model, without what its kernels assume of its inputs."""
    model.validate()
    graph, found = take_assumptions(model)
    whole, stated = _promised(found, {} if assume is None else assume)
    return Imported(graph, tuple(model.values), whole, stated)


def _built(
    graph: OperatorGraph,
    plan: LayoutPlan,
    target: Target,
    options: Options,
    trace: Trace,
    workers: Workers,
    cache: KernelCache,
) -> Built:
    """The program of a plan, made by the stages after flow; its kernels are kept in the cache."""
    physical = stages.CONVERT.traced(trace)(graph, plan)
    executed = stages.POISON.traced(trace)(graph, plan, physical, options)
    lowered = stages.LOWER.traced(trace)(executed, target, options, trace, workers, cache)
    objects = stages.CODEGEN.traced(trace)(lowered, target, trace, workers, cache)
    validation = stages.VALIDATE.traced(trace)(lowered, objects, target, options, trace, workers)
    spec = stages.ASSEMBLE.traced(trace)(graph, lowered, objects)
    cache.keep(lowered.kernels, objects)
    return Built(executed, lowered, validation, spec)


def _promised(
    found: Sequence[Stated], assume: Mapping[str, Assumption]
) -> tuple[dict[str, Assumption], tuple[Stated, ...]]:
    """The assumptions about whole inputs, which planning uses, and all other assumptions of
    kernels."""
    whole, rest = dict(assume), []
    for assumed in found:
        if (
            isinstance(assumed, Assumed)
            and assumed.elements is None
            and not assumed.reciprocal
            and assumed.tensor not in whole
        ):
            whole[assumed.tensor] = assumed.lo if assumed.exact else (assumed.lo, assumed.hi)
        else:
            rest.append(assumed)
    return whole, tuple(rest)


def program_of(
    graph: OperatorGraph,
    plan: LayoutPlan,
    target: Target,
    options: Options,
    trace: Trace,
    workers: Workers,
) -> ProgramSpec:
    """The program of a plan, made by the stages after flow."""
    cache = KernelCache(kernel_folder(options.cache), trace)
    return _built(graph, plan, target, options, trace, workers, cache).spec


def _timings(options: Options, target: Target, threads: int) -> Timings:
    """The measured times for this processor, if the options name a timing table."""
    if options.timings is None:
        return NO_TIMINGS
    return TimingTable(options.timings, target, threads).timings()


def model_name(model: Source) -> str:
    """The name of a model in reports: its path, or the name of its graph or of its kernels."""
    match model:
        case OperatorGraph():
            return ", ".join(dict.fromkeys(node.op for node in model.nodes)) or "graph"
        case ReadModel():
            return model_name(model.proto)
        case onnx.ModelProto():
            return str(model.graph.name) or "model"
        case bytes():
            return "model"
        case _:
            return str(model)
