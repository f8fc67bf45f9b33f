"""The stages of the compiler, in order; `compiler.py` hands the results of each to the next ones.

In: the parameters of a stage's function.  Out: what the function returns.  What always holds: a
stage is a function of its arguments; it reads nothing else and changes none of them, except the
contents of initializers, to which an import adds what it read.  How kernels are made, from a cache
or in worker processes, is an argument of the stages that need them; `services.py` has these
functions, and what happens when a stage ends.

    READ          a path, bytes, a proto   ->  ReadModel
    IMPORT        ReadModel                ->  OperatorGraph, one kernel for each ONNX node
    CANONICALIZE  OperatorGraph            ->  OperatorGraph, smaller
    FUSE          OperatorGraph            ->  OperatorGraph of fusion groups
    FLOW          fusion groups            ->  the groups with their expansions, and the LayoutPlan
    CONVERT       groups, LayoutPlan       ->  PhysicalGraph
    POISON        PhysicalGraph            ->  PhysicalGraph
    REGIONS       PhysicalGraph            ->  PhysicalGraph with the parts of its control regions
    LOWER         PhysicalGraph            ->  Lowered: kernels, steps, memory
    CODEGEN       kernels                  ->  object code, by symbol
    VALIDATE      Lowered, object code     ->  Validation
    ASSEMBLE      Lowered, object code     ->  ProgramSpec
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, ParamSpec, TypeAlias, TypeVar

from msgspec import Struct

from graphflow.base.assumed import Assumption
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.base.trace import CHANGES_LEVEL, PLAN_LEVEL, Trace
from graphflow.base.version import VERSION
from graphflow.baselines import PlannedGroups, plan_groups
from graphflow.convert import apply_plan, poison_padding
from graphflow.cost import Timings
from graphflow.flow import Foresee
from graphflow.frontends import ReadModel, import_checked, open_model
from graphflow.graph import Array, OperatorGraph, offer_found
from graphflow.kernels.lowering import LoweredKernel
from graphflow.kernels.recipes import REDUCTION
from graphflow.lower import Lowered, assemble, lower
from graphflow.physical import PhysicalGraph
from graphflow.pipeline.dumps import graph_text, lowered_text, physical_text, plan_text
from graphflow.pipeline.grouping import canonical, fusion_groups
from graphflow.pipeline.kernel_cache import makers
from graphflow.pipeline.region_parts import with_regions
from graphflow.pipeline.request import CompileRequest
from graphflow.plan import LayoutPlan
from graphflow.processes.digest import text_digest
from graphflow.validation import KernelChecks, Validation, validate

Given = ParamSpec("Given")
Found = TypeVar("Found")


class Stage(Generic[Given, Found], Struct, frozen=True):
    """The function `run`, by name.

    An error that leaves it names the stage, and memory that runs out in it is a GraphflowError too.
    `show` makes text of its result, which is printed from debug level `level` on.
    """

    name: str
    run: Callable[Given, Found]
    show: Callable[[Found], str] | None = None
    level: int = CHANGES_LEVEL

    def then(self, serve: Callable[[Found], None]) -> Stage[Given, Found]:
        """This stage, which ends after `serve` was called with its result: the time of that, and
        its errors, are those of the stage."""

        def run(*args: Given.args, **kwargs: Given.kwargs) -> Found:
            found = self.run(*args, **kwargs)
            serve(found)
            return found

        return replace(self, run=run)

    def traced(self, trace: Trace) -> Callable[Given, Found]:
        """The function, with its time and the text of its result in `trace`."""

        def call(*args: Given.args, **kwargs: Given.kwargs) -> Found:
            try:
                with trace.stage(self.name):
                    found = self.run(*args, **kwargs)
            except GraphflowError as error:
                error.add_note(f"in stage {self.name}")
                raise
            except MemoryError as error:
                raise GraphflowError(
                    f"memory ran out in stage {self.name} ({error or 'no details'}); the model "
                    "needs a machine with more memory, or smaller input_shapes"
                ) from error
            show = self.show
            if show is not None:
                trace.result(self.name, lambda: show(found), self.level)
            return found

        return call


Kernels: TypeAlias = "Mapping[str, LoweredKernel]"
Objects: TypeAlias = "Mapping[str, bytes]"

SKETCHES = (REDUCTION,)
"""The compiler's own sketches."""


