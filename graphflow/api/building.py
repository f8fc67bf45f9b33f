"""`gf.kernel` and `gf.build`: programs from kernels, schedules and graphs that a user wrote.

In: a kernel in the text form or as a Python function in it, a `PrimFunc`, a `Schedule`, or an
`OperatorGraph` of them.  Out: a `PrimFunc`, or an `Executable` as `compile` returns for a model.
What always holds: every kernel is checked before it is compiled: its structure, types and scopes,
that each access stays in bounds, that parallel and vectorized loops have independent iterations,
and that its assumptions can be true.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from textwrap import dedent
from types import FunctionType
from typing import Any, TypeAlias

from graphflow.api.compiled_model import loaded
from graphflow.api.executable import Executable
from graphflow.api.model import Single
from graphflow.base.arguments import chosen_options
from graphflow.base.assumed import Assumption
from graphflow.base.errors import GraphflowError, ParseError, VerifyError
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.codegen import chosen_target
from graphflow.graph import OperatorGraph, graph_of, output_names
from graphflow.layout import Layout
from graphflow.pipeline.compiler import Compiled, compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import ProgramSpec
from graphflow.schedule import (
    Schedule,
    Sketch,
    parameter_layouts,
    require_in_bounds,
    require_sound,
)
from graphflow.tir import PrimFunc, parse

Buildable: TypeAlias = "str | PrimFunc | Schedule | OperatorGraph"

DECORATOR = "@primfunc"
"""The first line of the text form; `kernel` accepts a text without it."""


def kernel(source: str | Callable[..., Any]) -> PrimFunc:
    """The kernel that a text, or the source of a Python function, describes; also a decorator.

        @gf.kernel
        def double(x: f32[N], y: out[f32[N]]):
            for i in serial(0, N):
                y[i] = f32(2.0) * x[i]

    Integers that a function finds in the scopes around it (here N) are inserted as constants.  The
    function is never run, so its annotations need `from __future__ import annotations`, or the
    names of `graphflow.language`.  Raises ParseError with line and column for text that is not in
    the kernel language, and VerifyError for a kernel that is not sound or accesses memory outside
    its buffers.
    """
    text = dedent(source) if isinstance(source, str) else _source_of(source)
    bare = text.lstrip().startswith("def ")
    func = parse(f"{DECORATOR}\n{text}", first_line=0) if bare else parse(text)
    require_sound(func)
    require_in_bounds(func)
    return func


def build(
    source: Buildable,
    *,
    target: Target | str | None = None,
    threads: int | None = None,
    layouts: Mapping[str, Layout | str] | None = None,
    sketches: Sequence[Sketch] = (),
    assume: Mapping[str, Assumption] | None = None,
    options: Options | None = None,
) -> Executable:
    """Compile a kernel, a schedule of one, or a graph of kernels; `run` takes the inputs by name.

    A kernel of serial loops gets the variant that the compiler finds cheapest.  A schedule, or a
    kernel with loops of other kinds, is compiled as it is written: its marked stages are lifted
    out, and if none of its loops has a kind, the compiler vectorizes and parallelizes it.

    The caller passes a parameter that a schedule transformed in its box, and `Executable.layouts`
    tells its logical shape too.

    A scalar `n: index` is an input, an int64 without axes.  Each run checks what the kernel assumes
    of it, and that it is within 32 bits where the kernel assumes nothing.  A parameter that is read
    and written (`inout`) is an input and an output of its name: the array of the caller is copied
    and does not change.  A window may be given with any strides; if its elements do not follow one
    another, it is copied.

    `layouts`, `sketches`, `assume`, `threads` and `options` are those of `compile`.  What a kernel
    assumes of an input is a promise of the caller: the report lists it, and
    Options(check_assumes=True) checks it at each run.  Raises ParseError for invalid text,
    VerifyError for a kernel that is not sound or accesses memory outside its buffers, and the
    errors of the compiler's stages; where a schedule does not build, a note at the error names the
    step without which it does.
    """
    source = kernel(source) if isinstance(source, str) else source
    chosen = chosen_options(options, threads)

    def compiled_of(source: PrimFunc | Schedule | OperatorGraph) -> Compiled:
        request = CompileRequest(
            model=_graph(source),
            target=chosen_target(target),
            layouts={} if layouts is None else layouts,
            sketches=sketches,
            assume={} if assume is None else assume,
            options=chosen,
        )
        return compile_graph(request)

    try:
        compiled = compiled_of(source)
    except GraphflowError as error:
        if isinstance(source, Schedule):
            _name_step(source, error, compiled_of)
        raise
    if isinstance(source, Schedule):
        compiled = replace(compiled, transformed=parameter_layouts(source))
    if not isinstance(source, OperatorGraph):
        compiled = replace(compiled, spec=_with_own_names(compiled.spec, source))
    return Executable(Single(loaded(compiled)))


def _name_step(
    schedule: Schedule, error: GraphflowError, compiled_of: Callable[[Schedule], Compiled]
) -> None:
    """Add a note to the error of a schedule: its first steps with which it builds, and the next."""
    made = [Schedule.of(schedule.definition)]
    for step in schedule.steps:
        made.append(made[-1].apply(step.primitive, *step.arguments, **dict(step.options)))
    builds, fails = -1, len(schedule.steps)
    while fails - builds > 1:
        middle = (builds + fails) // 2
        try:
            compiled_of(made[middle])
            builds = middle
        except GraphflowError:
            fails = middle
    if fails == 0:
        error.add_note(f"the definition of {schedule.definition.name} does not build either")
    else:
        error.add_note(
            f"in step {fails} of the schedule, without which it builds: {schedule.steps[fails - 1]}"
        )


def _with_own_names(spec: ProgramSpec, kernel: PrimFunc | Schedule) -> ProgramSpec:
    """The program of one kernel, with each output called like the parameter that it comes from."""
    own = {made: name for name, made in output_names(kernel).items()}
    outputs = tuple(
        replace(tensor, name=own.get(tensor.name, tensor.name)) for tensor in spec.outputs
    )
    return replace(spec, outputs=outputs) if own else spec


def _graph(source: PrimFunc | Schedule | OperatorGraph) -> OperatorGraph:
    """The graph to compile; `OperatorGraph.add` proves each of its kernels to be sound."""
    match source:
        case OperatorGraph():
            graph = source
        case PrimFunc() | Schedule():
            graph = graph_of(source)
        case _:
            raise VerifyError(
                f"build takes a kernel's text, a PrimFunc, a Schedule or an OperatorGraph, not "
                f"{type(source).__name__}; graphflow.compile takes ONNX models"
            )
    for node in graph.nodes:
        for func in (node.func, *node.offered):
            require_in_bounds(func)
    return graph


def _source_of(function: Callable[..., Any]) -> str:
    """The text form of a function's source, without decorators and with integers filled in."""
    if not isinstance(function, FunctionType):
        raise ParseError(f"a kernel is a text or a function, not {type(function).__name__}")
    try:
        lines, _ = inspect.getsourcelines(function)
    except OSError as error:
        raise ParseError(
            f"the source of {function.__name__} cannot be read ({error}); give the kernel as a text"
        ) from error
    module = ast.parse(dedent("".join(lines)))
    definition = module.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise ParseError(f"{function.__name__} is not a plain function; give the kernel as a text")
    definition.decorator_list = []
    definition.returns = None
    return ast.unparse(_Numbers(_whole_numbers(function)).visit(module))


def _whole_numbers(function: FunctionType) -> dict[str, int]:
    """The integers in the scopes around a function, by name."""
    around = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell: the variable has no value yet
            around[name] = cell.cell_contents
    return {name: value for name, value in around.items() if type(value) is int}


class _Numbers(ast.NodeTransformer):
    """Replaces names by the integers that they stand for, except for names that the kernel
    binds."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = dict(numbers)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        bound = {arg.arg for arg in node.args.args}
        bound |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_stored(n)}
        self.numbers = {k: v for k, v in self.numbers.items() if k not in bound}
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.numbers:
            return node
        return ast.copy_location(_number(self.numbers[node.id]), node)


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _number(value: int) -> ast.expr:
    """The integer as an expression; Python's grammar has a sign before the constant for a negative
    one."""
    if value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)
