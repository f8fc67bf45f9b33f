"""Well-formedness of kernels, and what is legal at each stage of lowering.

In: a `PrimFunc` and the name of a stage in `STAGES`.  Out: nothing, or a `VerifyError` that marks
the offending statement in the printed kernel.  Checked is what needs no proof: names, scopes of
buffers and variables, ranks and types.  That accesses are in bounds and that iterations of parallel
loops are independent is proven in `graphflow.lower` and `graphflow.schedule`.
"""

from __future__ import annotations

from collections.abc import Iterable
from keyword import iskeyword
from typing import Literal, TypeAlias, assert_never, cast

from msgspec import Struct

from graphflow.arith import IndexExpr, Predicate, Var, predicate_variables, variables
from graphflow.base.errors import VerifyError
from graphflow.tir.checks.check_types import type_errors
from graphflow.tir.checks.parallel_phases import fault_in_phases
from graphflow.tir.nodes import declared, exprs, printer, stmts
from graphflow.tir.nodes.memory_space import MemorySpace
from graphflow.tir.traversal import visit
from graphflow.tir.traversal.performed import performed

KernelStage: TypeAlias = Literal["definition", "scheduled", "lowered"]
"""As written by hand or by an operator; between scheduling primitives; as the emitter takes it."""


class Legality(Struct, frozen=True):
    """What a kernel may contain at one stage."""

    loop_kinds: tuple[stmts.LoopKind, ...]
    scopes: tuple[exprs.Scope, ...]
    """Of allocated buffers; parameters are always global."""
    assumptions: bool
    """`Assume` statements and `Undef` expressions."""
    emittable: bool
    """One outermost parallel loop, or phases; registers can be named; vector loops are constant."""


STAGES: dict[KernelStage, Legality] = {
    "definition": Legality(
        loop_kinds=(stmts.LoopKind.SERIAL,), scopes=("global",), assumptions=True, emittable=False
    ),
    "scheduled": Legality(
        loop_kinds=tuple(stmts.LoopKind),
        scopes=("global", "scratch", "register"),
        assumptions=True,
        emittable=False,
    ),
    "lowered": Legality(
        loop_kinds=tuple(stmts.LoopKind),
        scopes=("scratch", "register"),
        assumptions=False,
        emittable=True,
    ),
}

_PLACES = ("loop variable", "block", "call", "let", "window")
"""Kinds of names by which primitives find a statement, so no two of them may be equal."""

EXPANDED = (stmts.LoopKind.VECTORIZED, stmts.LoopKind.UNROLLED)
"""Kinds of loops of which the emitter writes every iteration, so that their indices are numbers."""


def verify(func: stmts.PrimFunc, stage: KernelStage) -> None:
    """Raise `VerifyError` unless `func` is well formed and legal at `stage`."""
    if stage not in STAGES:
        raise ValueError(f"no stage is called {stage}; there are {', '.join(STAGES)}")
    _Verifier(func, stage).run()


def is_identifier(name: str) -> bool:
    """Whether a part of a name between dots is one that the text form can have."""
    return name.isidentifier() and not iskeyword(name)


def is_dense(window: stmts.BufferWindow, param: exprs.Buffer) -> bool:
    """Whether the elements of a window follow one another as those of the parameter do."""
    strides = (window.buffer.strides[axis] for axis in window.kept)
    sides = zip(strides, param.strides, param.shape, strict=True)
    return all(own == dense for own, dense, extent in sides if extent > 1)


