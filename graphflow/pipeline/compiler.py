"""The compiler: a list of named stages that turn an ONNX model into a native program.

In: a model, shapes of its symbolic inputs, a target, options.  Out: a `Compiled` that keeps the
result of each stage, so that every later question about a decision is answered from it.  What
always holds: a stage is a function of the values that it names in `needs`; it reads nothing else
and changes none of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import onnx

from graphflow.base.arguments import check_arguments
from graphflow.base.assumed import Assumed, Assumption, Stated
from graphflow.base.errors import GraphflowError
from graphflow.base.options import Options, kernel_folder
from graphflow.base.target import Target
from graphflow.base.trace import CHANGES_LEVEL, PLAN_LEVEL, Trace
from graphflow.base.version import VERSION
from graphflow.baselines import plan_groups
from graphflow.codegen import (
    ObjectTask,
    emit_assembly,
    emit_ir,
    host_target,
    make_object,
)
from graphflow.convert import apply_plan, poison_padding
from graphflow.cost import NO_TIMINGS, Timings, TimingTable
from graphflow.frontends import (
    ReadModel,
    frozen_inputs,
    import_checked,
    open_model,
    tensor_names,
)
from graphflow.graph import (
    Array,
    OperatorGraph,
    canonicalize,
    fuse,
    offer_found,
    take_assumptions,
)
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel
from graphflow.kernels.recipes import REDUCTION
from graphflow.layout import Layout
from graphflow.lower import Lowered, assemble, check_program, check_values, lower
from graphflow.physical import PhysicalGraph
from graphflow.pipeline.dumps import (
    graph_text,
    lowered_text,
    physical_text,
    plan_text,
    refusals_text,
)
from graphflow.pipeline.kernel_cache import KernelCache, RecentKernels, makers
from graphflow.pipeline.making import make_kernel_and_object
from graphflow.plan import LayoutPlan
from graphflow.processes.collecting import collection_deferred
from graphflow.processes.digest import text_digest
from graphflow.processes.workers import Crew, Workers
from graphflow.program import ProgramSpec
from graphflow.runtime import default_threads
from graphflow.schedule import ParameterLayout, Sketch
from graphflow.tir import only_moves, to_text
from graphflow.validation import Validation, validate

Model: TypeAlias = "str | Path | bytes | onnx.ModelProto"
Source: TypeAlias = "Model | ReadModel | OperatorGraph"
Objects: TypeAlias = "dict[str, bytes]"

WORKER_MODULES = ("graphflow.pipeline.making",)

SKETCHES = (REDUCTION,)
"""The compiler's own sketches."""