def imported(
    opened: ReadModel, request: CompileRequest, contents: dict[int, Array]
) -> OperatorGraph:
    """The model's graph; nodes without a kernel become sections if the options have a fallback.

    `contents` are the initializers by number that earlier imports of the model have read.
    """
    for number in opened.contents.keys() - contents.keys():
        contents[number] = opened.contents[number]
    return import_checked(
        opened.proto,
        request.input_shapes,
        request.input_values,
        request.overridable,
        request.options.fallback is not None,
        contents,
        request.sizes,
        request.operators,
    )


def fused(canonical: OperatorGraph, request: CompileRequest, timings: Timings) -> OperatorGraph:
    """The graph of fusion groups; its nodes are offered the caller's schedules, and those that
    earlier searches found."""
    if request.offers is not None:
        canonical = canonical.copy()
        request.offers(canonical)
    return with_found_schedules(fusion_groups(canonical, request), request, timings)


def with_found_schedules(
    graph: OperatorGraph, request: CompileRequest, timings: Timings
) -> OperatorGraph:
    """The fused graph with the schedules that searches of the compiler's own sketches, and of the
    request's, found for its nodes with the present compiler; see `offer_found`."""
    if not timings:
        return graph
    sketches = (*SKETCHES, *request.sketches)
    return offer_found(graph, sketches, timings, request.target, compiler_digest())


def compiler_digest() -> str:
    """The digest under which results of searches are filed: of what makes kernels of schedules.

    If the sources are not files, that of graphflow's version.
    """
    try:
        return makers().hex()
    except OSError:
        return text_digest(VERSION)


def planned(
    groups: OperatorGraph,
    request: CompileRequest,
    timings: Timings,
    assume: Mapping[str, Assumption],
    foresee: Foresee | None = None,
) -> PlannedGroups:
    """The best plan known; `assume` is what holds for whole inputs, and `foresee` is told early of
    kernels that the plan will likely have.

    The choice is made one rank above flow, in `baselines`: it compares the plans of several
    searches where their end-to-end times are known, and a search knows of no other one.
    """
    return plan_groups(
        groups,
        request.target,
        request.threads,
        request.layouts,
        timings,
        assume,
        request.options.winograd,
        foresee,
    )


def poisoned(
    graph: OperatorGraph, plan: LayoutPlan, physical: PhysicalGraph, request: CompileRequest
) -> PhysicalGraph:
    """The physical graph as it is, or in poison mode with its undefined padding overwritten."""
    return poison_padding(graph, plan, physical) if request.options.poison else physical


def compiled_kernels(kernels: Kernels, make: Callable[[Kernels], Objects]) -> Objects:
    """The object code of each distinct kernel, by symbol, in the order of the kernels."""
    made = make(kernels)
    return {symbol: made[symbol] for symbol in kernels}


def validated(
    lowered: Lowered, objects: Objects, request: CompileRequest, check: KernelChecks
) -> Validation | None:
    """The check of each kernel against its definition, if the options ask for it."""
    if not request.options.validate:
        return None
    return validate(
        lowered.kernels, lowered.describe, objects, request.target, request.options.dump, check
    )


READ = Stage("read", open_model)
IMPORT = Stage("import", imported, graph_text)
CANONICALIZE = Stage("canonicalize", canonical, graph_text)
FUSE = Stage("fuse", fused, graph_text)
FLOW = Stage("flow", planned, lambda found: plan_text(found.plan), PLAN_LEVEL)
CONVERT = Stage("convert", apply_plan, physical_text)
POISON = Stage("poison", poisoned)
REGIONS = Stage("regions", with_regions)
LOWER = Stage("lower", lower, lowered_text)
CODEGEN = Stage("codegen", compiled_kernels)
VALIDATE = Stage("validate", validated)
ASSEMBLE = Stage("assemble", assemble)

_IN_ORDER = (
    READ, IMPORT, CANONICALIZE, FUSE, FLOW, CONVERT, POISON, REGIONS, LOWER, CODEGEN, VALIDATE,
    ASSEMBLE,
)  # fmt: skip

STAGES = tuple(stage.name for stage in _IN_ORDER)
"""The names of all stages, in order."""