class _Verifier:
    def __init__(self, func: stmts.PrimFunc, stage: KernelStage) -> None:
        self.func = func
        self.stage = stage
        self.legal = STAGES[stage]
        self.inputs = set(func.inputs)
        self.buffers: dict[str, exprs.Buffer] = {}
        """Buffers that may be accessed here, by name."""
        self.loops: dict[Var, stmts.For] = {}
        self.used: dict[str, set[str]] = {kind: set() for kind in ("buffer", *_PLACES)}
        self.called: dict[str, stmts.PrimFunc] = {}
        self.fields: dict[str, exprs.Buffer] = {}
        """Fields of configuration state that were used so far, by name."""

    def fail(self, message: str, stmt: stmts.Stmt | None = None) -> VerifyError:
        text = printer.to_text(self.func, stmt, "here")
        return VerifyError(f"{self.func.name} is not a {self.stage} kernel: {message}\n{text}")

    def run(self) -> None:
        if not is_identifier(self.func.name):
            raise self.fail(f"{self.func.name!r} is not an identifier")
        for param in self.func.params:
            buffer = param.buffer
            self.declare(buffer, None)
            if "." in buffer.name or not self.legal_parameter(buffer):
                raise self.fail(f"parameter {buffer.name} needs a plain name and global scope")
            if param.role is stmts.Role.INOUT and self.stage == "lowered":
                raise self.fail(
                    f"{buffer.name} is inout, and programs have inputs and outputs apart"
                )
            if param.strided and self.stage == "lowered":
                raise self.fail(
                    f"{buffer.name} is a window, whose strides only the callers of a kernel know"
                )
        if self.func.scalars and self.stage == "lowered":
            raise self.fail("it has scalars, which programs give it in memory")
        for var in self.func.scalars:
            self.name("loop variable", var.name, None)
        if self.func.callee is not None and (self.func.body or self.legal.emittable):
            raise self.fail(f"its outputs come from {self.func.callee}, so it has no statements")
        if self.legal.emittable:
            self.check_parallel()
        self.body(self.func.body)
        outside = [memory.name for memory in declared.memories_of(self.func)]
        outside += sorted({name.split(".")[0] for name in self.fields})
        twice = next((name for name in outside if outside.count(name) > 1), None)
        if twice is not None:
            raise self.fail(f"two memories or configurations are called {twice}")

    def legal_parameter(self, buffer: exprs.Buffer) -> bool:
        """Whether a parameter may lie where it does: kernels that others call take any memory."""
        named = self.stage == "scheduled" and isinstance(buffer.scope, MemorySpace)
        return named or buffer.scope == "global"

    # -- names

    def name(self, kind: str, name: str, stmt: stmts.Stmt | None) -> None:
        if kind != "block" and not all(map(is_identifier, name.split("."))):
            raise self.fail(f"{kind} {name!r} is not an identifier, dots allowed", stmt)
        for other in (kind, *_PLACES) if kind in _PLACES else (kind,):
            if name in self.used[other]:
                uses = "twice" if other == kind else f"for a {other} too"
                raise self.fail(f"the {kind} name {name} is used {uses}", stmt)
        self.used[kind].add(name)

    def declare(self, buffer: exprs.Buffer, stmt: stmts.Stmt | None) -> None:
        self.name("buffer", buffer.name, stmt)
        separators = (0, *buffer.separators, len(buffer.shape))
        if buffer.separators and list(separators) != sorted(set(separators)):
            raise self.fail(f"{buffer.name}: separators {buffer.separators} do not split it", stmt)
        self.buffers[buffer.name] = buffer

    # -- statements

    def body(self, body: stmts.Body) -> None:
        outer = dict(self.buffers)
        for stmt in body:
            self.stmt(stmt)
        self.buffers = outer

    def stmt(self, stmt: stmts.Stmt) -> None:
        for expr in visit.expressions_of(stmt):
            self.expr(expr, stmt)
        problem = next(type_errors(stmt), None)
        if problem is not None:
            raise self.fail(problem, stmt)
        match stmt:
            case stmts.Store() | stmts.Reduce():
                self.write(stmt)
            case stmts.For():
                self.loop(stmt)
            case stmts.If():
                self.condition(stmt.condition, stmt)
                self.body(stmt.then)
                self.body(stmt.orelse)
            case stmts.Block():
                self.block(stmt)
            case stmts.Allocate():
                named = self.stage == "scheduled" and isinstance(stmt.buffer.scope, MemorySpace)
                if not named and stmt.buffer.scope not in self.legal.scopes:
                    legal = ", ".join(self.legal.scopes)
                    raise self.fail(f"{stmt.buffer.name} is not allocated in {legal}", stmt)
                self.declare(stmt.buffer, stmt)
            case stmts.Assume():
                if not self.legal.assumptions:
                    raise self.fail("assumptions must be gone at this stage", stmt)
                self.condition(stmt.unless, stmt)
            case stmts.Call():
                self.call(stmt)
            case stmts.Let():
                self.let(stmt)
            case stmts.NamedWindow():
                self.named_window(stmt)
            case _:
                assert_never(stmt)

    def call(self, stmt: stmts.Call) -> None:
        """A call is legal where its arguments fit and what it performs is legal."""
        self.name("call", stmt.name, stmt)
        definition = stmt.definition
        known = self.called.setdefault(definition.name, definition)
        if known != definition or definition.name == self.func.name:
            raise self.fail(f"two kernels are called {definition.name}", stmt)
        verify(definition, "scheduled")
        if len(stmt.windows) != len(definition.params) or len(stmt.scalars) != len(
            definition.scalars
        ):
            raise self.fail(f"{stmt.name} does not have the arguments of {definition.name}", stmt)
        for window, param in zip(stmt.windows, definition.params, strict=True):
            buffer, wanted = window.buffer, param.buffer
            self.access(buffer, window.starts, stmt, check_registers=False)
            if buffer.dtype != wanted.dtype:
                raise self.fail(
                    f"{wanted.name} holds {wanted.dtype}, but gets {buffer.name} of {buffer.dtype}",
                    stmt,
                )
            self.check_axes(window, wanted, stmt)
            if self.legal.emittable and not param.strided and not is_dense(window, wanted):
                raise self.fail(
                    f"{wanted.name} of {definition.name} is dense, and the elements of the window "
                    f"of {buffer.name} do not follow one another; make it a window (set_window)",
                    stmt,
                )
        for index in stmt.scalars:
            self.bound(variables(index), stmt)
        self.body(performed(stmt))

    def let(self, stmt: stmts.Let) -> None:
        """A let may stand at every stage; its value is visible in its body alone."""
        buffer = stmt.buffer
        if buffer.shape or buffer.separators or buffer.scope != "register":
            raise self.fail(f"{buffer.name} of a let has no axes and is in registers", stmt)
        self.name("let", buffer.name, stmt)
        self.expr(stmt.value, stmt)
        problem = next(type_errors(stmts.Store(buffer, (), stmt.value)), None)
        if problem is not None:
            raise self.fail(problem, stmt)
        if any(write.buffer == buffer for write in visit.writes_in(stmt.body)):
            raise self.fail(f"{buffer.name} is the value of a let, and is written", stmt)
        outer = dict(self.buffers)
        self.declare(buffer, stmt)
        self.body(stmt.body)
        self.buffers = outer

    def check_axes(
        self, window: stmts.BufferWindow, wanted: exprs.Buffer, stmt: stmts.Stmt
    ) -> None:
        axes = [*window.kept, len(window.buffer.shape)]
        if len(window.kept) != len(wanted.shape) or axes != sorted(set(axes)):
            raise self.fail(
                f"the window of {window.buffer.name} does not keep {len(wanted.shape)} axes", stmt
            )

    def named_window(self, stmt: stmts.NamedWindow) -> None:
        """A named window may stand at every stage; it is written where its buffer may be."""
        name, behind = stmt.buffer, stmt.window.buffer
        self.access(behind, stmt.window.starts, stmt)
        self.check_axes(stmt.window, name, stmt)
        if (name.dtype, name.scope, name.separators) != (behind.dtype, behind.scope, ()):
            raise self.fail(f"{name.name} is {name}, and names a window of {behind}", stmt)
        for axis, extent in zip(stmt.window.kept, name.shape, strict=True):
            if extent > behind.shape[axis]:
                raise self.fail(f"{name.name} is longer than axis {axis} of {behind.name}", stmt)
        self.name("window", name.name, stmt)
        outer = dict(self.buffers)
        self.declare(name, stmt)
        if behind in self.inputs:
            self.inputs.add(name)
        self.body(stmt.body)
        self.inputs.discard(name)
        self.buffers = outer

    def write(self, stmt: stmts.Store | stmts.Reduce) -> None:
        self.access(stmt.buffer, stmt.indices, stmt)
        if stmt.buffer in self.inputs:
            raise self.fail(
                f"input {stmt.buffer.name} is written, which out[…] and inout[…] permit", stmt
            )
        if stmt.buffer.is_field and isinstance(stmt, stmts.Reduce):
            raise self.fail(f"{stmt.buffer.name} is configuration state: it is only stored", stmt)

    def block(self, stmt: stmts.Block) -> None:
        self.name("block", stmt.name, stmt)
        keys = [key for key, _ in stmt.annotations]
        if len(set(keys)) < len(keys) or not all(isinstance(key, stmts.BlockNote) for key in keys):
            known = ", ".join(stmts.BlockNote)
            raise self.fail(f"annotation keys must be different ones of {known}", stmt)
        self.body(stmt.body)

    def loop(self, stmt: stmts.For) -> None:
        self.name("loop variable", stmt.var.name, stmt)
        self.bound((*variables(stmt.start), *variables(stmt.stop)), stmt)
        if stmt.kind not in self.legal.loop_kinds:
            raise self.fail(f"a {stmt.kind.value} loop is not legal at this stage", stmt)
        kinds = {loop.kind for loop in self.loops.values()}
        if stmts.LoopKind.VECTORIZED in kinds and stmt.kind in (
            stmts.LoopKind.VECTORIZED,
            stmts.LoopKind.PARALLEL,
        ):
            raise self.fail(f"a {stmt.kind.value} loop stands inside a vectorized one", stmt)
        if self.legal.emittable and stmt.kind in EXPANDED and stmt.extent is None:
            raise self.fail(f"a {stmt.kind.value} loop needs a constant number of iterations", stmt)
        self.loops[stmt.var] = stmt
        self.body(stmt.body)
        del self.loops[stmt.var]

    def check_parallel(self) -> None:
        """One parallel loop with only blocks around and allocations beside it, or phases."""
        fault = fault_in_phases(self.func)
        if fault is not None:
            raise self.fail(*fault)

    # -- expressions

    def expr(self, expr: exprs.Expr, stmt: stmts.Stmt) -> None:
        for node in exprs.walk_expr(expr):
            match node:
                case exprs.Load():
                    self.access(node.buffer, node.indices, stmt)
                case exprs.IndexValue():
                    self.bound(variables(node.index), stmt)
                case exprs.Select():
                    self.condition(node.condition, stmt)
                case exprs.Undef() if not self.legal.assumptions:
                    raise self.fail("undef must be gone at this stage", stmt)
                case _:
                    pass

    def condition(self, condition: exprs.Condition, stmt: stmts.Stmt) -> None:
        """Variables of a predicate; a condition on data is visited as an expression."""
        if exprs.is_predicate(condition):
            self.bound(predicate_variables(cast(Predicate, condition)), stmt)

    def access(
        self,
        buffer: exprs.Buffer,
        indices: tuple[IndexExpr, ...],
        stmt: stmts.Stmt,
        check_registers: bool = True,
    ) -> None:
        if buffer.is_field:
            self.field(buffer, stmt)
        known = self.buffers.get(buffer.name)
        if known is None:
            raise self.fail(f"buffer {buffer.name} is not allocated here", stmt)
        if known != buffer:
            raise self.fail(f"{buffer.name} is used as {buffer}, but declared as {known}", stmt)
        if len(indices) != len(buffer.shape):
            ranks = f"{len(indices)} indices for {len(buffer.shape)} axes"
            raise self.fail(f"{buffer.name} is accessed with {ranks}", stmt)
        for index in indices:
            self.bound(variables(index), stmt)
            if self.legal.emittable and buffer.scope == "register" and check_registers:
                self.check_register(buffer, index, stmt)

    def field(self, buffer: exprs.Buffer, stmt: stmts.Stmt) -> None:
        """A field of configuration state is declared by its first use, and in no body."""
        if self.stage != "scheduled":
            raise self.fail(f"{buffer.name} is configuration state, for scheduled kernels", stmt)
        if buffer.name not in self.fields:
            self.name("buffer", buffer.name, stmt)
            self.fields[buffer.name] = buffer
        self.buffers[buffer.name] = self.fields[buffer.name]

    def check_register(self, buffer: exprs.Buffer, index: IndexExpr, stmt: stmts.Stmt) -> None:
        for var in sorted(variables(index), key=str):
            if var in self.func.scalars or self.loops[var].kind not in EXPANDED:
                raise self.fail(
                    f"{buffer.name} is in registers, but its index {index} depends on {var}, whose "
                    "loop is neither unrolled nor vectorized",
                    stmt,
                )

    def bound(self, names: Iterable[Var], stmt: stmts.Stmt) -> None:
        for var in sorted(names, key=str):
            if var not in self.loops and var not in self.func.scalars:
                raise self.fail(f"no loop around the use binds {var}", stmt)