KERNELS_PER_WORKER = 16
"""The least number of kernels for each worker: starting one takes 0.6 s, making a kernel 0.07 s."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the compilations of one model for several shapes share: worker processes, the kernels
    that they made, and the contents of the model's initializers, by number."""

    crew: Crew = field(default_factory=lambda: Crew(*WORKER_MODULES))
    recent: RecentKernels = field(default_factory=RecentKernels)
    contents: dict[int, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """The values `gives` are the results of `run(*needs)`; `show` makes text of the last one, which
    is printed from debug level `level` on."""

    name: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    run: Callable[..., Any]
    show: Callable[[Any], str] | None = None
    level: int = CHANGES_LEVEL


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
    that an earlier compilation had made.  `transformed` are the layouts that a schedule gave to
    parameters; the tensors of these names are their boxes.
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
    transformed: Mapping[str, ParameterLayout] = field(default_factory=dict)


def read(model: Model | ReadModel, contents: dict[int, Array]) -> onnx.ModelProto:
    """The checked proto of a model; the initializers that it lacks are put into `contents`."""
    opened = open_model(model)
    for number, array in opened.contents.items():
        contents.setdefault(number, array)
    return opened.proto


def imported(
    proto: onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None,
    input_values: Mapping[str, Array] | None,
    overridable: Collection[str],
    options: Options,
    contents: dict[int, Array],
) -> OperatorGraph:
    """The model's graph; nodes without a kernel become sections if the options have a fallback."""
    fallback = options.fallback is not None
    return import_checked(proto, input_shapes, input_values, overridable, fallback, contents)


def fuse_and_staff(
    canonical: OperatorGraph,
    offers: Callable[[OperatorGraph], None] | None,
    sketches: Sequence[Sketch],
    timings: Timings,
    target: Target,
    options: Options,
    trace: Trace,
    workers: Workers,
    cache: KernelCache,
) -> OperatorGraph:
    """The fused graph; if it will need many kernels, workers start now and are ready after flow.

    Its nodes are offered the schedules that earlier searches of `sketches` found.  No workers start
    if the kernels of such a graph are in the cache.  Raises `MemoryLimitExceeded` if one of the
    tensors is larger than the limit by itself.
    """
    if offers is not None:
        canonical = canonical.copy()
        offers(canonical)
    graph = with_found_schedules(fuse(canonical), sketches, timings, target)
    check_values(graph, options.memory_limit)
    if not cache.expects(tuple(node.func for node in graph.nodes), target):
        workers.start(worker_count(promised_kernels(graph), options), trace)
    return graph


def with_found_schedules(
    graph: OperatorGraph, sketches: Sequence[Sketch], timings: Timings, target: Target
) -> OperatorGraph:
    """The fused graph with the schedules that searches of the compiler's own sketches, and of
    `sketches`, found for its nodes with the present compiler; see `offer_found`."""
    if not timings:
        return graph
    return offer_found(graph, (*SKETCHES, *sketches), timings, target, compiler_digest())


def compiler_digest() -> str:
    """The digest under which results of searches are filed: of what makes kernels of schedules.

    If the sources are not files, that of graphflow's version.
    """
    try:
        return makers().hex()
    except OSError:
        return text_digest(VERSION)


def promised_kernels(graph: OperatorGraph) -> int:
    """An estimate of the number of distinct kernels that the groups of a graph need.

    Each definition counts one, and one more if it has constants to pack.  Groups that only move
    elements count zero: most become views.
    """
    packs = {
        replace(node.func, name="kernel"): any(map(graph.is_constant, node.inputs))
        for node in graph.nodes
        if not only_moves(node.func)
    }
    return len(packs) + sum(packs.values())


def lower_unknown(
    physical: PhysicalGraph,
    target: Target,
    options: Options,
    trace: Trace,
    workers: Workers,
    cache: KernelCache,
) -> Lowered:
    """The lowered graph; kernels that the cache has are taken from it.

    If many are missing that were expected there, workers start now.  A worker makes the object code
    of its kernel as well, for the cache.  Raises `MemoryLimitExceeded` if the whole program needs
    more memory than allowed.
    """

    def make(tasks: Mapping[str, KernelTask]) -> dict[str, LoweredKernel]:
        found = cache.kernels(tasks)
        missing = {symbol: task for symbol, task in tasks.items() if symbol not in found}
        if missing and not workers.started:
            workers.start(worker_count(len(missing), options), trace)
        if not workers.started:
            return found | workers.map(make_kernel, missing, trace)
        made = workers.map(partial(make_kernel_and_object, make_object), missing, trace)
        for symbol, (_, code) in made.items():
            if code is not None:
                cache.take(symbol, code)
        return found | {symbol: kernel for symbol, (kernel, _) in made.items()}

    lowered = lower(physical, target, make)
    check_program(lowered, options.memory_limit)
    return lowered


def worker_count(kernels: int, options: Options) -> int:
    """The number of worker processes for so many kernels; 0 for none.

    One worker would not help, because this process waits while it works.
    """
    if options.workers is not None:
        return options.workers
    processors = default_threads()
    threads = processors if options.threads is None else min(options.threads, processors)
    count = min(threads, kernels // KERNELS_PER_WORKER)
    return count if count > 1 else 0


def compile_kernels(
    lowered: Lowered, target: Target, trace: Trace, workers: Workers, cache: KernelCache
) -> Objects:
    """The object code of each distinct kernel, by symbol; kernels that the cache lacks are compiled
    now."""
    tasks: dict[str, ObjectTask] = {
        symbol: (kernel.func, symbol, target)
        for symbol, kernel in lowered.kernels.items()
        if symbol not in cache.objects
    }
    made = {**cache.objects, **workers.map(make_object, tasks, trace)}
    objects = {symbol: made[symbol] for symbol in lowered.kernels}
    for symbol, kernel in lowered.kernels.items():
        _show_kernel(trace, symbol, kernel, target)
    return objects


def _show_kernel(trace: Trace, symbol: str, kernel: LoweredKernel, target: Target) -> None:
    schedule = kernel.schedule
    trace.kernel(symbol, "definition", lambda: to_text(schedule.definition), PLAN_LEVEL)
    trace.kernel(symbol, "schedule", lambda: schedule.trace(proofs=True), PLAN_LEVEL)
    trace.kernel(symbol, "tir", lambda: to_text(kernel.func), PLAN_LEVEL)
    trace.kernel(symbol, "ll", lambda: emit_ir(kernel.func, symbol, target))
    if trace.dumps:
        trace.kernel(symbol, "s", lambda: emit_assembly(kernel.func, symbol, target))


def poisoned(
    graph: OperatorGraph, plan: LayoutPlan, physical: PhysicalGraph, options: Options
) -> PhysicalGraph:
    """The physical graph as it is, or in poison mode with its undefined padding overwritten."""
    return poison_padding(graph, plan, physical) if options.poison else physical


def validated(
    lowered: Lowered,
    objects: Objects,
    target: Target,
    options: Options,
    trace: Trace,
    workers: Workers,
) -> Validation | None:
    """The check of each kernel against its definition, if the options ask for it."""
    return validate(lowered.kernels, lowered.describe, objects, target, options, trace, workers)


STAGES: tuple[Stage, ...] = (
    Stage("read", ("model", "contents"), ("proto",), read),
    Stage(
        "import",
        ("proto", "input_shapes", "input_values", "overridable", "options", "contents"),
        ("imported",),
        imported,
        graph_text,
    ),
    Stage("canonicalize", ("imported",), ("canonical",), canonicalize, graph_text),
    Stage(
        "fuse",
        (
            "canonical",
            "offers",
            "sketches",
            "timings",
            "target",
            "options",
            "trace",
            "workers",
            "cache",
        ),
        ("groups",),
        fuse_and_staff,
        graph_text,
    ),
    Stage(
        "flow",
        ("groups", "target", "threads", "pins", "timings", "assume"),
        ("graph", "plan"),
        plan_groups,
        plan_text,
        PLAN_LEVEL,
    ),
    Stage("convert", ("graph", "plan"), ("physical",), apply_plan, physical_text),
    Stage("poison", ("graph", "plan", "physical", "options"), ("executed",), poisoned),
    Stage(
        "lower",
        ("executed", "target", "options", "trace", "workers", "cache"),
        ("lowered",),
        lower_unknown,
        lowered_text,
    ),
    Stage(
        "codegen", ("lowered", "target", "trace", "workers", "cache"), ("objects",), compile_kernels
    ),
    Stage(
        "validate",
        ("lowered", "objects", "target", "options", "trace", "workers"),
        ("validation",),
        validated,
    ),
    Stage("assemble", ("graph", "lowered", "objects"), ("spec",), assemble),
)
"""The whole compiler, in order."""


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
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
    counting: Callable[[int, int], None] | None = None,
    shared: Shared | None = None,
) -> Compiled:
    """Run all stages; the host is the default target, `name` is the model's name in reports.

    `input_values` are values that every run will give for these inputs; shapes may depend on them.
    An `OperatorGraph` skips the import; what its kernels assume of its inputs is taken out of them
    and kept in `stated`.

    `layouts` pins values of the fused graph to layouts, given as layouts or by name; `assume`
    states what holds for inputs; `overridable` names graph inputs whose initializers are defaults.
    `offers` is called with the graph before fusion, to offer schedules of its nodes' kernels.
    `sketches` are those whose search results in the timing table are offered as well.
    `progress` is called with the name of each stage as it begins, `counting` with the numbers of
    kernels that the stage has made and will make.  Every error of graphflow passes, with a note
    that names its stage.  However this function ends, no worker process is left, except those of
    the crew that is `shared` by the compilations of one model.
    """
    check_arguments(
        input_shapes=input_shapes,
        layouts=layouts,
        assume=assume,
        overridable=overridable,
        target=target,
        options=options,
    )
    chosen = Options.from_environment() if options is None else options
    trace = Trace(chosen, progress=progress, counting=counting)
    known: dict[str, Any] = {
        "model": model,
        "input_shapes": input_shapes,
        "input_values": input_values,
        "overridable": overridable,
        "target": host_target() if target is None else target,
        "threads": default_threads() if chosen.threads is None else chosen.threads,
        "pins": layouts,
        "offers": offers,
        "sketches": sketches,
        "assume": assume,
        "trace": trace,
        "options": chosen,
        "contents": {} if shared is None else shared.contents,
    }
    known["timings"] = _timings(chosen, known["target"], known["threads"])
    recent = None if shared is None else shared.recent
    folder = kernel_folder(chosen.cache)
    known["cache"] = cache = KernelCache(folder, trace, recent=recent)
    start = time.perf_counter()
    stages, stated = STAGES, tuple[Stated, ...]()
    if isinstance(model, OperatorGraph):
        model.validate()
        known["imported"], found = take_assumptions(model)
        known["assume"], stated = _promised(found, {} if assume is None else assume)
        stages = STAGES[[stage.name for stage in STAGES].index("canonicalize") :]
    staff = Workers(*WORKER_MODULES) if shared is None else shared.crew.borrowed()
    with collection_deferred(), staff as known["workers"]:
        for stage in stages:
            _run(stage, known, trace)
    cache.keep(known["lowered"].kernels, known["objects"])
    if known["plan"].refused:
        trace.event("flow", "refused", lambda: refusals_text(known["plan"]), CHANGES_LEVEL)
    trace.close()
    known["physical"] = known["executed"]
    fields = ("target", "imported", "graph", "plan", "physical", "lowered", "spec")
    return Compiled(
        name=model_name(model) if name is None else name,
        tensors=tuple(model.values)
        if isinstance(model, OperatorGraph)
        else tensor_names(known["proto"]),
        stated=stated,
        frozen=frozen_inputs(known["proto"], overridable) if "proto" in known else (),
        options=chosen,
        timings=trace.timings(),
        seconds=time.perf_counter() - start,
        notices=trace.notices,
        validation=known["validation"],
        values={} if input_values is None else dict(input_values),
        cached=cache.found,
        **{key: known[key] for key in fields},
    )


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
    known: dict[str, Any] = {
        "graph": graph,
        "plan": plan,
        "target": target,
        "options": options,
        "trace": trace,
        "workers": workers,
        "cache": KernelCache(kernel_folder(options.cache), trace),
    }
    names = [stage.name for stage in STAGES]
    for stage in STAGES[names.index("flow") + 1 :]:
        _run(stage, known, trace)
    known["cache"].keep(known["lowered"].kernels, known["objects"])
    spec: ProgramSpec = known["spec"]
    return spec


def _timings(options: Options, target: Target, threads: int) -> Timings:
    """The measured times for this processor, if the options name a timing table."""
    if options.timings is None:
        return NO_TIMINGS
    return TimingTable(options.timings, target, threads).timings()


def _run(stage: Stage, known: dict[str, Any], trace: Trace) -> None:
    try:
        with trace.stage(stage.name):
            result = stage.run(*(known[name] for name in stage.needs))
    except GraphflowError as error:
        error.add_note(f"in stage {stage.name}")
        raise
    except MemoryError as error:
        raise GraphflowError(
            f"memory ran out in stage {stage.name} ({error or 'no details'}); the model needs a "
            "machine with more memory, or smaller input_shapes"
        ) from error
    known.update(zip(stage.gives, result if len(stage.gives) > 1 else (result,), strict=True))
    show = stage.show
    if show is not None:
        trace.result(stage.name, lambda: show(known[stage.gives[-1]]), stage.level)


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
