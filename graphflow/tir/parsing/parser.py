"""Parses the text form of kernels, whose grammar `printer` describes.

In: text in Python's syntax.  Out: a `PrimFunc`, which has not been verified.  Anything outside the
grammar raises `ParseError` with the line, the column and the text of the line; nothing is skipped
or guessed.  Index expressions and predicates are built with the smart constructors of
`graphflow.arith`, hence are in normal form.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from textwrap import dedent
from typing import Any

from graphflow.arith import IndexExpr, Var, constant_value
from graphflow.base.fields import replace
from graphflow.tir.checks.check_intrinsic import intrinsic_problem
from graphflow.tir.nodes import exprs, printer, stmts
from graphflow.tir.nodes.memory_space import MemorySpace
from graphflow.tir.parsing.parse_expr import ExpressionParser, elements
from graphflow.tir.parsing.parse_index import dotted_name

_REDUCTIONS = {"reduce_min": stmts.ReduceOp.MIN, "reduce_max": stmts.ReduceOp.MAX}
_ROLES = {role.value: role for role in (stmts.Role.OUTPUT, stmts.Role.INOUT)}
_LOOP_KINDS = {kind.value: kind for kind in stmts.LoopKind}


def parse(text: str, first_line: int = 1) -> stmts.PrimFunc:
    """The kernel that `text` describes; common indentation and comments are ignored.

    `first_line` is the number that errors give the first line of `text`.

    Raises `ParseError` where the text is not in the text form.  Run `verify` on the result: the
    parser checks syntax and that every buffer is declared, not types or scopes.
    """
    return _Parser(dedent(text), first_line).func()


class _Parser(ExpressionParser):
    def __init__(self, text: str, first_line: int) -> None:
        super().__init__(text, first_line)
        self.definitions: dict[str, stmts.PrimFunc] = {}
        """The instructions above, by name."""
        self.memories: dict[str, MemorySpace] = {}
        """The memories above, by name."""

    # -- the kernel and its buffers

    def func(self) -> stmts.PrimFunc:
        try:
            module = ast.parse(self.text)
        except SyntaxError as error:
            column = (error.offset or 1) - 1
            message = f"not a kernel: {error.msg}"
            raise self.error_at(error.lineno or 1, column, message) from error
        for node in module.body:
            match node:
                case ast.FunctionDef(decorator_list=[ast.Name(id="instruction")]):
                    if node.name in self.definitions:
                        raise self.error(node, f"instruction {node.name} is defined twice")
                    self.definitions[node.name] = self.function(node)
                case ast.FunctionDef(
                    decorator_list=[ast.Call(func=ast.Name(id="instruction")) as call]
                ):
                    if node.name in self.definitions:
                        raise self.error(node, f"instruction {node.name} is defined twice")
                    func = self.with_intrinsic(self.function(node), call)
                    if node is module.body[-1]:
                        return func
                    self.definitions[node.name] = func
                case ast.FunctionDef(decorator_list=[ast.Name(id="primfunc")]) if (
                    node is module.body[-1]
                ):
                    return self.function(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[]) as call):
                    self.declaration(name, call)
                case _:
                    break
        where = module.body[0] if module.body else module
        raise self.error(where, "expected one function under @primfunc")

    def declaration(self, name: str, call: ast.Call) -> None:
        """`mode = config(act=i32, …)` or `spad = memory(rank=2, …)`."""
        word = dotted_name(call.func)
        known = {field.split(".")[0] for field in self.fields}
        if name in self.memories or name in known:
            raise self.error(call, f"{name} is declared twice")
        try:
            if word == "config":
                for one in call.keywords:
                    field = f"{name}.{one.arg}"
                    self.fields[field] = exprs.Buffer(field, (), self.dtype(one.value), "config")
            elif word == "memory":
                words = {str(one.arg): self.memory_word(one) for one in call.keywords}
                self.memories[name] = MemorySpace(name, **words)
            else:
                raise self.error(call, "expected config(field=type, …) or memory(…)")
        except ValueError as error:
            raise self.error(call, str(error)) from error

    def memory_word(self, word: ast.keyword) -> Any:
        match word:
            case ast.keyword(arg="instructions", value=ast.Tuple(elts=names)):
                return tuple(self.string(name) for name in names)
            case ast.keyword(arg="loads" | "stores", value=ast.Constant(value=bool(value))):
                return value
            case ast.keyword(arg="rank" | "capacity" | "alignment", value=value):
                return self.integer(value)
        raise self.error(word, f"a memory has the keywords {', '.join(printer.MEMORY_WORDS)}")

    def string(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str(value)):
                return value
        raise self.error(node, 'expected a string such as "load"')

    def with_intrinsic(self, func: stmts.PrimFunc, call: ast.Call) -> stmts.PrimFunc:
        """`@instruction(llvm="llvm.fma.v8f32", feature="fma", operands=("a", "b", "c"))`."""
        words: dict[str, Any] = {}
        for word in call.keywords:
            match word:
                case ast.keyword(arg="llvm"):
                    words["name"] = self.string(word.value)
                case ast.keyword(arg="feature"):
                    words["feature"] = self.string(word.value)
                case ast.keyword(arg="operands", value=ast.Tuple(elts=items)):
                    words["operands"] = tuple(self.string(item) for item in items)
                case _:
                    raise self.error(word, "an instruction has llvm=, feature= and operands=(…)")
        if call.args or "name" not in words:
            raise self.error(call, 'expected instruction(llvm="llvm.…")')
        problem = intrinsic_problem(func, intrinsic := stmts.Intrinsic(**words))
        if problem is not None:
            raise self.error(call, problem)
        return replace(func, intrinsic=intrinsic)

    def function(self, node: ast.FunctionDef) -> stmts.PrimFunc:
        self.buffers = {}
        params, scalars = self.params(node.args)
        return stmts.PrimFunc(node.name, params, self.body(node.body), scalars=scalars)

    def params(self, arguments: ast.arguments) -> tuple[tuple[stmts.Param, ...], tuple[Var, ...]]:
        match arguments:
            case ast.arguments(
                posonlyargs=[], vararg=None, kwonlyargs=[], kwarg=None, defaults=[], args=args
            ):
                is_scalar = [dotted_name(arg.annotation) == "index" for arg in args]
                count = len(args) - sum(is_scalar)
                if any(is_scalar[:count]):
                    raise self.error(args[is_scalar.index(True)], "scalars come after the buffers")
                params = tuple(self.param(arg) for arg in args[:count])
                return params, tuple(Var(arg.arg) for arg in args[count:])
        raise self.error_at(1, 0, "a kernel takes plain parameters `name: type` only")

    def param(self, arg: ast.arg) -> stmts.Param:
        node, role = arg.annotation, stmts.Role.INPUT
        if isinstance(node, ast.Subscript) and (word := dotted_name(node.value)) in _ROLES:
            node, role = node.slice, _ROLES[word]
        strided = isinstance(node, ast.Subscript) and dotted_name(node.value) == "window"
        if strided and isinstance(node, ast.Subscript):
            node = node.slice
        match node:
            case ast.Call(func=ast.Name(id="buffer")):
                return stmts.Param(self.buffer(arg.arg, node), role, strided)
            case ast.Subscript():
                buffer = self.declare(arg, arg.arg, *self.type_of(node), "global", ())
                return stmts.Param(buffer, role, strided)
        raise self.error(
            arg, f"parameter {arg.arg} needs a type such as f32[4, 8] or out[f32[4, 8]]"
        )

    def buffer(self, name: str, call: ast.Call) -> exprs.Buffer:
        """The buffer that `alloc(type, scope, sep=(…))` or `buffer(…)` describes."""
        scope: exprs.Location = "global"
        separators: tuple[int, ...] = ()
        match call.args:
            case [ast.Subscript() as type_node]:
                pass
            case [ast.Subscript() as type_node, ast.Name(id=word)] if word in exprs.SCOPES:
                scope = word
            case [ast.Subscript() as type_node, ast.Name(id=word)] if word in self.memories:
                scope = self.memories[word]
            case _:
                known = ", ".join((*exprs.SCOPES, *self.memories))
                raise self.error(call, f"expected a type and a scope, one of {known}")
        match call.keywords:
            case []:
                pass
            case [ast.keyword(arg="sep", value=ast.Tuple(elts=items))]:
                separators = tuple(self.integer(item) for item in items)
            case _:
                raise self.error(call, "the only keyword of a buffer is sep=(axis, …)")
        return self.declare(call, name, *self.type_of(type_node), scope, separators)

    def declare(
        self,
        node: ast.AST,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        scope: exprs.Location,
        separators: tuple[int, ...],
    ) -> exprs.Buffer:
        if name in self.buffers:
            raise self.error(node, f"buffer {name} is declared twice")
        try:
            buffer = exprs.Buffer(name, shape, dtype, scope, separators)
        except ValueError as error:
            raise self.error(node, str(error)) from error
        self.buffers[name] = buffer
        return buffer

    # -- statements

    def body(self, nodes: Sequence[ast.stmt]) -> stmts.Body:
        return tuple(self.stmt(node) for node in nodes if not isinstance(node, ast.Pass))

    def stmt(self, node: ast.stmt) -> stmts.Stmt:
        match node:
            case ast.For(target=target, iter=ast.Call(args=[start, stop]) as call, orelse=[]):
                return self.loop(node, target, call, start, stop)
            case ast.If():
                condition = self.condition(node.test)
                return stmts.If(condition, self.body(node.body), self.body(node.orelse))
            case ast.With(
                items=[
                    ast.withitem(
                        context_expr=ast.Call(func=ast.Name(id="let"), args=[value], keywords=[]),
                        optional_vars=ast.expr() as target,
                    )
                ]
            ):
                return self.let(node, target, self.expr(value))
            case ast.With(
                items=[
                    ast.withitem(
                        context_expr=ast.Subscript() as source, optional_vars=ast.expr() as target
                    )
                ]
            ):
                return self.named_window(node, source, target)
            case ast.With(
                items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=None)]
            ):
                return self.block(node, call)
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                return stmts.Store(*self.element(target), self.expr(value))
            case ast.Assign(targets=[ast.Attribute() as target], value=value) if (
                dotted_name(target) in self.fields
            ):
                return stmts.Store(self.fields[self.name(target)], (), self.expr(value))
            case ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id="alloc")) as call):
                return stmts.Allocate(self.buffer(self.name(target), call))
            case ast.AugAssign(target=ast.Subscript() as target, op=ast.Add(), value=value):
                return stmts.Reduce(stmts.ReduceOp.ADD, *self.element(target), self.expr(value))
            case ast.AugAssign(target=ast.Subscript() as target, op=ast.Mult(), value=value):
                return stmts.Reduce(stmts.ReduceOp.MUL, *self.element(target), self.expr(value))
            case ast.Expr(value=ast.Call() as call):
                return self.call_stmt(call)
        loop = ", where a loop is such as `for i in serial(0, 8):`" * isinstance(node, ast.For)
        raise self.error(node, f"not a statement of the text form{loop}")

    def loop(
        self, node: ast.For, target: ast.expr, call: ast.Call, start: ast.expr, stop: ast.expr
    ) -> stmts.For:
        kind = _LOOP_KINDS.get(dotted_name(call.func) or "")
        if kind is None or call.keywords:
            raise self.error(call, f"expected a loop kind, one of {', '.join(_LOOP_KINDS)}")
        low, high = self.index(start), self.index(stop)
        return stmts.For(Var(self.name(target)), low, high, kind, self.body(node.body))

    def block(self, node: ast.With, call: ast.Call) -> stmts.Block:
        match call:
            case ast.Call(func=ast.Name(id="block"), args=[ast.Constant(value=str(name))]):
                annotations = tuple(self.annotation(word) for word in call.keywords)
                return stmts.Block(name, self.body(node.body), annotations)
        raise self.error(call, 'expected block("name", key="value", …)')

    def let(self, node: ast.With, target: ast.expr, value: exprs.Expr) -> stmts.Let:
        buffer = self.declare(target, self.name(target), value.dtype, (), "register", ())
        return stmts.Let(buffer, value, self.body(node.body))

    def named_window(
        self, node: ast.With, source: ast.Subscript, target: ast.expr
    ) -> stmts.NamedWindow:
        window, shape = self.any_window(source)
        buffer = self.declare(
            target, self.name(target), window.buffer.dtype, shape, window.buffer.scope, ()
        )
        return stmts.NamedWindow(buffer, window, self.body(node.body))

    def annotation(self, word: ast.keyword) -> tuple[stmts.BlockNote, str]:
        match word:
            case ast.keyword(arg=str(key), value=ast.Constant(value=str(value))):
                if key not in tuple(stmts.BlockNote):
                    known = ", ".join(stmts.BlockNote)
                    raise self.error(word, f"a block has no annotation {key}; there are {known}")
                return stmts.BlockNote(key), value
        raise self.error(word, 'an annotation of a block reads key="value"')

    def call_stmt(self, call: ast.Call) -> stmts.Stmt:
        match call:
            case ast.Call(
                func=ast.Name(id="assume"),
                args=[ast.Call(func=ast.Name(id="unless"), args=[unless]), claim],
            ):
                return stmts.Assume(self.condition(unless), self.expr(claim))
            case ast.Call(func=ast.Name(id=word), args=[ast.Subscript() as target, value]) if (
                word in _REDUCTIONS
            ):
                return stmts.Reduce(_REDUCTIONS[word], *self.element(target), self.expr(value))
            case ast.Call(func=ast.Name(id=word)) if word in self.definitions:
                return self.instruction_call(call, self.definitions[word])
        raise self.error(
            call,
            "expected assume(unless(…), …), reduce_min(x[…], …), reduce_max(x[…], …) or a call of "
            "an instruction defined above",
        )

    def instruction_call(self, call: ast.Call, definition: stmts.PrimFunc) -> stmts.Call:
        name = definition.name
        match call.keywords:
            case []:
                pass
            case [ast.keyword(arg="name", value=ast.Constant(value=str(name)))]:
                pass
            case _:
                raise self.error(call, 'the only keyword of a call is name="…"')
        count = len(definition.params)
        if len(call.args) != count + len(definition.scalars):
            raise self.error(
                call,
                f"{definition.name} takes {count} windows and {len(definition.scalars)} scalars, "
                f"not {len(call.args)} arguments",
            )
        windows = tuple(
            self.window(node, param.buffer)
            for node, param in zip(call.args, definition.params, strict=False)
        )
        scalars = tuple(self.index(node) for node in call.args[count:])
        return stmts.Call(name, definition, windows, scalars)

    def window(self, node: ast.expr, param: exprs.Buffer) -> stmts.BufferWindow:
        """`x[i, j:j + 8]`: an index for each axis, or a start and a stop as far apart as the
        parameter is long."""
        if not isinstance(node, ast.Subscript):
            raise self.error(node, f"{param.name} takes a window such as x[i, j:j + 8]")
        window, shape = self.any_window(node)
        if shape != param.shape:
            wanted = f"{param.name} of {list(param.shape)}"
            raise self.error(node, f"the window does not fit {wanted}, but {list(shape)}")
        return window

    def any_window(self, node: ast.Subscript) -> tuple[stmts.BufferWindow, tuple[int, ...]]:
        """A window with the shape that its stops give."""
        buffer = self.declared(node)
        starts: list[IndexExpr] = []
        kept: list[int] = []
        shape: list[int] = []
        for axis, item in enumerate(elements(node.slice)):
            match item:
                case ast.Slice(lower=ast.expr() as low, upper=ast.expr() as high, step=None):
                    starts.append(self.index(low))
                    extent = constant_value(self.index(high) - starts[-1])
                    if extent is None or extent < 0:
                        raise self.error(item, "the extent of a window is a constant")
                    shape.append(extent)
                    kept.append(axis)
                case ast.Slice():
                    raise self.error(item, "an axis of a window has a start and a stop")
                case _:
                    starts.append(self.index(item))
        return stmts.BufferWindow(buffer, tuple(starts), tuple(kept)), tuple(shape)
