"""Random applications of the primitives on configuration state."""

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.schedule import bind_config, delete_config, write_config
from support.kernels.random_kernels import Number
from support.primitives.choices import Arguments
from support.primitives.primitive_cases import PrimitiveCase, effect_kernel
from support.primitives.refused_kernels import ACT, ROW, i
from support.primitives.statement_places import addressed

MODE = tir.Config("mode", {"a": "int64", "b": "int64"})
FIELDS = tuple(map(MODE.field, MODE.fields))


def config_kernel(number: Number) -> tir.PrimFunc:
    """A random kernel with configuration state."""
    return with_state(effect_kernel(number), number)


def with_state(func: tir.PrimFunc, number: Number) -> tir.PrimFunc:
    """A kernel of int64 in which some stores read a field, and one is written before some."""
    at_once = [loop for loop in tir.loops_of(func.body) if loop.kind in tir.AT_ONCE]
    inside = {id(stmt) for loop in at_once for stmt in tir.walk(loop.body)}

    def change(stmt: tir.Stmt) -> tir.Body:
        if not isinstance(stmt, tir.Store | tir.Reduce) or id(stmt) in inside:
            return (stmt,)
        if number(0, 2) == 0 and stmt.buffer.dtype == "int64":
            read = tir.Load(FIELDS[number(0, 1)], ())
            stmt = replace(stmt, value=tir.Binary("add", stmt.value, read))
        write = tir.Store(FIELDS[number(0, 1)], (), tir.Literal(number(0, 1), "int64"))
        return (write, stmt) if number(0, 2) == 0 else (stmt,)

    return replace(func, body=tir.map_body(func.body, change))


def write_arguments(func: tir.PrimFunc, number: Number) -> Arguments:
    places = [place for place, _ in addressed(func)]
    if not places:
        return None
    place = places[number(0, len(places) - 1)]
    return place, FIELDS[number(0, 1)], number(0, 1), number(0, 1) == 1


def delete_arguments(func: tir.PrimFunc, number: Number) -> Arguments:
    found = [
        place
        for place, stmt in addressed(func, tir.Store)
        if isinstance(stmt, tir.Store) and stmt.buffer.is_field
    ]
    return (found[number(0, len(found) - 1)],) if found else None


def bind_arguments(func: tir.PrimFunc, number: Number) -> Arguments:
    found = [
        (place, node)
        for place, stmt in addressed(func, tir.Store, tir.Reduce)
        if isinstance(stmt, tir.Store | tir.Reduce) and not stmt.buffer.is_field
        for node in tir.walk_expr(stmt.value)
        if node.dtype == "int64"
    ]
    if not found:
        return None
    place, node = found[number(0, len(found) - 1)]
    return place, node, FIELDS[number(0, 1)]


# What is refused ----------------------------------------------------------------------------------


def stateful(body: str) -> tir.PrimFunc:
    lines = "\n".join("    " + line for line in body.splitlines())
    head = "mode = config(act=i32)\n\n@primfunc\n"
    return tir.parse(f"{head}def k(x: i32[16], y: out[i32[16]]):\n{lines}\n")


READS = "mode.act = i32(3)\nfor i in serial(0, 16):\n    y[i] = x[i] * mode.act"
THREADS = ROW.replace("serial", "parallel").format("y[i] = x[i] * i32(3)")


CONFIG_CASES = (
    PrimitiveCase(bind_config, bind_arguments, config_kernel)
    .on(ROW.format("y[i] = x[i]"), "i[0]", "x[i]", tir.Buffer("t", (), "int32"))
    .refuses("1", "field: t is no field of configuration state")
    .given("i[0]", "x[0]", ACT)
    .refuses("2", r"found: x\[0\] does not stand in i\[0\]")
    .on("for i in serial(0, 15):\n    y[i] = x[i]\n    y[i + 1] = x[i] + y[i]", "i", "y[i]", ACT)
    .refuses("2", r"unchanged: y\[i\] is the same at each use in i", r"i=\d+")
    .on(lambda: stateful(READS), "i[0]", "x[i]", ACT)
    .refuses("3", r"free: i\[0\] accesses mode\.act already")
    .on(lambda: stateful(READS + "\ny[0] = x[3]\ny[1] = mode.act"), "[2]", "x[3]", ACT)
    .refuses(
        "4",
        r"unread: nothing behind \[2\] reads mode\.act",
        r"mode\.act at \(\) is read by mode\.act at \(\)",
    )
    .on(THREADS, "i[0]", "x[i]", ACT)
    .refuses("5", "threads: the iterations of i are independent", r"i=\d+, i'=\d+"),
    PrimitiveCase(delete_config, delete_arguments, config_kernel)
    .on(ROW.format("y[i] = x[i]"), "i[0]")
    .refuses("1", r"write: `y\[i\] = x\[i\]` writes no configuration state")
    .on(lambda: stateful(READS), "[0]")
    .refuses(
        "2",
        r"unread: nothing reads mode\.act afterwards: that",
        r"mode\.act at \(\) is read by mode\.act at i'=\d+; mode\.act may hold anything at \(\)",
    ),
    PrimitiveCase(write_config, write_arguments, config_kernel)
    .on(ROW.format("y[i] = x[i]"), "i", tir.Buffer("t", (), "int32"), 1)
    .refuses("1", "field: t is no field of configuration state")
    .given("i", ACT, tir.Load(tir.Buffer("z", (), "int32"), ()))
    .refuses("2", "scope: buffer z is not allocated here")
    .given(by=lambda f: write_config(f, "i[0]", ACT, tir.Load(f.inputs[0], (i + 1,))))
    .refuses("3", r"memory: x\[i \+ 1\] is in bounds", r"i=\d+")
    .on(lambda: stateful(READS), "i", ACT, 4)
    .refuses(
        "4",
        r"unread: nothing reads mode\.act afterwards: that",
        r"mode\.act at \(\) is read by mode\.act at i'=\d+; \d+ is not \d+ at \(\)",
    )
    .on(THREADS, "i[0]", ACT, 1)
    .refuses("5", "threads: the iterations of i are independent", r"i=\d+, i'=\d+"),
)
