"""Primitives on configuration state: text before and after, and a refusal by clause."""

from typing import Any

import pytest

from graphflow.arith import const
from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Rewrite,
    Schedule,
    bind_config,
    call_eqv,
    delete_config,
    extract_subproc,
    remove_no_op,
    replay,
    write_config,
)
from graphflow.tir import Buffer, Config, IndexValue, Load, PrimFunc, interpret, parse
from support.schedule_checks import inputs_of, same

MODE = Config("mode", {"scale": "int32", "act": "int32"})
SCALE, ACT = MODE.field("scale"), MODE.field("act")


def kernel(body: str) -> PrimFunc:
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    head = "mode = config(scale=i32, act=i32)\n\n@primfunc\n"
    return parse(f"{head}def k(x: i32[16], y: out[i32[16]]):\n{lines}\n")


READER = """
mode.scale = i32(3)
for i in serial(0, 16):
    y[i] = x[i] * mode.scale
"""
PLAIN = """
for i in serial(0, 16):
    y[i] = x[i] * i32(3)
for j in serial(0, 16):
    y[j] = y[j] + x[j] * i32(3)
"""


def states(func: PrimFunc) -> dict[str, Any]:
    state: dict[str, Any] = {}
    interpret(func, inputs_of(func), state=state)
    return state


# write_config -------------------------------------------------------------------------------------


def test_write_config_in_a_gap() -> None:
    func = kernel(READER)
    done = write_config(func, "i", ACT, 1)
    assert "    mode.act = i32(1)\n    for i in serial" in same(func, done)
    assert done.fields == ("mode.act",)
    behind = write_config(func, "i", SCALE, 7, after=True)
    assert same(func, behind).endswith("mode.scale\n    mode.scale = i32(7)\n")
    assert behind.fields == ("mode.scale",) and states(behind.func) == {"mode.scale": 7}


def test_write_config_before_another_write_changes_no_state() -> None:
    func = kernel(READER)
    done = write_config(func, "[0]", SCALE, 9)
    same(func, done)
    assert done.fields == () and states(done.func) == states(func)


def test_write_config_of_what_the_field_holds() -> None:
    func = kernel(READER)
    done = write_config(func, "i[0]", SCALE, 3)
    assert "        mode.scale = i32(3)\n        y[i]" in same(func, done)
    assert done.fields == ()


