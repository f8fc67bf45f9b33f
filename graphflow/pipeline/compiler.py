"""The compiler: its stages turn an ONNX model into a native program.

In: a `CompileRequest`.  Out: a `Compiled` that keeps the
result of each stage, so that every later question about a decision is answered from it.  What
always holds: no worker process is left when a compilation ends, except those of a shared crew.
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from graphflow.base.assumed import Assumed, Assumption, Stated
from graphflow.base.collecting import collection_deferred
from graphflow.base.options import Options, kernel_folder
from graphflow.base.target import Target
from graphflow.base.trace import CHANGES_LEVEL, Trace
from graphflow.cost import Timings
from graphflow.flow import PinTrials
from graphflow.frontends import fixed_values, frozen_inputs, tensor_names
from graphflow.graph import Array, OperatorGraph, take_assumptions
from graphflow.lower import Lowered
from graphflow.physical import PhysicalGraph
from graphflow.pipeline import compiler_stages as stages
from graphflow.pipeline.dumps import refusals_text
from graphflow.pipeline.kernel_cache import KernelCache, Made
from graphflow.pipeline.request import CompileRequest
from graphflow.pipeline.services import Services
from graphflow.plan import LayoutPlan
from graphflow.processes.workers import Crew, Workers
from graphflow.program import ProgramSpec
from graphflow.schedule import ParameterLayout
from graphflow.validation import Validation

WORKER_MODULES = ("graphflow.pipeline.making",)

SHAPES_HERE = 16
"""For so many shapes of a model LLVM runs in this process, for further ones in a worker: LLVM keeps
0.1 to 0.2 MB of each module until its process ends.  Starting the worker takes 0.6 s."""


class Shared(Struct, frozen=True):
    """What the compilations of one model for several shapes share: worker processes, and the
    contents of the model's initializers, by number."""

    crew: Crew = field(default_factory=lambda: Crew(*WORKER_MODULES))
    contents: dict[int, Array] = field(default_factory=dict)


