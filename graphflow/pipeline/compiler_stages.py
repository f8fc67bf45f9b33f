"""The stages of the compiler, in order; `compiler.py` hands the results of each to the next ones.

In: the parameters of a stage's function.  Out: what the function returns.  What always holds: a
stage is a function of its arguments; it reads nothing else and changes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import onnx

from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.base.trace import PLAN_LEVEL, Trace
from graphflow.base.version import VERSION
from graphflow.baselines import plan_groups
from graphflow.codegen import ObjectTask, emit_assembly, emit_ir, make_object
from graphflow.convert import apply_plan, poison_padding
from graphflow.cost import Timings
from graphflow.frontends import OwnOperators, ReadModel, import_checked, open_model
from graphflow.graph import Array, OperatorGraph, canonicalize, fuse, offer_found
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel
from graphflow.kernels.recipes import REDUCTION
from graphflow.lower import Lowered, assemble, check_program, check_values, lower
from graphflow.physical import PhysicalGraph
from graphflow.pipeline.dumps import graph_text, lowered_text, physical_text, plan_text
from graphflow.pipeline.kernel_cache import KernelCache, makers
from graphflow.pipeline.making import make_kernel_and_object
from graphflow.pipeline.traced_stage import Stage
from graphflow.plan import LayoutPlan
from graphflow.processes.digest import text_digest
from graphflow.processes.workers import Workers
from graphflow.runtime import default_threads
from graphflow.schedule import Sketch
from graphflow.tir import only_moves, to_text
from graphflow.validation import Validation, validate

Model: TypeAlias = "str | Path | bytes | onnx.ModelProto"
Objects: TypeAlias = "dict[str, bytes]"

SKETCHES = (REDUCTION,)
"""The compiler's own sketches."""

KERNELS_PER_WORKER = 16
"""The least number of kernels for each worker: starting one takes 0.6 s, making a kernel 0.07 s."""


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
    operators: OwnOperators | None,
) -> OperatorGraph:
    """The model's graph; nodes without a kernel become sections if the options have a fallback."""
    fallback = options.fallback is not None
    return import_checked(
        proto, input_shapes, input_values, overridable, fallback, contents, operators
    )


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


READ = Stage("read", read)
IMPORT = Stage("import", imported, graph_text)
CANONICALIZE = Stage("canonicalize", canonicalize, graph_text)
FUSE = Stage("fuse", fuse_and_staff, graph_text)
FLOW = Stage("flow", plan_groups, lambda found: plan_text(found[1]), PLAN_LEVEL)
CONVERT = Stage("convert", apply_plan, physical_text)
POISON = Stage("poison", poisoned)
LOWER = Stage("lower", lower_unknown, lowered_text)
CODEGEN = Stage("codegen", compile_kernels)
VALIDATE = Stage("validate", validated)
ASSEMBLE = Stage("assemble", assemble)

STAGES = (
    READ.name,
    IMPORT.name,
    CANONICALIZE.name,
    FUSE.name,
    FLOW.name,
    CONVERT.name,
    POISON.name,
    LOWER.name,
    CODEGEN.name,
    VALIDATE.name,
    ASSEMBLE.name,
)
"""The names of all stages, in order."""