def test_write_config_of_an_expression() -> None:
    func = kernel(PLAIN)
    value = Load(func.params[0].buffer, (const(2),))
    assert "mode.act = x[2]" in same(func, write_config(func, "i[0]", ACT, value))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("i", Buffer("t", (), "int32"), 1), "field: t is no field of configuration state"),
        (("i", SCALE, IndexValue(const(1))), r"field: mode.scale is int32, and index.1, i64. is"),
        (("i", SCALE, 4), r"unread: nothing reads mode.scale afterwards: that is not proven"),
        (("i[0]", SCALE, 4), r"mode.scale at i=0 is read by mode.scale at i'=0; 3 is not 4"),
    ],
)
def test_write_config_refuses(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        write_config(kernel(READER), *arguments)


def test_write_config_refuses_scope_memory_and_threads() -> None:
    func = kernel(PLAIN)
    x = func.params[0].buffer
    with pytest.raises(ScheduleError, match="scope: buffer z is not allocated here"):
        write_config(func, "i", ACT, Load(Buffer("z", (), "int32"), ()))
    with pytest.raises(ScheduleError, match=r"memory: x\[16\] is in bounds does not hold"):
        write_config(func, "i", ACT, Load(x, (const(16),)))
    threads = kernel(PLAIN.replace("serial", "parallel"))
    with pytest.raises(ScheduleError, match=r"threads: .* i are independent .* at i=0, i'=\d+"):
        write_config(threads, "i[0]", ACT, 1)


# delete_config ------------------------------------------------------------------------------------


def test_delete_config_of_a_write_that_nothing_reads() -> None:
    func = kernel(READER + "mode.scale = i32(4)")
    done = delete_config(func, "[2]")
    assert "i32(4)" not in same(func, done)
    assert done.fields == ("mode.scale",)
    twice = kernel("mode.act = i32(1)\nmode.act = i32(2)\ny[0] = x[0]")
    done = delete_config(twice, "[0]")
    assert done.fields == () and states(done.func) == states(twice)


def test_delete_config_of_a_redundant_write_in_a_loop() -> None:
    func = kernel("""
mode.scale = i32(3)
for i in serial(0, 16):
    with block("setting"):
        mode.scale = i32(3)
    y[i] = x[i] * mode.scale
""")
    done = delete_config(func, "setting")
    assert "setting" not in same(func, done)
    assert done.fields == ()


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        (READER, "[0]", r"unread: .*mode.scale at \(\) is read by mode.scale at i'=0"),
        (READER, "i", r"write: `y\[i\] = x\[i\] \* mode.scale` writes no configuration state"),
        (
            "for i in serial(0, 16):\n    y[i] = mode.act\n    mode.act = x[i]",
            "i[1]",
            r"mode.act at i=0 is read by mode.act at i'=1",
        ),
        (
            "mode.act = i32(1)\nif data(x[0] > i32(0)):\n    mode.act = i32(2)\ny[0] = mode.act",
            "[1]",
            r"where data decide, mode.act at \(\) is read by mode.act at \(\); 1 is not 2",
        ),
    ],
)
def test_delete_config_refuses(body: str, place: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        delete_config(kernel(body), place)


# bind_config --------------------------------------------------------------------------------------


def test_bind_config() -> None:
    func = kernel(PLAIN)
    done = bind_config(func, "i[0]", "i32(3)", SCALE)
    text = same(func, done)
    assert "        mode.scale = i32(3)\n        y[i] = x[i] * mode.scale\n" in text
    assert "y[j] = y[j] + x[j] * i32(3)" in text
    assert done.fields == ("mode.scale",)


def test_bind_config_of_a_whole_loop() -> None:
    func = kernel(PLAIN)
    text = same(func, bind_config(func, "j", "x[j]", ACT))
    assert "        mode.act = x[j]\n        y[j] = y[j] + mode.act * i32(3)\n" in text


def test_bind_config_refuses() -> None:
    func = kernel(PLAIN)
    with pytest.raises(ScheduleError, match=r"field: mode\.scale is int32, and .* is int64"):
        wide = kernel("for i in serial(0, 16):\n    y[i] = cast(i32, i64(3)) * x[i]")
        bind_config(wide, "i[0]", "i64(3)", SCALE)
    with pytest.raises(ScheduleError, match=r"found: i32\(4\) does not stand in i\[0\]"):
        bind_config(func, "i[0]", "i32(4)", SCALE)
    with pytest.raises(ScheduleError, match=r"scope: x\[i\] \* i32\(3\) changes with i inside b"):
        block = kernel('with block("b"):\n' + "\n".join("    " + s for s in PLAIN.split("\n")))
        bind_config(block, "b", "x[i] * i32(3)", SCALE)
    with pytest.raises(ScheduleError, match=r"free: i\[0\] accesses mode.scale already"):
        bind_config(kernel(READER), "i[0]", "x[i]", SCALE)


def test_bind_config_refuses_a_field_that_is_read_behind() -> None:
    func = kernel(PLAIN.replace("x[j] * i32(3)", "mode.scale"))
    with pytest.raises(
        ScheduleError, match=r"unread: nothing behind i reads mode\.scale"
    ) as refused:
        bind_config(func, "i", "i32(3)", SCALE)
    assert "mode.scale at i=0 is read by mode.scale at j'=0" in str(refused.value)


# Schedules and callers ----------------------------------------------------------------------------


def test_a_schedule_tells_which_fields_may_differ() -> None:
    s = Schedule.of(kernel(READER)).apply(write_config, "[0]", SCALE, 5)
    assert s.fields == ()
    loop = s.handle("i")
    s = s.apply(write_config, "i", ACT, 1).apply(delete_config, "[0]")
    assert s.fields == ("mode.act",) and s[loop] == "i"
    assert "mode.act may differ after the kernel" in s.trace(proofs=True)
    assert replay(s.definition, s.steps) == s.func


def test_call_eqv_asks_whether_the_caller_reads_what_may_differ() -> None:
    def caller(behind: str) -> Schedule:
        lines = '\nwith block("part"):\n    for i in serial(0, 16):\n        y[i] = x[i]\n' + behind
        return Schedule.of(kernel(lines)).apply(extract_subproc, "part", "copy")

    def equivalent(s: Schedule) -> Schedule:
        call = s.func.body[0]
        return Schedule.of(call.definition).apply(write_config, "i", ACT, 1)  # type: ignore[union-attr]

    s = caller("")
    done = s.apply(call_eqv, "copy", equivalent(s))
    assert done.fields == ("mode.act",)
    s = caller("mode.act = i32(4)")
    assert s.apply(call_eqv, "copy", equivalent(s)).fields == ()
    s = caller("y[3] = mode.act")
    with pytest.raises(ScheduleError, match=r"state: nothing behind copy reads mode\.act"):
        s.apply(call_eqv, "copy", equivalent(s))


def test_other_primitives_keep_what_fields_hold_after_the_kernel() -> None:
    func = kernel("mode.act = i32(1)\ny[0] = x[0]")
    assert remove_no_op(func).func is func
    done: Rewrite = remove_no_op(kernel("mode.act = i32(1)\nmode.act = i32(2)\ny[0] = x[0]"))
    assert states(done.func) == {"mode.act": 2} and len(done.func.body) == 2