class Compiled(Struct, frozen=True):
    """The results of the stages, with what later questions need of the request.  The request itself
    is not kept: it holds the model's weights.

    `imported` is the graph with one kernel per ONNX node, `graph` the fusion groups (with the
    expansions that the plan takes in place of their nodes), `plan` the decisions about `graph`,
    `lowered` its kernels, `spec` the program.

    `tensors` are the names of the model's own tensors, in its order; `stated` is what user-written
    kernels assume of its inputs; `frozen` are graph inputs whose initializers are constants.

    `timings` are seconds by stage and by step, `seconds` their total.  Times of worker processes
    count towards steps, whose sum may exceed their stage.  `notices` say which kernels
    are not made by the recipe that the plan priced, and which work was done in this process because
    a worker could not do it, and why.  `validation` is the comparison of
    kernels with their definitions; None without Options(validate=True).  `values` are the values of
    inputs that the program was compiled for: runs have to give them.  `cached` counts the kernels
    that an earlier compilation had made, `digests` are those of the kernels' tasks, by symbol, if
    the cache was asked for them.  `transformed` are the layouts that a schedule gave to parameters;
    the tensors of these names are their boxes.  `pin_trials` plans the fusion groups again, with a
    pin more.
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
    pin_trials: PinTrials | None = None

    @property
    def made(self) -> Mapping[bytes, Made]:
        """The kernels with their object code, by the digests of their tasks."""
        objects = dict(self.spec.objects)
        return {
            digest: (self.lowered.kernels[symbol], objects[symbol])
            for symbol, digest in self.digests.items()
        }


def compile_graph(
    request: CompileRequest, shared: Shared | None = None, earlier: Sequence[Compiled] = ()
) -> Compiled:
    """Run all stages.

    What the kernels of an `OperatorGraph` assume of its inputs is taken out of them and kept in
    `stated`.  Every error of graphflow passes, with a note that names its stage.  However this
    function ends, no worker process is left, except those of the crew that is `shared` by the
    compilations of one model.  Kernels that are in one of the `earlier` compilations of a model
    with a crew are not made again.
    """
    start = time.perf_counter()
    options, target = request.options, request.target
    trace = Trace(options, progress=request.progress, counting=request.counting)
    timings = request.timings()
    made = None if shared is None else ChainMap(*(dict(one.made) for one in earlier))
    cache = KernelCache(kernel_folder(options.cache), trace, earlier=made)
    staff = Workers(*WORKER_MODULES) if shared is None else shared.crew.borrowed()
    with collection_deferred(), staff as workers:
        services = Services(target, options, trace, workers, cache, _llvm_apart(options, shared))
        given = _given(request, {} if shared is None else shared.contents, services)
        canonical = stages.CANONICALIZE.traced(trace)(given.graph, request)
        groups = stages.FUSE.then(services.expect).traced(trace)(canonical, request, timings)
        graph, plan, pin_trials = stages.FLOW.traced(trace)(
            groups, request, timings, given.assume, services.foresee
        )
        built = _built(graph, plan, request, services, timings)
    for kernel in built.lowered.kernels.values():
        if kernel.instead_of is not None:
            trace.notice(
                f"{kernel.symbol} is made stage by stage, not as priced: {kernel.instead_of}"
            )
    if plan.refused:
        trace.event("flow", "refused", lambda: refusals_text(plan), CHANGES_LEVEL)
    trace.close()
    return Compiled(
        name=request.title,
        tensors=given.tensors,
        target=target,
        options=options,
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
        values=given.values,
        cached=cache.found,
        digests=cache.digests,
        pin_trials=pin_trials,
    )


def _llvm_apart(options: Options, shared: Shared | None) -> bool:
    """Whether LLVM runs in a worker, because the model was compiled for many shapes."""
    if options.workers is not None or shared is None:
        return False
    return shared.crew.compilations > SHAPES_HERE


class Imported(Struct, frozen=True):
    """A graph as the compiler begins with it, and what is known of it: `tensors`, `stated`,
    `frozen` and `values` as in `Compiled`, and what is assumed of whole inputs."""

    graph: OperatorGraph
    tensors: tuple[str, ...]
    assume: Mapping[str, Assumption]
    stated: tuple[Stated, ...] = ()
    frozen: tuple[str, ...] = ()
    values: Mapping[str, Array] = field(default_factory=dict)


class Built(Struct, frozen=True):
    """The results of the stages that follow a plan."""

    physical: PhysicalGraph
    lowered: Lowered
    validation: Validation | None
    spec: ProgramSpec


def _given(request: CompileRequest, contents: dict[int, Array], services: Services) -> Imported:
    """The graph of a model, which is read and imported; or the graph that is given in place of a
    model, without what its kernels assume of its inputs."""
    if isinstance(request.model, OperatorGraph):
        request.model.validate()
        graph, found = take_assumptions(request.model)
        whole, stated = _promised(found, request.assume)
        return Imported(graph, tuple(request.model.values), whole, stated)
    trace = services.trace
    opened = stages.READ.then(services.hire).traced(trace)(request.model)
    graph = stages.IMPORT.traced(trace)(opened, request, contents)
    return Imported(
        graph,
        tensor_names(opened.proto),
        request.assume,
        frozen=frozen_inputs(opened.proto, request.overridable),
        values=fixed_values(opened.proto, request.input_values),
    )


def _built(
    graph: OperatorGraph,
    plan: LayoutPlan,
    request: CompileRequest,
    services: Services,
    timings: Timings,
) -> Built:
    """The program of a plan, made by the stages after flow; its kernels are kept in the cache."""
    trace, cache = services.trace, services.cache
    physical = stages.CONVERT.traced(trace)(graph, plan)
    executed = stages.POISON.traced(trace)(graph, plan, physical, request)
    executed = stages.REGIONS.traced(trace)(graph, executed, request, timings)
    lower = stages.LOWER.then(services.require_memory)
    lowered = lower.traced(trace)(executed, request.target, services.kernels)
    codegen = stages.CODEGEN.then(lambda _: services.show(lowered))
    objects = codegen.traced(trace)(lowered.kernels, services.objects)
    validation = stages.VALIDATE.traced(trace)(lowered, objects, request, services.checks)
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
    graph: OperatorGraph, plan: LayoutPlan, request: CompileRequest, trace: Trace, workers: Workers
) -> ProgramSpec:
    """The program of a plan, made by the stages after flow."""
    cache = KernelCache(kernel_folder(request.options.cache), trace)
    services = Services(request.target, request.options, trace, workers, cache)
    return _built(graph, plan, request, services, request.timings()).spec
